#include <heddle/core/base/spelling.hpp>

#include "test.hpp"

namespace heddle {
namespace {

TEST(Spelling, NearestIsNearOrNothing) {
  std::vector<std::string> const words{"steps", "seed", "precision"};
  EXPECT_EQ(nearest_spelling("step", words), "steps");
  EXPECT_EQ(nearest_spelling("percision", words), "precision");
  EXPECT_EQ(nearest_spelling("wavelength", words), "");
}

TEST(Spelling, CapitalsOtherNamesAndBeginningsAreUnderstood) {
  EXPECT_EQ(nearest_spelling("GELU", {"relu", "gelu", "gelu_tanh", "silu"}), "gelu");
  EXPECT_EQ(nearest_spelling("Swish", {"relu", "gelu", "silu"}), "silu");
  EXPECT_EQ(nearest_spelling("bf16", {"float32", "bfloat16"}), "bfloat16");
  EXPECT_EQ(nearest_spelling("FP32", {"float32", "bfloat16"}), "float32");
  EXPECT_EQ(nearest_spelling("bf16", {"adam", "adamw"}), "") << "it is another name of none of these";
  EXPECT_EQ(nearest_spelling("eval", {"plan", "train", "evaluate"}), "evaluate");
  EXPECT_EQ(nearest_spelling("valid", {"validate_every", "validate_bleu", "data"}), "") << "it begins two";
}

TEST(Spelling, WithoutCandidatesOnlyTheOthersAreExpected) {
  EXPECT_EQ(nearest_or_all("x y", {"steps"}, "any name"), "expected one of: steps, or any name");
  EXPECT_EQ(nearest_or_all("x y", {}, "any name"), "expected any name");
}

}  // namespace
}  // namespace heddle
