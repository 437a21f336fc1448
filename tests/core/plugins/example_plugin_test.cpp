#include <cstdlib>
#include <heddle/core/plugins/loading.hpp>

#include "test.hpp"

// tests/integration/plugin.sh builds apps/examples/plugins/operation out of tree, against the installed package, and
// then runs this test with HEDDLE_EXAMPLE_PLUGIN set to its path.

namespace heddle {
namespace {

TEST(ExamplePlugin, IsRegisteredWholeOrNotAtAll) {
  char const* const path = std::getenv("HEDDLE_EXAMPLE_PLUGIN");
  if (path == nullptr) {
    GTEST_SKIP() << "integration.plugin runs this with the plug-in that it has built";
  }
  Registries registries;
  registries.layers.add("hadamard_layer", [](LayerSpec const&) { return std::unique_ptr<Layer>(); });
  EXPECT_THROW(load_plugin(path, registries), ConfigError);
  EXPECT_EQ(registries.kernels.registry("hadamard"), nullptr)
      << "the operation came before the layer whose name is taken";
  EXPECT_EQ(registries.layers.entries().size(), 1U);
  registries.layers.add("later", [](LayerSpec const&) { return std::unique_ptr<Layer>(); });
  EXPECT_EQ(registries.layers.entries().back().origin, "built-in");
}

}  // namespace
}  // namespace heddle
