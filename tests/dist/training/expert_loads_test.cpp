#include <cmath>
#include <map>

#include "dist_fixture.hpp"
#include "kernel_test_support.hpp"
#include "layout_run.hpp"

namespace heddle {
namespace {

constexpr int loaded_steps = 3;

using Loads = std::map<std::string, ExpertLoad>;

/// Mixtures in both stacks, of which one drops choices where no context group divides a micro-batch.
Variant variant_for(Layout const& layout, double rate, std::string const& train = "", std::string const& more = "") {
  std::string const capacity = layout.size(MeshAxis::context) == 1 ? ", capacity_factor = 0.6" : "";
  return {NormPlacement::pre, true,
          fmt::format("[model.encoder.layer.2]\nsublayers = [\"self_attention\", \"mixture_of_experts\"]\n"
                      "mixture_of_experts = {{ experts = 4, balance_bias_rate = {0:.3f}{1} }}\n"
                      "[model.decoder.layer.\"3-4\"]\nsublayers = [\"self_attention\", \"cross_attention\", "
                      "\"mixture_of_experts\"]\nmixture_of_experts = {{ experts = 3, experts_per_token = 1, "
                      "balance_bias_rate = {0:.3f} }}\n[train]\ndeterministic = {2}\n{3}",
                      rate, capacity, train.empty() ? "false" : train, more)};
}

struct Trained {
  std::vector<StepResult> results;
  std::map<std::string, std::vector<double>> biases;  ///< of this stage
};

Trained train(Variant const& variant, Layout const& layout, Communicator const& world) {
  LayoutRun run(variant, layout, world);
  Trained trained;
  for (int step = 0; step < loaded_steps; ++step) {
    trained.results.push_back(run.step(step, {}));
  }
  for (Parameter const& parameter : run.engine().parameters().all()) {
    if (parameter.spec.balances) {
      trained.biases[parameter.spec.name] = values(parameter.value);
    }
  }
  return trained;
}

Loads by_layer(StepResult const& result) {
  Loads loads;
  for (ExpertLoad const& load : result.expert_loads) {
    EXPECT_FALSE(loads.contains(load.layer));
    loads[load.layer] = load;
  }
  return loads;
}

class ExpertLoadsTest : public DistTest {};

/// Choices of the first step are those of one rank, and so are biases as long as no rounding has changed a choice.
TEST_F(ExpertLoadsTest, AreThoseOfOneRankInEveryLayout) {
  for (Layout const& layout : layouts_on(world_.size())) {
    SCOPED_TRACE(describe(layout));
    Variant const variant = variant_for(layout, 0.01);
    Trained const expected = train(variant, Layout{}, Communicator::self());
    Trained const found = train(variant, layout, world_);
    for (std::size_t step = 0; step < loaded_steps; ++step) {
      Loads const ours = by_layer(found.results[step]);
      Loads const theirs = by_layer(expected.results[step]);
      ASSERT_EQ(ours.size(), 3U);
      for (auto const& [layer, load] : theirs) {
        EXPECT_EQ(ours.at(layer).choices, load.choices) << layer << ", step " << step;
        EXPECT_EQ(ours.at(layer).dropped, load.dropped) << layer << ", step " << step;
      }
      EXPECT_EQ(theirs.at("decoder.layers.2.mixture_of_experts").total(), target_tokens(static_cast<int>(step)));
      bool const drops = layout.size(MeshAxis::context) == 1;
      EXPECT_EQ(theirs.at("encoder.layers.1.mixture_of_experts").dropped > 0, drops);
    }
    for (auto const& [name, bias] : found.biases) {
      EXPECT_EQ(bias, expected.biases.at(name)) << name;
    }
  }
}

/// A bias moves by its rate against the load, and neither the norm nor the other parameters see it.
TEST_F(ExpertLoadsTest, ABiasFollowsTheLoadOfTheWholeBatch) {
  Layout const data{.shape = {1, world_.size(), 1, 1}};
  Trained const still = train(variant_for(data, 0), data, world_);
  Trained const moved = train(variant_for(data, 0.001), data, world_);
  EXPECT_EQ(moved.results.front().gradient_norm, still.results.front().gradient_norm);
  std::string const layer = "encoder.layers.1.mixture_of_experts";
  std::vector<double> expected(4);
  for (StepResult const& result : moved.results) {
    ExpertLoad const load = by_layer(result).at(layer);
    for (std::size_t expert = 0; expert < 4; ++expert) {
      double const missing = load.total() - 4 * load.choices[expert];
      expected[expert] += missing > 0 ? 0.001 : missing < 0 ? -0.001 : 0;
    }
  }
  std::vector<double> const& bias = moved.biases.at(layer + ".router.balance_bias");
  EXPECT_LE(relative_error(bias, expected), 1e-12);
  EXPECT_EQ(still.biases.at(layer + ".router.balance_bias"), std::vector<double>(4));
}

TEST_F(ExpertLoadsTest, AFrozenBiasStays) {
  Layout const data{.shape = {1, world_.size(), 1, 1}};
  std::string const frozen = "[optimizer.group.still]\nparameters = [\"*.balance_bias\"]\n";
  auto const first_bias = [&](std::string const& key) {
    return train(variant_for(data, 0.001, "false", frozen + key), data, world_).biases.begin()->second;
  };
  EXPECT_EQ(first_bias("frozen = true\n"), std::vector<double>(3));
  EXPECT_NE(first_bias("learning_rate_factor = 0.5\n"), std::vector<double>(3));
}

TEST_F(ExpertLoadsTest, DeterministicBiasesAreThoseOfAnyNumberOfDataRanks) {
  for (bool const divided : {false, true}) {
    Layout data{.shape = {1, world_.size(), 1, 1}};
    data.shard_optimizer = data.shard_parameters = divided && world_.size() > 1;
    Variant const variant = variant_for(data, 0.01, "true");
    EXPECT_EQ(train(variant, data, world_).biases, train(variant, Layout{}, Communicator::self()).biases);
  }
}

}  // namespace
}  // namespace heddle
