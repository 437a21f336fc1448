#include <heddle/core/base/library.hpp>
#include <heddle/core/plugins/loading.hpp>
#include <heddle/core/tensor/runtime.hpp>

#include "test.hpp"

// tests/integration/plugin.sh builds and tries plug-ins that load, and libraries that are not valid plug-ins.

namespace heddle {
namespace {

std::string refusal(std::string const& path) {
  return message_of<ConfigError>([&] {
    Registries registries;
    load_plugin(path, registries);
  });
}

TEST(Plugin, TheTagNamesWhatHasToBeTheSame) {
  expect_contains(abi_tag(), {"heddle 0.", "Kokkos ", Runtime::execution_space()});
}

TEST(Plugin, AMissingFileIsNamed) {
  EXPECT_EQ(refusal("/nonexistent/kernels.so"),
            "plug-in /nonexistent/kernels.so: does not exist; expected a shared library");
  expect_contains(refusal("/tmp"), "/tmp: is a directory; expected a shared library");
  expect_contains(refusal(""), "does not exist");
}

TEST(Plugin, AFileThatIsNoLibraryIsNamed) {
  TemporaryDirectory const directory;
  std::string const path = directory.write("text.so", "not a library\n");
  expect_contains(refusal(path), "plug-in " + path + ": cannot be loaded; expected a shared library");
}

}  // namespace
}  // namespace heddle
