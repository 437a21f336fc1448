#include "checkpoint_fixture.hpp"
#include "file_faults.hpp"

namespace heddle {
namespace {

TEST_F(CheckpointTest, AFaultInAnyCallOfASaveLeavesThePreviousCheckpointAndNothingElse) {
  commit(1);
  std::map<FileCall, std::vector<FaultKind>> const faults{
      {FileCall::pwrite, {FaultKind::io_error, FaultKind::no_space, FaultKind::short_count, FaultKind::flipped_bit}},
      {FileCall::fsync, {FaultKind::io_error}}};
  int struck = 0;
  for (auto const& [call, kinds] : faults) {
    for (FaultKind const kind : kinds) {
      bool happened = true;
      for (int number = 0; happened; ++number) {
        SCOPED_TRACE(::testing::Message() << "call " << static_cast<int>(call) << ", fault " << static_cast<int>(kind)
                                          << ", number " << number);
        std::string error;
        {
          FileFault const fault(call, kind, number);
          error = message_of<Error>([&] { SampleState(2).commit_to(store()); });
          happened = fault.happened();
        }
        struck += happened ? 1 : 0;
        std::vector<std::string> rejected;
        auto const newest = store().newest_verified([&](std::string const& text) { rejected.push_back(text); });
        ASSERT_TRUE(newest.has_value());
        std::int64_t const step = newest->state().step;
        expect_whole(*newest, step);
        ASSERT_THAT(rejected, IsEmpty());
        ASSERT_TRUE(step == (error.empty() ? 2 : 1) || (step == 2 && call == FileCall::fsync)) << error;
        for (std::string const& name : names()) {
          if (name != "step-00000001") {
            std::filesystem::remove_all(run_ / "checkpoints" / name);
          }
        }
      }
    }
  }
  EXPECT_GT(struck, 12);
}

// The bytes that are used must be those that were verified. (Once a checkpoint's files were hashed, and then read again
// without a check.)
TEST_F(CheckpointTest, ABitFlippedInAnyReadIsNoticed) {
  std::filesystem::path const directory = commit(1).directory;
  int struck = 0;
  bool happened = true;
  for (int number = 0; happened; ++number) {
    FileFault const fault(FileCall::pread, FaultKind::flipped_bit, number);
    std::string const error = message_of<DataError>([&] { expect_whole(Checkpoint::open(directory), 1); });
    happened = fault.happened();
    struck += happened ? 1 : 0;
    bool const noticed =
        error.find("do not have the SHA-256") != error.npos || error.find("MANIFEST.json: is damaged") != error.npos;
    ASSERT_EQ(noticed, happened) << number << ": " << error;
  }
  EXPECT_GE(struck, 2);
}

TEST_F(CheckpointTest, ReadsThatFailOnceOrEndEarlyAreContinued) {
  std::filesystem::path const directory = commit(1).directory;
  {
    FileFault const fault(FileCall::pread, FaultKind::io_error, 0);
    expect_whole(Checkpoint::open(directory), 1);
    EXPECT_TRUE(fault.happened());
  }
  FileFault const fault(FileCall::pread, FaultKind::short_count, 1);
  expect_whole(Checkpoint::open(directory), 1);
  EXPECT_TRUE(fault.happened());
}

}  // namespace
}  // namespace heddle
