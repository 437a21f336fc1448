#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/state/replica_check.hpp>

#include "synthetic_model.hpp"

// Update rules other than Adam, one over matrices included, in every layout.

namespace heddle {
namespace {

using Options = SyntheticModel::Options;

constexpr std::int64_t rule_batches = 5;

std::vector<WholeTensor> run_steps(SyntheticModel& model, std::int64_t first_step, std::int64_t last_step, bool tree) {
  for (std::int64_t step = first_step; step < last_step; ++step) {
    model.step(step, rule_batches, tree);
  }
  return model.gathered();
}

/// Matrices, one of which several stages hold, with a rule over matrices and vectors with momentum; the rest has Adam.
std::vector<ParameterGroup> matrix_groups(std::string const& rule = "muon") {
  return {{"matrices", {"*.rows", "*.across", "*.columns", "tied"}, {.name = rule}},
          {"momentum", {"layer*.bias"}, {.name = "sgd", .options = {{"nesterov", {true, "", ""}}}}}};
}

class UpdateRulesTest : public DistTest {
 protected:
  /// Runs two steps, continues for a third with what the first layout wrote, and expects one rank's bits.
  void expect_one_ranks_bits(Options options) {
    SyntheticModel alone(ParallelState(), options);
    std::vector<WholeTensor> const written = run_steps(alone, 0, 2, false);
    std::vector<WholeTensor> const expected = run_steps(alone, 2, 3, false);
    ASSERT_FALSE(written == expected);
    for (auto const& layout : all_layouts_of(world_.size())) {
      for (bool const shard : {false, true}) {
        for (bool const tree : {false, true}) {
          options.shard = shard;
          SyntheticModel model(state_of(layout), options);
          SCOPED_TRACE(testing::Message() << options.rule << " on " << model.parallel.mesh.to_string()
                                          << (shard ? ", sharded" : "") << (tree ? ", tree" : ""));
          expect_on_rank_0(run_steps(model, 0, 2, tree), written);
          SyntheticModel resumed(state_of(layout), options);
          resumed.load(written);
          expect_on_rank_0(resumed.gathered(), written);
          expect_on_rank_0(run_steps(resumed, 2, 3, tree), expected);
          EXPECT_NO_THROW(check_replicas(resumed.parallel, resumed.parameters, &resumed.optimizer));
        }
      }
    }
  }

  void expect_on_rank_0(std::vector<WholeTensor> const& actual, std::vector<WholeTensor> const& expected) const {
    if (world_.rank() == 0) {
      EXPECT_TRUE(actual == expected);
    }
  }
};

TEST_F(UpdateRulesTest, EveryRuleGivesEveryLayoutTheBitsOfOneRank) {
  for (char const* const rule : {"adamw", "lion", "sgd", "schedule_free_adamw", "lamb"}) {
    expect_one_ranks_bits({.clip_norm = 50, .rule = rule});
  }
}

TEST_F(UpdateRulesTest, SoDoesARuleOverMatrices) {
  for (char const* const rule : {"muon", "soap", "adafactor"}) {
    expect_one_ranks_bits({.clip_norm = 50, .groups = matrix_groups(rule)});
  }
}

TEST_F(UpdateRulesTest, SoDoAveragesOfTheValues) {
  for (std::string const rule : {"adam", "lion"}) {
    expect_one_ranks_bits({.rule = rule, .average = Average::ema});
  }
  for (Average const average : {Average::ema, Average::lawa}) {
    expect_one_ranks_bits({.groups = matrix_groups(), .average = average});
  }
}

TEST_F(UpdateRulesTest, ValuesAndAveragesAreExchangedAndBroughtBack) {
  Options options{.groups = matrix_groups(), .average = Average::ema};
  options.groups.push_back({.name = "frozen", .parameters = {"layer1.norm"}, .rule = {.frozen = true}});
  for (auto const& layout : all_layouts_of(world_.size())) {
    for (bool const shard : {false, true}) {
      options.shard = shard;
      SyntheticModel model(state_of(layout), options);
      SCOPED_TRACE(testing::Message() << model.parallel.mesh.to_string() << (shard ? ", sharded" : ""));
      std::vector<WholeTensor> const before = run_steps(model, 0, 3, false);
      model.optimizer.swap_averages(3);
      std::vector<WholeTensor> const exchanged = model.gathered();
      for (std::size_t index = 0; index < before.size(); ++index) {
        auto const& [name, shape, arrays] = before[index];
        bool const averaged = arrays.contains(average_key);
        EXPECT_EQ(exchanged[index].arrays.at(value_key), arrays.at(averaged ? average_key : value_key)) << name;
        EXPECT_EQ(averaged, name != "layer1.norm") << name;
        EXPECT_FALSE(averaged && arrays.at(value_key) == arrays.at(average_key)) << name;
      }
      EXPECT_NO_THROW(check_replicas(model.parallel, model.parameters)) << "each replica has the averages";
      model.optimizer.swap_averages(3);
      expect_on_rank_0(model.gathered(), before);
      EXPECT_NO_THROW(check_replicas(model.parallel, model.parameters, &model.optimizer));
    }
  }
}

TEST_F(UpdateRulesTest, DamageBetweenAnExchangeAndTheNextUpdateIsFound) {
  SyntheticModel model(state_of({1, world_.size(), 1, 1}), {.shard = true, .average = Average::ema});
  model.step(0, rule_batches);
  model.optimizer.swap_averages(3);
  model.optimizer.swap_averages(3);
  EXPECT_TRUE(model.optimizer.damaged().empty());
  Tensor const average = model.optimizer.local().state().at(average_key);
  std::vector<float> numbers = to_host<float>(average);
  numbers.front() += 1;
  copy_from_host(average, numbers.data());
  EXPECT_EQ(model.optimizer.damaged().empty(), world_.size() == 1) << "one rank alone shards nothing";
}

TEST_F(UpdateRulesTest, StateThatBeginsInTheMiddleOfARunIsUpdatedAsThatOfARunThatBegins) {
  auto const begins_late = [](std::string const& name) { return name == "tied" || name.ends_with(".rows"); };
  DistributedOptimizer::StateBegins begins{{"tied", 1000}};
  for (int layer = 0; layer < SyntheticModel::layers; ++layer) {
    begins[fmt::format("layer{}.rows", layer)] = 1000;
  }
  SyntheticModel young(ParallelState(), {});
  young.first_step = 1000;
  SyntheticModel old(ParallelState(), {});
  std::vector<WholeTensor> expected = run_steps(old, 1000, 1003, false);
  std::vector<WholeTensor> const from_start = run_steps(young, 1000, 1003, false);
  for (std::size_t index = 0; index < expected.size(); ++index) {
    ASSERT_FALSE(expected[index] == from_start[index]) << expected[index].name << ": the step has no effect";
    expected[index] = begins_late(expected[index].name) ? from_start[index] : expected[index];
  }
  SyntheticModel both(ParallelState(), {});
  both.optimizer.set_state_begins(begins);
  std::vector<WholeTensor> const written = run_steps(both, 1000, 1001, false);
  for (auto const& layout : all_layouts_of(world_.size())) {
    for (bool const shard : {false, true}) {
      SyntheticModel model(state_of(layout), {.shard = shard});
      SCOPED_TRACE(testing::Message() << model.parallel.mesh.to_string() << (shard ? ", sharded" : ""));
      model.optimizer.set_state_begins(begins);
      expect_on_rank_0(run_steps(model, 1000, 1001, false), written);
      SyntheticModel resumed(state_of(layout), {.shard = shard});
      resumed.load(written);
      resumed.optimizer.set_state_begins(begins);
      expect_on_rank_0(run_steps(resumed, 1001, 1003, false), expected);
      EXPECT_EQ(resumed.optimizer.state_begins(), begins);
      EXPECT_NO_THROW(check_replicas(resumed.parallel, resumed.parameters, &resumed.optimizer));
    }
  }
}

TEST_F(UpdateRulesTest, AMatrixHasOneOwner) {
  SyntheticModel const model(state_of({1, world_.size(), 1, 1}), {.shard = true, .groups = matrix_groups()});
  std::vector<std::int64_t> owned;
  for (Parameter const& parameter : model.parameters.all()) {
    auto const kept = model.optimizer.kept_state(parameter, parameter.state.front());
    std::int64_t elements = 0;
    for (IndexRange const& range : kept) {
      elements += range.count();
    }
    std::int64_t const size = parameter.local_shape.size();
    if (parameter.updated_whole()) {
      EXPECT_TRUE(elements == 0 || elements == size) << parameter.spec.name;
    }
    owned.push_back(elements);
    auto const all = gather_values(world_, elements);
    EXPECT_EQ(std::accumulate(all.begin(), all.end(), std::int64_t{0}), size) << parameter.spec.name;
  }
  EXPECT_GT(*std::ranges::max_element(owned), 0) << "every rank owns something";
}

TEST_F(UpdateRulesTest, DamagedMomentumIsFound) {
  SyntheticModel model(state_of({1, world_.size(), 1, 1}), {.shard = true, .groups = matrix_groups()});
  model.step(0, rule_batches);
  std::int64_t damaged = 0;
  for (Parameter const& parameter : model.parameters.all()) {
    if (parameter.updated_whole() && !model.optimizer.kept_state(parameter, "muon.momentum").empty()) {
      Tensor const momentum = model.optimizer.local().state_in("muon.momentum", elements_of(parameter));
      auto elements = to_host<float>(momentum);
      elements[3] += 1;
      copy_from_host(momentum, elements.data());
      ++damaged;
    }
  }
  model.step(1, rule_batches);
  EXPECT_EQ(std::ssize(model.optimizer.damaged()), world_.size() > 1 ? damaged : 0);
}

}  // namespace
}  // namespace heddle
