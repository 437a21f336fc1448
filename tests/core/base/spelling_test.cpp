#include <gtest/gtest.h>

#include <heddle/core/base/spelling.hpp>

namespace heddle {
namespace {

TEST(Spelling, NearestIsNearOrNothing) {
  std::vector<std::string> const words{"steps", "seed", "precision"};
  EXPECT_EQ(nearest_spelling("step", words), "steps");
  EXPECT_EQ(nearest_spelling("percision", words), "precision");
  EXPECT_EQ(nearest_spelling("wavelength", words), "");
}

}  // namespace
}  // namespace heddle
