#include <gtest/gtest.h>

#include <filesystem>
#include <heddle/core/base/paths.hpp>

namespace heddle {
namespace {

TEST(Paths, ARelativeOneIsSaidToBeRelativeToTheWorkingDirectory) {
  EXPECT_EQ(relative_to("data/train.h5"), " (relative to " + std::filesystem::current_path().string() + ")");
  EXPECT_EQ(relative_to("/data/train.h5"), "");
}

}  // namespace
}  // namespace heddle
