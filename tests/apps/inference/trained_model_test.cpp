#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <heddle/model.hpp>

#include "run/checkpoints/constant_tensors.hpp"

namespace heddle {
namespace {

/// A run in which a validation called each even step the best so far.
class OpenCheckpointsTest : public testing::Test {
 protected:
  void commit(std::int64_t step, std::int64_t keep = 100) {
    CheckpointContents contents;
    contents.state.step = step;
    contents.state.best_step = step / 2 * 2;
    ConstantTensors tensors({{"weight", {8}}}, static_cast<float>(step));
    CheckpointStore(directory_.path(), keep).commit(Communicator::self(), contents, tensors, 1);
  }
  std::int64_t opened(std::string const& which = "auto") {
    options_.checkpoint = directory_.path().string();
    options_.which = which;
    OpenedCheckpoints found = open_checkpoints(options_);
    notes_ = found.skipped;
    return found.checkpoints.at(0).state().step;
  }

  TemporaryDirectory directory_;
  TrainedModelOptions options_;
  std::vector<std::string> notes_;
};

TEST_F(OpenCheckpointsTest, TakeTheBestOfACopyWithoutLinks) {
  for (std::int64_t const step : {1, 2, 3}) {
    commit(step);
  }
  std::filesystem::remove(directory_ / "best");
  EXPECT_EQ(opened(), 2);
  EXPECT_EQ(opened("best"), 2);
  EXPECT_EQ(opened("last"), 3);
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(OpenCheckpointsTest, TheNamedBestOneNeedsNoLinkAndNoRecordOfItsOwn) {
  ConstantTensors tensors({{"weight", {8}}}, 3);
  CheckpointContents last;
  last.state.step = 3;
  last.state.earlier_best = 2;  // the best one by another metric; its own record names step 1
  CheckpointContents best;
  best.state.step = 2;
  best.state.best_step = 1;
  for (CheckpointContents const& contents : {best, last}) {
    CheckpointStore(directory_.path(), 100).commit(Communicator::self(), contents, tensors, 1);
  }
  std::filesystem::remove(directory_ / "best");
  for (std::string const which : {"auto", "best", "last"}) {
    options_.checkpoint = (directory_ / "best").string();
    options_.which = which;
    OpenedCheckpoints const found = open_checkpoints(options_);
    EXPECT_EQ(found.checkpoints.at(0).state().step, 2);
    EXPECT_THAT(found.skipped, IsEmpty());
  }
}

TEST_F(OpenCheckpointsTest, SayThatTheBestOneIsMissing) {
  for (std::int64_t const step : {1, 4, 5}) {
    commit(step);
  }
  std::filesystem::remove_all(directory_ / checkpoint_directory_name(4));
  EXPECT_EQ(opened(), 5);
  EXPECT_THAT(notes_, ElementsAre(HasSubstr(
                          "the best checkpoint, of step 4, is not there or does not verify; the newest one is taken")));
  expect_data_error([&] { opened("best"); }, "of step 4, is not there or does not verify; use --which last");
}

TEST_F(OpenCheckpointsTest, TakeTheBestOneBeforeADamagedOne) {
  for (std::int64_t const step : {2, 3, 4}) {
    commit(step);
  }
  std::ofstream(directory_ / "step-00000004" / "tensors-00000.h5", std::ios::in | std::ios::out) << "damaged";
  EXPECT_EQ(opened(), 2);
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("skipped a checkpoint that does not verify: ")));
  EXPECT_THROW(opened("best"), DataError);
}

TEST_F(OpenCheckpointsTest, AreNotDisturbedByPruning) {
  commit(1);
  commit(2);
  struct Child {
    ~Child() {
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
    }
    pid_t process;
  } const training{::fork()};  // HDF5 cannot be used by two threads
  if (training.process == 0) {
    for (std::int64_t step = 3;; ++step) {
      commit(step, 2);
    }
  }
  for (std::int64_t before = 0, round = 0; round < 50; ++round) {
    std::int64_t const step = opened(round % 2 == 0 ? "best" : "last");
    EXPECT_GE(step, before);
    EXPECT_THAT(notes_, IsEmpty());
    for (CheckpointEntry const& entry : list_checkpoints(directory_.path(), CheckpointStore::Check::all_bytes)) {
      EXPECT_EQ(entry.problem, "");
    }
    before = step - 1;
  }
}

}  // namespace
}  // namespace heddle
