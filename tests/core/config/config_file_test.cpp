#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

using test::message_of;
using test::TemporaryDirectory;
using testing::HasSubstr;

std::string refusal(std::string const& path) {
  return message_of<ConfigError>([&] { load_config(path); });
}

TEST(ConfigFile, ThoseThatCannotBeReadAreNamed) {
  EXPECT_THAT(refusal("/nonexistent/run.toml"), HasSubstr("/nonexistent/run.toml: cannot be read: No such file"));
  EXPECT_THAT(refusal("/tmp"), HasSubstr("it is no regular file"));
  EXPECT_THAT(refusal("/dev/zero"), HasSubstr("/dev/zero: cannot be read: it is no regular file"));
}

TEST(ConfigFile, LargeOnesAreNotRead) {
  TemporaryDirectory const directory;
  auto const path = directory.write("large.toml", "");
  std::filesystem::resize_file(path, (std::uintmax_t{16} << 20) + 1);
  EXPECT_THAT(refusal(path), HasSubstr("it is larger than 16 MiB"));
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(load_config(path), Config());
}

TEST(Config, TheTrainingDatasetIsOneFileOrSeveral) {
  EXPECT_EQ(parse_config("[data]\ntrain = \"a.h5\"\n", "x").data.train, std::vector<std::string>{"a.h5"});
  Config const two = parse_config("[data]\ntrain = [\"a.h5\", \"b.h5\"]\n", "x");
  EXPECT_EQ(two.data.train, (std::vector<std::string>{"a.h5", "b.h5"}));
  EXPECT_EQ(parse_config(to_toml(two), "x"), two);
  EXPECT_NE(to_toml(two).find("train = [\"a.h5\", \"b.h5\"]"), std::string::npos);
  EXPECT_TRUE(parse_config("[data]\ntrain = \"\"\n", "x").data.train.empty());
  for (char const* const wrong : {"[]", "[\"\"]", "3"}) {
    EXPECT_THROW(parse_config(std::string("[data]\ntrain = ") + wrong + "\n", "x"), ConfigError) << wrong;
  }
}

}  // namespace
}  // namespace heddle
