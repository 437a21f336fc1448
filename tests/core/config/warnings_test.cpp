#include <gmock/gmock.h>

#include <heddle/core/config/warnings.hpp>

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

TEST(Warnings, AreGivenForAWarmUpThatIsMissingOrLongerThanTheRun) {
  Config config;
  config.train.steps = 1000;
  config.optimizer.warmup_steps = 1000;
  EXPECT_THAT(warnings_about(config), IsEmpty());
  config.optimizer.warmup_steps = 4000;
  EXPECT_THAT(warnings_about(config),
              ElementsAre(StartsWith("optimizer.warmup_steps = 4000 is longer than the run, train.steps = 1000: the "
                                     "learning rate grows up to the end and reaches only 0.25 of")));
  config.optimizer.warmup_steps = 0;
  EXPECT_THAT(warnings_about(config), ElementsAre(StartsWith("optimizer.warmup_steps = 0: ")));
}

}  // namespace
}  // namespace heddle
