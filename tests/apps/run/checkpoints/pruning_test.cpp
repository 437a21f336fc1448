#include "run/checkpoints/pruning.hpp"

#include <iterator>

#include "run/checkpoints/best_checkpoints.hpp"
#include "run/checkpoints/constant_tensors.hpp"
#include "run/directory/run_directory.hpp"

namespace heddle {
namespace {

std::vector<std::int64_t> steps(std::vector<CheckpointEntry> const& entries) {
  std::vector<std::int64_t> list;
  std::ranges::transform(entries, std::back_inserter(list), &CheckpointEntry::step);
  return list;
}

/// A run with checkpoints of the steps 10, 20, … 60, of which 20 is the best.
class PruningTest : public testing::Test {
 protected:
  PruningTest() {
    for (std::int64_t step = 10; step <= 60; step += 10) {
      CheckpointContents contents;
      contents.state.step = step;
      contents.state.best_step = step < 20 ? 0 : 20;
      ConstantTensors tensors({{"weight", {8}}}, static_cast<float>(step));
      store_.commit(Communicator::self(), contents, tensors, 1);
    }
  }
  std::vector<std::int64_t> there() const { return steps(store_.list(CheckpointStore::Check::all_bytes)); }
  /// Changes a byte of the file with the tensors.
  void damage(std::int64_t step) const {
    std::fstream file(store_.directory() / checkpoint_directory_name(step) / "tensors-00000.h5",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    char const last = static_cast<char>(file.get() ^ 1);
    file.seekp(-1, std::ios::end);
    file.put(last);
  }

  TemporaryDirectory directory_;
  CheckpointStore store_{directory_ / "checkpoints", 100};
};

TEST_F(PruningTest, LeavesTheNewestTheBestAndMultiples) {
  EXPECT_THAT(steps(prune_checkpoints(directory_ / ".", {.keep = 2}, true).removed), ElementsAre(10, 30, 40));
  EXPECT_THAT(there(), ElementsAre(10, 20, 30, 40, 50, 60)) << "a dry run removes nothing";
  EXPECT_THAT(steps(prune_checkpoints(directory_ / ".", {.keep = 2, .keep_every = 30}, false).removed),
              ElementsAre(10, 40));
  EXPECT_THAT(there(), ElementsAre(20, 30, 50, 60));
  EXPECT_THAT(steps(prune_checkpoints(directory_ / ".", {.keep = 1}, false).kept), ElementsAre(20, 60));
  EXPECT_THAT(there(), ElementsAre(20, 60));
  EXPECT_THAT(prune_checkpoints(directory_ / ".", {.keep = 5}, false).removed, IsEmpty());
}

TEST_F(PruningTest, NeitherCountsNorRemovesWhatDoesNotVerify) {
  damage(60);
  PrunedCheckpoints const pruned = prune_checkpoints(directory_ / ".", {.keep = 1}, false);
  EXPECT_THAT(pruned.notes, ElementsAre(HasSubstr("step-00000060 rejected")));
  EXPECT_THAT(steps(pruned.kept), ElementsAre(20, 50));
  EXPECT_THAT(steps(store_.list(CheckpointStore::Check::sizes)), ElementsAre(20, 50, 60));
}

TEST_F(PruningTest, ADamagedOneInSecondPlaceDoesNotTakeAGoodOnesPlace) {
  damage(50);
  PrunedCheckpoints const pruned = prune_checkpoints(directory_ / ".", {.keep = 2}, false);
  EXPECT_THAT(pruned.notes, ElementsAre(HasSubstr("step-00000050 rejected")));
  EXPECT_THAT(steps(pruned.kept), ElementsAre(20, 40, 60));
  EXPECT_THAT(steps(pruned.removed), ElementsAre(10, 30));
}

TEST_F(PruningTest, RefusesARunThatTrainsAndADirectoryWithoutCheckpoints) {
  {
    RunDirectory const held = RunDirectory::open(directory_ / ".");
    expect_config_error([&] { prune_checkpoints(directory_ / ".", {.keep = 1}, false); },
                        "another process is training in");
    EXPECT_THAT(steps(prune_checkpoints(directory_ / ".", {.keep = 1}, true).removed), ElementsAre(10, 30, 40, 50));
  }
  EXPECT_THROW(prune_checkpoints(directory_ / "nothing", {.keep = 1}, false), DataError);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "nothing"));
  EXPECT_EQ(there().size(), 6U);
}

TEST_F(PruningTest, CheckpointsAreOrderedByTheirValidation) {
  auto const order = [&](char const* by) { return steps(ordered(store_.list(CheckpointStore::Check::sizes), by)); };
  EXPECT_THAT(order("newest"), ElementsAre(60, 50, 40, 30, 20, 10));
  EXPECT_THROW(order("loss"), DataError) << "a run without metrics";
  directory_.write("metrics.jsonl",
                   "{\"step\":20,\"valid_loss\":2.0,\"valid_bleu\":30}\n{\"step\":35,\"valid_loss\":1.0}\n"
                   "{\"step\":40,\"valid_loss\":1.5,\"valid_bleu\":29}\n{\"step\":60,\"valid_loss\":3.0}\n");
  EXPECT_THAT(order("loss"), ElementsAre(40, 20, 60)) << "step 35 has no checkpoint";
  EXPECT_THAT(order("bleu"), ElementsAre(20, 40));
  EXPECT_THAT(order("best"), ElementsAre(40, 20, 60)) << "by the loss, as a run of an older version chooses";
}

TEST_F(PruningTest, TheReportSaysByWhatARunChoosesAndWhichValueIsBetter) {
  auto const order = [&](char const* by) { return steps(ordered(store_.list(CheckpointStore::Check::sizes), by)); };
  directory_.write("metrics.jsonl",
                   "{\"step\":20,\"valid_loss\":2.0,\"valid_errors\":5,\"valid_loss/medical\":1}\n"
                   "{\"step\":40,\"valid_loss\":1.5,\"valid_errors\":7,\"valid_loss/medical\":3}\n");
  EXPECT_THROW(order("errors"), DataError) << "a metric of which nothing is known";
  EXPECT_THAT(order("loss/medical"), ElementsAre(20, 40));
  directory_.write("report.json",
                   R"({"best_metric":"errors","validation":{"valid_errors":{"higher_is_better":false}}})");
  EXPECT_THAT(order("errors"), ElementsAre(20, 40));
  EXPECT_THAT(order("best"), ElementsAre(20, 40));
  EXPECT_THAT(order("loss"), ElementsAre(40, 20));
  EXPECT_THAT(order("perplexity"), ElementsAre(40, 20)) << "lower is better, which no report says";
  EXPECT_THAT(order("perplexity/medical"), ElementsAre(20, 40));
}

TEST_F(PruningTest, ValuesOfAnotherValidationSetAreNotCompared) {
  directory_.write("metrics.jsonl",
                   "{\"step\":10,\"valid_loss\":0.5}\n"
                   "{\"step\":20,\"valid_loss\":1.0,\"valid_dataset\":\"before\"}\n"
                   "{\"step\":40,\"valid_loss\":3.0,\"valid_dataset\":\"now\"}\n"
                   "{\"step\":50,\"valid_loss\":2.0,\"valid_dataset\":\"now\"}\n"
                   "{\"step\":55,\"valid_loss\":1.5,\"valid_dataset\":\"now\"}\n");
  EXPECT_THAT(steps(ordered(store_.list(CheckpointStore::Check::sizes), "loss")), ElementsAre(50, 40));
  auto const best = [&](char const* digest, std::int64_t newest) {
    return best_with_checkpoint(store_.directory(), Measure(), digest, newest).step;
  };
  EXPECT_EQ(best("now", 60), 50) << "step 55 has no checkpoint";
  EXPECT_EQ(best("now", 40), 40);
  EXPECT_EQ(best("before", 60), 20);
  EXPECT_EQ(best("other", 60), 0);
}

TEST_F(PruningTest, TheBestOneStaysInACopyWithoutLinks) {
  std::filesystem::remove(store_.directory() / "best");
  EXPECT_THAT(steps(prune_checkpoints(directory_ / ".", {.keep = 1}, false).kept), ElementsAre(20, 60));
}

TEST_F(PruningTest, TheRecordOfADamagedOneDoesNotSayWhichIsTheBest) {
  CheckpointContents contents;
  contents.state.step = contents.state.best_step = 70;
  ConstantTensors tensors({{"weight", {8}}}, 7);
  store_.commit(Communicator::self(), contents, tensors, 1);
  damage(70);
  EXPECT_THAT(steps(prune_checkpoints(directory_ / ".", {.keep = 1}, false).kept), ElementsAre(20, 60));
}

TEST_F(PruningTest, SaysThatTheBestOneIsMissing) {
  std::filesystem::remove_all(store_.directory() / checkpoint_directory_name(20));
  PrunedCheckpoints const pruned = prune_checkpoints(directory_ / ".", {.keep = 1}, false);
  EXPECT_THAT(pruned.notes, ElementsAre(HasSubstr("the best checkpoint, of step 20, is not there")));
  EXPECT_THAT(steps(pruned.kept), ElementsAre(60));
}

}  // namespace
}  // namespace heddle
