#include "command_line/train_options.hpp"

#include "test.hpp"

namespace heddle {
namespace {

TEST(ArgumentsToResume, LeaveOutWhatIsToHappenOnce) {
  TrainOptions options;
  options.config = "run.toml";
  options.overrides = {"train.steps=9"};
  options.plugins = {"odd.so"};
  options.resume_from = 3;
  options.trace = 2;
  options.new_data = true;
  options.stage_data = "/tmp";
  EXPECT_THAT(arguments_to_resume(options, "run"), ElementsAre("run.toml", "--set", "train.steps=9", "--plugin",
                                                               "odd.so", "--new-data", "--stage-data", "/tmp"));
}

TEST(ArgumentsToResume, NameTheDirectoryOfAFreshStart) {
  TrainOptions options;
  options.config = "run.toml";
  options.fresh = true;
  EXPECT_THAT(arguments_to_resume(options, "run-2"), ElementsAre("run.toml", "--set", "run.directory=run-2"));
}

TEST(TrainOptionsTest, AStepThatIsNoneOrBesideFreshIsRefused) {
  TrainOptions options;
  options.resume_from = 0;
  EXPECT_NO_THROW(require_valid(options, "train"));
  options.fresh = true;
  EXPECT_THROW(require_valid(options, "train"), UsageError);
  options.fresh = false;
  options.resume_from = -1;
  EXPECT_THROW(require_valid(options, "train"), UsageError);
}

/// Words of the message with which options are refused; "" if they are not.
std::string refusal(TrainOptions const& options) {
  try {
    require_valid(options, "train");
  } catch (UsageError const& error) {
    return error.what();
  }
  return "";
}

TEST(TrainOptionsTest, RanksAreThoseOfADryRun) {
  TrainOptions options;
  options.ranks = 4;
  expect_contains(refusal(options), "--ranks is an option of --dry-run; to train on 4 ranks: mpirun -np 4");
  options.dry_run = true;
  EXPECT_EQ(refusal(options), "");
  options.ranks = 0;
  expect_contains(refusal(options), "--ranks 0: expected at least 1");
}

TEST(TrainOptionsTest, ATraceHasSteps) {
  TrainOptions options;
  options.trace = 3;
  EXPECT_EQ(refusal(options), "");
  options.dry_run = true;
  expect_contains(refusal(options), "a dry run makes no step");
  options.dry_run = false;
  options.trace = -1;
  expect_contains(refusal(options), "--trace -1");
}

}  // namespace
}  // namespace heddle
