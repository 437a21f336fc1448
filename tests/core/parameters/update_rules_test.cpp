#include <heddle/core/config/config.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/parameters/update_rules.hpp>

#include "test.hpp"

namespace heddle {
namespace {

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
  KeyLocations places{.section = section};
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
  config.options["beta1"] = {0.5, "run.toml:2:1"};
  config.groups[1].rule.options["beta1"] = {0.25, "run.toml:8:1"};
  UpdateRule const slow{.name = "adam", .options = config.options, .learning_rate_factor = 0.1};
  UpdateRule const still{.name = "adam", .options = config.groups[1].rule.options, .frozen = true};
  EXPECT_EQ(update_rule(config, "a.x"), slow);
  EXPECT_EQ(update_rule(config, "b.x"), slow);
  EXPECT_EQ(update_rule(config, "c"), still) << "with its own options";
  EXPECT_EQ(update_rule(config, "d"), (UpdateRule{.name = "adam", .options = config.options, .weight_decay = 0.5}));
  config.trained = {"*.lora"};
  EXPECT_FALSE(update_rule(config, "d.lora").frozen);
  EXPECT_TRUE(update_rule(config, "d").frozen) << "in no group, and not among those that are trained";
  EXPECT_EQ(update_rule(config, "a.x"), slow) << "a group's own rule counts";
  config.groups[0].rule.zero_last_row = true;
  EXPECT_TRUE(update_rule(config, "a.x").frozen) << "a group that keeps rows at zero does not decide";
  config.groups[0].rule.zero_last_row = false;
  config.groups[0].rule.name = "sgd";
  EXPECT_EQ(update_rule(config, "a.x"), (UpdateRule{.name = "sgd", .learning_rate_factor = 0.1}))
      << "another rule has none of Adam's options";
  config.groups[1].parameters.emplace_back("b.*");
  expect_config_error([&] { update_rule(config, "b.x"); }, {"run.toml:7:1: optimizer.group.still.parameters has the "
                                                            "parameter b.x, which optimizer.group.slow has, too",
                                                            "run.toml:3:1"});
}

// Which options a rule has is known when the rules are.
TEST(UpdateRules, OptionsAreKeptWithTheirPlaces) {
  std::string const text =
      "[optimizer]\nname = \"lion\"\nbeta2 = 0.5\n[optimizer.group.a]\nparameters = [\"x\"]\n"
      "name = \"sgd\"\nnesterov = true";
  Config const config = parse_config(text, "run.toml");
  EXPECT_EQ(config.optimizer.name, "lion");
  EXPECT_EQ(config.optimizer.places.of("name"), "run.toml:2:1: optimizer.name");
  EXPECT_EQ(config.optimizer.options.at("beta2").origin, "run.toml:3:1");
  UpdateRule const& rule = config.optimizer.groups[0].rule;
  EXPECT_EQ(rule.name, "sgd");
  EXPECT_EQ(rule.options.at("nesterov").key, "optimizer.group.a.nesterov");
  EXPECT_EQ(parse_config(to_toml(config), "printed"), config);
}

TEST(UpdateRules, TheFormerNameOfAnOperationIsRead) {
  EXPECT_EQ(parse_config("[kernels]\nadam = \"kokkos\"", "run.toml").kernels.of("update"), "kokkos");
}

TEST(UpdateRules, APatternThatMatchesNothingIsRefusedWithItsPlace) {
  OptimizerConfig const config = with_groups();
  EXPECT_NO_THROW(require_patterns_match(config, {"a.b", "b.x", "b.y", "c", "d"}));
  expect_config_error(
      [&] {
        require_patterns_match(config, {"a.b", "b.x", "b.y", "d"});
      },
      "run.toml:7:1: optimizer.group.still.parameters has the pattern "
      "\"c\", which no parameter's name matches; names are a.b, b.x, b.y, …");
}

/// ELECTRA's factors (Clark et al. 2020), with the last layer instead of the task's as the one that keeps its rate.
TEST(UpdateRules, LayersBelowTheLastHaveSmallerFactors) {
  Config const config = parse_config(
      "[model]\nencoder_layers = 6\ndecoder_layers = 2\n[optimizer]\nlayer_decay = 0.5\n"
      "[optimizer.group.slow]\nparameters = [\"encoder.layers.3.*\"]\nlearning_rate_factor = 0.1\n",
      "run.toml");
  auto const factor = [&](std::string const& name) { return update_rule(config.optimizer, name).learning_rate_factor; };
  EXPECT_EQ(factor("encoder.layers.5.norm.weight"), 1);
  EXPECT_EQ(factor("encoder.layers.4.norm.weight"), 0.5);
  EXPECT_EQ(factor("encoder.layers.0.self_attention.q.weight"), 0.03125);
  EXPECT_EQ(factor("encoder.layers.3.feed_forward.up.weight"), 0.1 * 0.25) << "of its group's factor";
  EXPECT_EQ(factor("encoder.embedding.weight"), 0.015625);
  EXPECT_EQ(factor("encoder.positions.weight"), 0.015625);
  EXPECT_EQ(factor("encoder.norm.weight"), 1);
  EXPECT_EQ(factor("decoder.layers.1.cross_attention.q.weight"), 1);
  EXPECT_EQ(factor("decoder.layers.0.cross_attention.q.weight"), 0.5);
  EXPECT_EQ(factor("decoder.embedding.weight"), 0.25);
  EXPECT_EQ(factor("embedding.weight"), 0.015625) << "of the highest stack";
  EXPECT_EQ(factor("output.weight"), 1);
  EXPECT_EQ(factor("output.bias"), 1);
  EXPECT_THROW(parse_config("[optimizer]\nlayer_decay = 0.0\n", "run.toml"), ConfigError);
  EXPECT_THROW(parse_config("[optimizer]\nlayer_decay = 1.1\n", "run.toml"), ConfigError);
}

TEST(UpdateRules, AWiderModelHasTheRatesOfItsBase) {
  Config const config = parse_config(
      "[model]\nd_model = 256\nheads = 4\n[model.decoder]\nd_model = 1024\n[optimizer]\nbase_width = 64\n"
      "[optimizer.group.slow]\nparameters = [\"encoder.layers.3.*\"]\nlearning_rate_factor = 0.1\n",
      "run.toml");
  TestBench bench(config.model, DType::float64);
  auto const factor = [&](std::string const& name, bool is_matrix, std::string const& rule = "adam") {
    OptimizerConfig optimizer = config.optimizer;
    optimizer.name = rule;
    return assigned_rule(optimizer, bench.kernels().registries, name, is_matrix).learning_rate_factor;
  };
  EXPECT_EQ(factor("encoder.layers.0.self_attention.q.weight", true), 0.25);
  EXPECT_EQ(factor("encoder.layers.0.self_attention.q.weight", true, "muon"), 0.5);
  EXPECT_EQ(factor("encoder.layers.3.self_attention.q.weight", true), 0.1 * 0.25) << "of its group's factor";
  EXPECT_EQ(factor("decoder.layers.0.feed_forward.up.weight", true), 0.0625);
  EXPECT_EQ(factor("encoder.layers.0.mixture_of_experts.up.weight", false), 0.25);
  EXPECT_EQ(factor("encoder.layers.0.mixture_of_experts.up.weight", false, "muon"), 0.25) << "of the rest's rule";
  EXPECT_EQ(factor("encoder.layers.0.mixture_of_experts.norm.weight", false), 1);
  EXPECT_EQ(factor("encoder.layers.0.norm.weight", false), 1);
  EXPECT_EQ(factor("encoder.layers.0.self_attention.q.bias", false, "muon"), 1);
  EXPECT_EQ(factor("encoder.embedding.weight", false), 0.5);
  EXPECT_EQ(factor("decoder.embedding.weight", false, "muon"), 0.0625) << "of the rest's rule";
  EXPECT_EQ(factor("output.weight", false), 0.0625) << "of the widest stack";
  EXPECT_EQ(factor("output.bias", false), 1);
}

TEST(UpdateRules, AGroupIsFrozenUpToAStepOrForGood) {
  auto const parsed = [](std::string const& keys) {
    return parse_config("[train]\nsteps = 100\n[optimizer.group.low]\nparameters = [\"encoder.*\"]\n" + keys,
                        "run.toml");
  };
  EXPECT_EQ(update_rule(parsed("unfreeze_at = 40\n").optimizer, "encoder.x").frozen_until, 40);
  expect_config_error([&] { parsed("unfreeze_at = 40\nfrozen = true\n"); }, "optimizer.group.low.unfreeze_at");
  EXPECT_THAT(warnings_about(parsed("unfreeze_at = 100\n")), Contains(HasSubstr("never trains the group")));
  EXPECT_THAT(warnings_about(parsed("unfreeze_at = 99\n")), Not(Contains(HasSubstr("never trains"))));
}

TEST(UpdateRules, AModelKnowsWhichParametersNoStepChanges) {
  std::string const groups =
      "[optimizer.group.still]\nparameters = [\"encoder.*\"]\nfrozen = true\n"
      "[optimizer.group.slow]\nparameters = [\"decoder.norm.*\"]\nlearning_rate_factor = 0.1\n"
      "[optimizer.group.late]\nparameters = [\"output.*\"]\nunfreeze_at = 3\n";
  for (std::string const adapter : {"", "[adapter]\nrank = 2\n"}) {
    Config const config = parse_config(adapter + groups, "run.toml");
    int frozen = 0;
    for (char const* const name : {"encoder.x.weight", "decoder.norm.weight", "decoder.x.q.weight", "output.weight",
                                   "embedding.weight", "decoder.x.q.lora_a", "encoder.x.q.lora_b"}) {
      EXPECT_EQ(is_frozen(config.model.frozen, name), update_rule(config.optimizer, name).frozen) << adapter << name;
      frozen += is_frozen(config.model.frozen, name) ? 1 : 0;
    }
    EXPECT_EQ(frozen, adapter.empty() ? 2 : 4);
  }
  EXPECT_FALSE(parse_config(groups, "run.toml").model.frozen.rounded);
  EXPECT_TRUE(parse_config("[train]\nfrozen_precision = \"bfloat16\"\n", "run.toml").model.frozen.rounded);
}

TEST(UpdateRules, AValueInBfloat16CannotBeTrained) {
  ParameterSet parameters{Mesh()};
  ParameterSpec spec{"a", {{5}}, Initializer::zeros()};
  spec.rounded = true;
  parameters.declare(spec);
  EXPECT_THROW(assign_rules({}, KernelRegistries(), parameters), Error);
}

TEST(UpdateRules, AParameterThatBalancesHasNoGradient) {
  KernelRegistries const registries;
  ParameterSet set{Mesh()};
  Parameter const& bias =
      set.declare({.name = "bias", .placement = {{4}}, .initializer = Initializer::zeros(), .balances = true});
  Parameter const& weight = set.declare({"weight", {{4}}, Initializer::zeros()});
  assign_rules({}, registries, set);
  set.allocate(DType::float32);
  EXPECT_TRUE(bias.frozen());
  EXPECT_TRUE(bias.gradient.empty());
  EXPECT_FALSE(weight.gradient.empty());
}

TEST(UpdateRules, AParameterThatWaitsHasAPlaceButNoGradient) {
  OptimizerConfig config;
  config.groups = {{"late", {"b.*", "q", "k"}, {.frozen_until = 3}}, {"still", {"v"}, {.frozen = true}}};
  KernelRegistries const registries;
  ParameterSet parameters{Mesh()};
  for (char const* const name : {"a", "b.1"}) {
    parameters.declare({name, {{5}}, Initializer::zeros()});
  }
  ParameterBlock const& block =
      parameters.declare_block({{"q", {{2, 5}}, Initializer::zeros()}, {"v", {{2, 5}}, Initializer::zeros()}});
  assign_rules(config, registries, parameters);
  parameters.allocate(DType::float32);
  Parameter const& late = *parameters.find("b.1");
  auto const expect_waiting = [&](bool waits) {
    EXPECT_EQ(late.frozen(), waits);
    EXPECT_EQ(late.gradient.empty(), waits);
    EXPECT_EQ(late.state.empty(), waits);
    EXPECT_EQ(block.gradient.empty(), waits);
    EXPECT_EQ(parameters.find("q")->gradient.empty(), waits);
    EXPECT_EQ(parameters.trained().size(), 4U) << "they have places in any case";
    EXPECT_FALSE(parameters.find("a")->gradient.empty());
  };
  expect_waiting(true);
  unfreeze(parameters, registries, 2);
  expect_waiting(true);
  unfreeze(parameters, registries, 3);
  expect_waiting(false);
  EXPECT_EQ(late.state_begin, 3);
  EXPECT_EQ(parameters.find("a")->state_begin, 0);
  unfreeze(parameters, registries, 9);
  EXPECT_EQ(late.state_begin, 3);
  unfreeze(parameters, registries, 1);
  expect_waiting(true);
}

TEST(UpdateRules, NeighboursThatAreUpdatedAlikeAreOneRange) {
  ParameterSet parameters{Mesh()};
  for (char const* const name : {"d", "e", "a.1", "a.2", "c", "f"}) {
    parameters.declare({name, {{5}}, Initializer::zeros()});
  }
  parameters.allocate(DType::float32);
  assign_rules(OptimizerConfig(), KernelRegistries(), parameters);
  std::vector<RuleRange> const alike = rule_ranges(parameters);
  ASSERT_EQ(alike.size(), 1U);
  EXPECT_EQ(alike[0].range, (IndexRange{0, parameters.size()}));
  assign_rules(with_groups(), KernelRegistries(), parameters);
  std::vector<RuleRange> const ranges = rule_ranges(parameters);
  ASSERT_EQ(ranges.size(), 4U);
  EXPECT_EQ(ranges[0].range, (IndexRange{0, 32}));
  EXPECT_EQ(ranges[1].range, (IndexRange{32, 64}));
  EXPECT_EQ(ranges[1].first->rule.learning_rate_factor, 0.1);
  EXPECT_EQ(ranges[2].range, (IndexRange{64, 80}));
  EXPECT_TRUE(ranges[2].first->rule.frozen);
  EXPECT_EQ(ranges[3].range, (IndexRange{80, parameters.size()}));
  parameters.find("a.2")->state_begin = 9;
  ASSERT_EQ(rule_ranges(parameters).size(), 5U);
  EXPECT_EQ(rule_ranges(parameters)[2].range, (IndexRange{48, 64}));
  assign_rules(with_groups(), KernelRegistries(), parameters);
  EXPECT_EQ(rule_ranges(parameters).size(), 4U) << "rules that are assigned again begin again";
}

TEST(UpdateRules, AParameterThatIsUpdatedWholeIsARangeOfItsOwn) {
  ParameterSet parameters{Mesh()};
  for (char const* const name : {"d", "e", "f"}) {
    parameters.declare({name, {{5}}, Initializer::zeros()});
  }
  assign_rules(OptimizerConfig(), KernelRegistries(), parameters);
  parameters.all()[1].spec.placement.owner = Placement::Owner::single;
  parameters.allocate(DType::float32);
  EXPECT_EQ(rule_ranges(parameters).size(), 3U);
}

TEST(UpdateRules, AModelOfWhichNothingIsTrainedIsRefused) {
  OptimizerConfig config;
  EXPECT_NO_THROW(require_some_trained(config, {"a.x", "b.y"}));
  config.groups = {group("still", {"b.*"}, {.frozen = true}, "run.toml:7:1")};
  EXPECT_NO_THROW(require_some_trained(config, {"a.x", "b.y"}));
  config.groups.push_back(group("other", {"a.*"}, {.frozen = true}, "run.toml:9:1"));
  expect_config_error(
      [&] {
        require_some_trained(config, {"a.x", "b.y"});
      },
      {"run.toml:7:1: optimizer.group.still.frozen = true and run.toml:9:1: "
       "optimizer.group.other.frozen = true",
       "every parameter of the model is frozen"});
}

}  // namespace
}  // namespace heddle
