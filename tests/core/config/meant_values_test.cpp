#include <gmock/gmock.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::Not;

/// The error message for `text` with `overrides`.
std::string refusal(std::string const& text, std::vector<std::string> const& overrides = {}) {
  try {
    static_cast<void>(parse_config(text, "run.toml", overrides));
  } catch (ConfigError const& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Config, WholeNumbersMayBeWrittenWithAnExponent) {
  Config const config =
      parse_config("[train]\nsteps = 1e6\nseed = 2e3\n[model.decoder]\nself_attention = { kv_heads = 2.0 }", "run.toml",
                   {"train.batch_tokens=2.5e5", "parallel.tensor=2e0"});
  EXPECT_EQ(config.train.steps, 1000000);
  EXPECT_EQ(config.train.seed, 2000U);
  EXPECT_EQ(config.train.batch_tokens, 250000);
  EXPECT_EQ(config.parallel.tensor, 2);
  EXPECT_EQ(layer_options(config.model.decoder, "decoder", 0, "self_attention").integer("kv_heads", 1), 2);
  EXPECT_THAT(refusal("[train]\nsteps = 1e10"), HasSubstr("expected an integer, 1 to 2147483647"));
  EXPECT_THAT(refusal("[train]\nsteps = 1e300"), HasSubstr("expected an integer, 1 to 2147483647"));
  EXPECT_THAT(refusal("[train]\nsteps = 1.5e0"), HasSubstr("is the number 1.5; expected an integer"));
  EXPECT_THAT(refusal("[train]\nsteps = inf"), HasSubstr("expected an integer"));
}

TEST(Config, ANameThatIsProbablyMeantIsSaid) {
  EXPECT_EQ(refusal("[train]\nprecision = \"bf16\""),
            "run.toml:2:1: train.precision is the text \"bf16\"; expected \"float32\" or \"bfloat16\"; did you mean "
            "\"bfloat16\"?");
  EXPECT_THAT(refusal("[train]\nprecision = \"fp32\""), HasSubstr("did you mean \"float32\"?"));
  EXPECT_THAT(refusal("", {"model.norm=Pre"}), HasSubstr("did you mean \"pre\"?"));
  EXPECT_THAT(refusal("[model.decoder]\nrecompute = \"Layer\""), HasSubstr("did you mean \"layer\"?"));
  EXPECT_THAT(refusal("[optimizer]\nname = \"lamb\""), Not(HasSubstr("did you mean")));
}

}  // namespace
}  // namespace heddle
