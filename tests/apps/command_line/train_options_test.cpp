#include "command_line/train_options.hpp"

#include <gmock/gmock.h>

#include <heddle/core/base/error.hpp>

namespace heddle {
namespace {

using testing::ElementsAre;

TEST(ArgumentsToGoOn, LeaveOutWhatIsToHappenOnce) {
  TrainOptions options;
  options.config = "run.toml";
  options.overrides = {"train.steps=9"};
  options.plugins = {"odd.so"};
  options.resume_from = 3;
  options.trace = 2;
  options.new_data = true;
  EXPECT_THAT(arguments_to_go_on(options, "run"),
              ElementsAre("run.toml", "--set", "train.steps=9", "--plugin", "odd.so", "--new-data"));
}

TEST(ArgumentsToGoOn, NameTheDirectoryOfAFreshStart) {
  TrainOptions options;
  options.config = "run.toml";
  options.fresh = true;
  EXPECT_THAT(arguments_to_go_on(options, "run-2"), ElementsAre("run.toml", "--set", "run.directory=run-2"));
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

}  // namespace
}  // namespace heddle
