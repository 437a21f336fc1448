#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/library.hpp>
#include <heddle/core/plugins/loading.hpp>
#include <heddle/core/tensor/runtime.hpp>

#include "temporary_directory.hpp"

// tests/integration/plugin.sh builds and tries plug-ins that load, and libraries that are not valid plug-ins.

namespace heddle {
namespace {

using testing::HasSubstr;

std::string refusal(std::string const& path) {
  return test::message_of<ConfigError>([&] {
    Registries registries;
    load_plugin(path, registries);
  });
}

TEST(Plugin, TheTagNamesWhatHasToBeTheSame) {
  EXPECT_THAT(abi_tag(), HasSubstr("heddle 0."));
  EXPECT_THAT(abi_tag(), HasSubstr("Kokkos "));
  EXPECT_THAT(abi_tag(), HasSubstr(Runtime::execution_space()));
}

TEST(Plugin, AMissingFileIsNamed) {
  EXPECT_EQ(refusal("/nonexistent/kernels.so"),
            "plug-in /nonexistent/kernels.so: does not exist; expected a shared library");
  EXPECT_THAT(refusal("/tmp"), HasSubstr("/tmp: is a directory; expected a shared library"));
  EXPECT_THAT(refusal(""), HasSubstr("does not exist"));
}

TEST(Plugin, AFileThatIsNoLibraryIsNamed) {
  test::TemporaryDirectory const directory;
  std::string const path = directory.write("text.so", "not a library\n");
  EXPECT_THAT(refusal(path), HasSubstr("plug-in " + path + ": cannot be loaded; expected a shared library"));
}

}  // namespace
}  // namespace heddle
