#include <gmock/gmock.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/config/explain.hpp>

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(ExplainConfig, KeysAndSectionsAreExplained) {
  EXPECT_THAT(explain_config("train.steps"), HasSubstr("optimizer updates"));
  EXPECT_THAT(explain_config("train.steps"), Not(HasSubstr("seed")));
  EXPECT_THAT(explain_config("checkpoint"), StartsWith("[checkpoint]"));
  EXPECT_THAT(explain_config("model"), HasSubstr("[model.decoder]"));
  auto const refusal = [](char const* name) {
    try {
      explain_config(name);
    } catch (UsageError const& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("train.stepz"), HasSubstr("did you mean train.steps?"));
  EXPECT_THAT(refusal("keep"), HasSubstr("did you mean checkpoint.keep?"));
}

}  // namespace
}  // namespace heddle
