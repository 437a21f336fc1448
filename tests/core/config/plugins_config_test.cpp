#include <gmock/gmock.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

using testing::HasSubstr;

std::string refusal(std::string const& text) {
  return test::message_of<ConfigError>([&] { parse_config(text, "run.toml"); });
}

TEST(PluginsConfig, EachPathHasADigestOrNoneHas) {
  std::string const digest(64, 'e');
  Config const config =
      parse_config("[plugins]\npaths = [\"a.so\", \"b.so\"]\nsha256 = [\"\", \"" + digest + "\"]", "");
  EXPECT_EQ(config.plugins.sha256, (std::vector<std::string>{"", digest}));
  EXPECT_EQ(refusal("[plugins]\npaths = [\"a.so\", \"b.so\"]\nsha256 = [\"\"]"),
            "run.toml:3:1: plugins.sha256 has 1 digests for 2 plugins.paths; expected one for each, \"\" for any file");
  EXPECT_THAT(refusal("[plugins]\npaths = [\"a.so\"]\nsha256 = [\"E3B0\"]"),
              HasSubstr("run.toml:3:1: plugins.sha256 has \"E3B0\"; expected 64 hexadecimal digits in lower case"));
}

}  // namespace
}  // namespace heddle
