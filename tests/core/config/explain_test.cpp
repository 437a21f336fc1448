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
  EXPECT_THAT(explain_config("model.decoder"), StartsWith("# Stacks may differ"));
  EXPECT_THAT(explain_config("model.decoder.activation"), HasSubstr("activation = "));
  EXPECT_THAT(explain_config("model.encoder.layer.4-6.d_ff"), HasSubstr("d_ff = "));
  EXPECT_THAT(explain_config("model.decoder.layer.4-6.self_attention.window"),
              HasSubstr("`heddle kernels` lists them"));
  EXPECT_THAT(explain_config("optimizer.group"), HasSubstr("[optimizer.group"));
  auto const refusal = [](char const* name) {
    try {
      explain_config(name);
    } catch (UsageError const& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("train.stepz"), HasSubstr("did you mean train.steps?"));
  EXPECT_THAT(refusal("model.decoder.activatoin"), HasSubstr("there is no key or section"));
  EXPECT_THAT(refusal("keep"), HasSubstr("did you mean checkpoint.keep?"));
}

}  // namespace
}  // namespace heddle
