#include <heddle/io/checkpoint/memory_store.hpp>

#include "checkpoint_fixture.hpp"
#include "file_faults.hpp"

namespace heddle {
namespace {

class MemoryStoreTest : public CheckpointTest {
 protected:
  MemoryStore memory(std::string const& identity = "0123456789abcdef") const {
    return MemoryStore(Communicator::self(), {.root = run_, .run = "runs/x", .identity = identity});
  }
  MemoryCheckpoint commit_to_memory(std::int64_t step) const {
    SampleState sample(step);
    return memory().commit(sample.contents(), sample.tensors(), 0);
  }
  std::optional<Checkpoint> newest() {
    reports_.clear();
    return memory().newest_verified([this](std::string const& text) { reports_.push_back(text); });
  }
  /// Brings the step from memory to the disk.
  CommitResult write(std::int64_t step) const {
    CheckpointStore disk = store();
    return disk.finish(Communicator::self(), disk.begin(Communicator::self(), commit_to_memory(step)));
  }

  std::vector<std::string> reports_;
};

TEST_F(MemoryStoreTest, KeepsTheNewestBitByBit) {
  EXPECT_FALSE(newest().has_value());
  commit_to_memory(4);
  fs::path const directory = commit_to_memory(7).directory;
  EXPECT_THAT(names_in(directory.parent_path()), ElementsAre("step-00000007"));
  EXPECT_EQ(fs::status(directory.parent_path()).permissions(), fs::perms::owner_all);
  auto const found = newest();
  ASSERT_TRUE(found.has_value());
  expect_whole(*found, 7);
  EXPECT_THAT(reports_, IsEmpty());
  memory().remove();
  EXPECT_THAT(names_in(run_), IsEmpty());
}

TEST_F(MemoryStoreTest, ADamagedOneIsNamedAndNotUsed) {
  for (std::string const name : {"state.h5", "tensors-00000.h5"}) {
    fs::path const path = commit_to_memory(4).directory / name;
    std::string bytes = read_whole(path);
    bytes[bytes.size() / 2] ^= 1;
    write_file(path, bytes);
    EXPECT_FALSE(newest().has_value());
    ASSERT_THAT(reports_, SizeIs(1));
    expect_contains(reports_.front(), {"step-00000004 in memory rejected: no host has a complete copy of " + name,
                                       "do not have the SHA-256 that MANIFEST.json states"});
  }
}

TEST_F(MemoryStoreTest, ADamagedManifestIsNamedAndNotUsed) {
  fs::path const path = commit_to_memory(4).directory / "MANIFEST.json";
  write_file(path, read_whole(path).substr(9));
  EXPECT_FALSE(newest().has_value());
  ASSERT_THAT(reports_, SizeIs(1));
  expect_contains(reports_.front(), {"step-00000004 in memory on ", "MANIFEST.json"});
}

TEST_F(MemoryStoreTest, AMissingFileIsNamedAndTheOthersNotUsed) {
  fs::remove(commit_to_memory(4).directory / "tensors-00000.h5");
  EXPECT_FALSE(newest().has_value());
  EXPECT_THAT(reports_,
              ElementsAre("step-00000004 in memory rejected: no host has a complete copy of tensors-00000.h5"));
  fs::remove(commit_to_memory(4).directory / "MANIFEST.json");
  EXPECT_FALSE(newest().has_value());
}

TEST_F(MemoryStoreTest, AnOlderOneStaysIfTheNextCannotBeWritten) {
  commit_to_memory(1);
  SampleState bad(2);
  bad.tensors().parts(0)[0][5] = std::nanf("");
  expect_error([&] { memory().commit(bad.contents(), bad.tensors(), 0); },
               "checkpoint of step 2 was not written to memory: parameter encoder.0.weight");
  {
    FileFault const fault(FileCall::pwrite, FaultKind::no_space, 0);
    expect_error([&] { commit_to_memory(3); }, "No space left");
  }
  auto const found = newest();
  ASSERT_TRUE(found.has_value());
  expect_whole(*found, 1);
  EXPECT_THAT(names_in(memory().directory()), ElementsAre("step-00000001"));
}

TEST_F(MemoryStoreTest, AnotherDirectoryOfTheSameNameHasAnotherMemory) {
  commit_to_memory(4);
  MemoryStore const other = memory("fedcba9876543210");
  EXPECT_FALSE(other.newest_verified({}).has_value());
  EXPECT_THAT(names_in(run_), SizeIs(1));
  other.remove_stale();
  EXPECT_THAT(names_in(run_), IsEmpty());
}

TEST_F(MemoryStoreTest, AsksForRoomBefore) {
  std::string const error = message_of<Error>([&] {
    memory().require_room({{"huge", {1 << 20, 1 << 20}, adam_keys}}, 8 << 20, 0, 2);
  });
  expect_contains(error, "2 checkpoints in memory need 25165872 MiB there");
  EXPECT_NO_THROW(memory().require_room({{"small", {4}}}, 0, 0, 2));
}

TEST_F(MemoryStoreTest, AThreadBringsItToTheDiskAsItIs) {
  commit(1);
  CheckpointStore disk = store();
  MemoryCheckpoint const from = commit_to_memory(2);
  std::map<std::string, std::string> expected;
  for (std::string const& name : names_in(from.directory)) {
    expected[name] = read_whole(from.directory / name);
  }
  auto begun = disk.begin(Communicator::self(), from);
  EXPECT_EQ(begun->step(), 2);
  memory().remove();  // the thread has the files open
  CommitResult const result = disk.finish(Communicator::self(), std::move(begun));
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002"));
  EXPECT_THAT(names_in(result.directory), SizeIs(3));
  for (auto const& [name, bytes] : expected) {
    EXPECT_TRUE(read_whole(result.directory / name) == bytes) << name;
  }
  expect_whole(Checkpoint::open(result.directory), 2);
  EXPECT_THAT(write(2).notes, SizeIs(1)) << "it is there already";
}

TEST_F(MemoryStoreTest, OneThatIsGivenUpLeavesNothing) {
  commit(1);
  store().begin(Communicator::self(), commit_to_memory(2)).reset();
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
}

TEST_F(MemoryStoreTest, AFaultInAnyCallOfTheThreadLeavesThePreviousCheckpoint) {
  commit(1);
  std::map<FileCall, std::vector<FaultKind>> const faults{
      {FileCall::pwrite, {FaultKind::io_error, FaultKind::no_space, FaultKind::flipped_bit}},
      {FileCall::pread, {FaultKind::io_error, FaultKind::flipped_bit}},
      {FileCall::fsync, {FaultKind::io_error}}};
  int struck = 0;
  CheckpointStore disk = store();
  for (auto const& [call, kinds] : faults) {
    for (FaultKind const kind : kinds) {
      bool happened = true;
      int harmless = 0;
      int struck_here = 0;
      for (int number = 0; happened; ++number) {
        SCOPED_TRACE(::testing::Message() << "call " << static_cast<int>(call) << ", fault " << static_cast<int>(kind)
                                          << ", number " << number);
        MemoryCheckpoint const from = commit_to_memory(2);
        std::string error;
        {
          FileFault const fault(call, kind, number);
          error = message_of<Error>([&] { disk.finish(Communicator::self(), disk.begin(Communicator::self(), from)); });
          happened = fault.happened();
        }
        struck_here += happened ? 1 : 0;
        EXPECT_TRUE(happened || error.empty()) << error;
        harmless += happened && error.empty() ? 1 : 0;
        auto const newest = disk.newest_verified({});
        ASSERT_TRUE(newest.has_value());
        // Only the last fsync, of the directory that has its name already, comes too late.
        bool const late = happened && call == FileCall::fsync && fs::exists(run_ / "checkpoints/step-00000002");
        expect_whole(*newest, error.empty() || late ? 2 : 1);
        fs::remove_all(run_ / "checkpoints/step-00000002");
        EXPECT_THAT(names(), ElementsAre("step-00000001"));
      }
      struck += struck_here;
      // A read that fails is tried again. Pruning reads the manifests of both checkpoints and the record of the new
      // one, which is committed by then.
      int const expected = call != FileCall::pread ? 0 : kind == FaultKind::io_error ? struck_here : 4;
      EXPECT_EQ(harmless, expected) << static_cast<int>(call) << " " << static_cast<int>(kind);
    }
  }
  EXPECT_GT(struck, 12);
}

}  // namespace
}  // namespace heddle
