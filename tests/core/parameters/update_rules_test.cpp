#include <gmock/gmock.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/parameters/update_rules.hpp>

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(UpdateRules, AStarStandsForAnyText) {
  EXPECT_TRUE(matches_pattern("encoder.*", "encoder.layers.0.norm.weight"));
  EXPECT_TRUE(matches_pattern("*.norm.*", "encoder.layers.0.norm.weight"));
  EXPECT_TRUE(matches_pattern("*", ""));
  EXPECT_TRUE(matches_pattern("a*a", "aa"));
  EXPECT_TRUE(matches_pattern("*ab*ab", "abxab"));
  EXPECT_TRUE(matches_pattern("a**b", "axb"));
  EXPECT_TRUE(matches_pattern("plain", "plain"));
  EXPECT_FALSE(matches_pattern("plain", "plainer"));
  EXPECT_FALSE(matches_pattern("a*a", "a"));
  EXPECT_FALSE(matches_pattern("*ab*ab", "ab"));
  EXPECT_FALSE(matches_pattern("encoder.*", "decoder.layers.0"));
  EXPECT_FALSE(matches_pattern("*.norm.*", "encoder.norm"));
}

ParameterGroup group(std::string const& name, std::vector<std::string> const& parameters, UpdateRule const& rule,
                     std::string const& origin) {
  std::string const section = "optimizer.group." + name;
  KeyPlaces places{.section = section};
  for (std::string const key : {"parameters", "frozen"}) {
    places.by_key[key] = origin + ": " + section + "." + key;
  }
  return {name, parameters, rule, places};
}

OptimizerConfig with_groups() {
  OptimizerConfig config;
  config.weight_decay = 0.5;
  config.groups = {group("slow", {"a.*", "*.x"}, {.learning_rate_factor = 0.1}, "run.toml:3:1"),
                   group("still", {"b.y", "c"}, {.frozen = true}, "run.toml:7:1")};
  return config;
}

TEST(UpdateRules, AreThoseOfTheGroupOrOfAll) {
  OptimizerConfig config = with_groups();
  EXPECT_EQ(update_rule(config, "a.x"), config.groups[0].rule);
  EXPECT_EQ(update_rule(config, "b.x"), config.groups[0].rule);
  EXPECT_EQ(update_rule(config, "c"), config.groups[1].rule);
  EXPECT_EQ(update_rule(config, "d"), (UpdateRule{.weight_decay = 0.5}));
  config.groups[1].parameters.emplace_back("b.*");
  EXPECT_THAT([&] { update_rule(config, "b.x"); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("run.toml:7:1: optimizer.group.still.parameters has the "
                                                         "parameter b.x, which optimizer.group.slow has, too"),
                                               HasSubstr("run.toml:3:1"))));
}

TEST(UpdateRules, APatternThatMatchesNothingIsRefusedWithItsPlace) {
  OptimizerConfig const config = with_groups();
  EXPECT_NO_THROW(require_patterns_match(config, {"a.b", "b.x", "b.y", "c", "d"}));
  EXPECT_THAT(
      [&] {
        require_patterns_match(config, {"a.b", "b.x", "b.y", "d"});
      },
      ThrowsMessage<ConfigError>(HasSubstr("run.toml:7:1: optimizer.group.still.parameters has the pattern "
                                           "\"c\", which no parameter's name matches; names are a.b, b.x, b.y, …")));
}

TEST(UpdateRules, NeighboursThatAreUpdatedAlikeAreOneRange) {
  ParameterSet parameters{Mesh()};
  for (char const* const name : {"d", "e", "a.1", "a.2", "c", "f"}) {
    parameters.declare({name, {5}, Initializer::zeros(), {}, {}});
  }
  parameters.allocate(DType::float32);
  std::vector<RuledRange> const alike = ruled_ranges(assign_rules(OptimizerConfig(), parameters));
  ASSERT_EQ(alike.size(), 1U);
  EXPECT_EQ(alike[0].range, (IndexRange{0, parameters.size()}));
  std::vector<RuledRange> const ranges = ruled_ranges(assign_rules(with_groups(), parameters));
  ASSERT_EQ(ranges.size(), 4U);
  EXPECT_EQ(ranges[0].range, (IndexRange{0, 32}));
  EXPECT_EQ(ranges[1].range, (IndexRange{32, 64}));
  EXPECT_EQ(ranges[1].rule.learning_rate_factor, 0.1);
  EXPECT_EQ(ranges[2].range, (IndexRange{64, 80}));
  EXPECT_TRUE(ranges[2].rule.frozen);
  EXPECT_EQ(ranges[3].range, (IndexRange{80, parameters.size()}));
}

TEST(UpdateRules, AModelOfWhichNothingIsTrainedIsRefused) {
  OptimizerConfig config;
  EXPECT_NO_THROW(require_some_trained(config, {"a.x", "b.y"}));
  config.groups = {group("still", {"b.*"}, {.frozen = true}, "run.toml:7:1")};
  EXPECT_NO_THROW(require_some_trained(config, {"a.x", "b.y"}));
  config.groups.push_back(group("other", {"a.*"}, {.frozen = true}, "run.toml:9:1"));
  EXPECT_THAT(
      [&] {
        require_some_trained(config, {"a.x", "b.y"});
      },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("run.toml:7:1: optimizer.group.still.frozen and run.toml:9:1: "
                                                 "optimizer.group.other.frozen = true"),
                                       HasSubstr("every parameter of the model is frozen"))));
}

}  // namespace
}  // namespace heddle
