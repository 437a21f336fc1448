#include <heddle/core/config/config.hpp>

#include "test.hpp"

namespace heddle {
namespace {

TEST(ConfigDifferences, AKeyThatIsSetToTheValueThatItInheritsIsNoDifference) {
  Config const plain = parse_config("[model]\nd_ff = 48\n[model.decoder]\nlayers = 2\nheads = 2", "run.toml");
  Config const set = parse_config(
      "[model]\nd_ff = 48\n[model.encoder]\nd_ff = 48\n[model.decoder]\nlayers = 2\nheads = 2\nd_ff = 48\n"
      "[model.decoder.layer.2]\nd_ff = 48\nheads = 2\nself_attention = { window = 8 }",
      "run.toml");
  for (bool const forth : {true, false}) {
    auto const found = forth ? differences(plain, set) : differences(set, plain);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].key, "model.decoder.layer.2.self_attention.window");
    EXPECT_EQ(forth ? found[0].before + found[0].after : found[0].after + found[0].before, "(not set)8");
  }
}

}  // namespace
}  // namespace heddle
