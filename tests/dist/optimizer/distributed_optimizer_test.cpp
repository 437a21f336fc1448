#include <heddle/dist/state/replica_check.hpp>

#include "synthetic_model.hpp"

namespace heddle {
namespace {

using Options = SyntheticModel::Options;

constexpr std::int64_t micro_batches = 5;
constexpr std::int64_t steps = 2;

bool same_bits(std::vector<float> const& left, std::vector<float> const& right) {
  return left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0;
}

/// In any order.
void expect_same(std::vector<WholeTensor> const& actual, std::vector<WholeTensor> const& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (WholeTensor const& tensor : actual) {
    auto const match = std::find_if(expected.begin(), expected.end(),
                                    [&](WholeTensor const& other) { return other.name == tensor.name; });
    ASSERT_NE(match, expected.end()) << tensor.name;
    EXPECT_EQ(tensor.shape, match->shape) << tensor.name;
    ASSERT_EQ(tensor.arrays.size(), match->arrays.size()) << tensor.name;
    for (auto const& [key, elements] : tensor.arrays) {
      EXPECT_TRUE(same_bits(elements, match->arrays.at(key))) << key << " of " << tensor.name;
    }
  }
}

/// Results of a run: the report of each step, and the final values.
struct Outcome {
  std::vector<double> norms, losses;
  std::vector<WholeTensor> tensors;
};

Outcome run(SyntheticModel& model, std::int64_t first_step, std::int64_t last_step, bool tree = false) {
  Outcome result;
  for (std::int64_t step = first_step; step < last_step; ++step) {
    result.norms.push_back(model.step(step, micro_batches, tree));
    result.losses.push_back(model.loss());
  }
  result.tensors = model.gathered();
  return result;
}

Outcome run_alone(Options const& options, std::int64_t last_step = steps) {
  SyntheticModel model(ParallelState(), options);
  return run(model, 0, last_step);
}

class DistributedOptimizerTest : public DistTest {
 protected:
  void expect_on_rank_0(std::vector<WholeTensor> const& actual, std::vector<WholeTensor> const& expected) const {
    if (world_.rank() == 0) {
      expect_same(actual, expected);
    } else {
      EXPECT_TRUE(actual.empty());
    }
  }
};

TEST_F(DistributedOptimizerTest, EveryLayoutComesToTheBitsOfOneRankShardedOrNot) {
  for (auto const& [clip, bucket] : {std::pair{0.0, std::int64_t{64}}, {50.0, 100000}}) {
    Outcome const expected = run_alone({.clip_norm = clip});
    EXPECT_GT(expected.norms.front(), 50);
    for (auto const& layout : all_layouts_of(world_.size())) {
      for (bool const shard : {false, true}) {
        SyntheticModel model(state_of(layout), {shard, clip, bucket});
        SCOPED_TRACE(testing::Message() << model.parallel.mesh.to_string() << (shard ? ", sharded" : "")
                                        << ", buckets of " << bucket << ", clip " << clip);
        Outcome const actual = run(model, 0, steps);
        EXPECT_EQ(actual.norms, expected.norms);
        EXPECT_EQ(actual.losses, expected.losses);
        expect_on_rank_0(actual.tensors, expected.tensors);
      }
    }
  }
}

/// Groups that cut buckets, parts and a parameter of several stages out of their neighbours.
std::vector<ParameterGroup> mixed_groups() {
  return {{"slow", {"*4.norm", "layer7.*", "tied"}, {.learning_rate_factor = 0.5, .weight_decay = 0.25}},
          {"still", {"layer3.*", "layer6.rows"}, {.frozen = true}}};
}

TEST_F(DistributedOptimizerTest, GroupsGiveEveryLayoutTheBitsOfOneRank) {
  Options options{.clip_norm = 50, .groups = mixed_groups()};
  Outcome const expected = run_alone(options);
  EXPECT_NE(expected.norms, run_alone({.clip_norm = 50}).norms);
  std::vector<WholeTensor> const initial = run_alone(options, 0).tensors;
  for (std::size_t index = 0; index < initial.size(); ++index) {
    bool const frozen = initial[index].name.starts_with("layer3.") || initial[index].name == "layer6.rows";
    EXPECT_EQ(same_bits(initial[index].arrays.at(value_key), expected.tensors[index].arrays.at(value_key)), frozen)
        << initial[index].name;
  }
  for (auto const& layout : all_layouts_of(world_.size())) {
    for (bool const shard : {false, true}) {
      for (bool const tree : {false, true}) {
        options.shard = shard;
        SyntheticModel model(state_of(layout), options);
        SCOPED_TRACE(testing::Message() << model.parallel.mesh.to_string() << (shard ? ", sharded" : "")
                                        << (tree ? ", tree" : ""));
        Outcome const actual = run(model, 0, steps, tree);
        EXPECT_EQ(actual.norms, expected.norms);
        expect_on_rank_0(actual.tensors, expected.tensors);
      }
    }
  }
}

TEST_F(DistributedOptimizerTest, FrozenBucketsDoNotTravel) {
  Options options{.shard = true, .groups = {{"still", {"*"}, {.frozen = true}}}};
  SyntheticModel model(state_of({1, world_.size(), 1, 1}), options);
  auto const traffic = [&](CollectiveOp collective) {
    return model.parallel.replicas.ledger()[static_cast<std::size_t>(collective)];
  };
  EXPECT_EQ(model.step(0, micro_batches), 0) << "no gradient counts";
  EXPECT_EQ(traffic(CollectiveOp::reduce_scatter).bytes, 0);
  EXPECT_EQ(traffic(CollectiveOp::all_gather).bytes, 0);
}

/// Parameters that are trained from the third step on, and from the fourth on.
std::vector<ParameterGroup> late_groups() {
  return {{"third", {"*4.norm", "layer7.*", "tied"}, {.learning_rate_factor = 0.5, .frozen_until = 2}},
          {"fourth", {"layer3.*", "layer6.rows", "every_end"}, {.frozen_until = 3}},
          {"never", {"layer1.rows"}, {.frozen = true}}};
}

Outcome run_unfreezing(SyntheticModel& model, std::int64_t first_step, std::int64_t last_step, bool tree = false) {
  Outcome result;
  for (std::int64_t step = first_step; step < last_step; ++step) {
    model.unfreeze(step);
    result.norms.push_back(model.step(step, micro_batches, tree));
  }
  result.tensors = model.gathered();
  return result;
}

TEST_F(DistributedOptimizerTest, UnfreezingGivesEveryLayoutTheBitsOfOneRank) {
  Options options{.clip_norm = 50, .groups = late_groups()};
  auto const alone = [&](std::int64_t last_step) {
    SyntheticModel model(ParallelState(), options);
    return run_unfreezing(model, 0, last_step);
  };
  Outcome const expected = alone(5);
  std::vector<WholeTensor> const at_three = alone(3).tensors;
  DistributedOptimizer::StateBegins begins;
  for (WholeTensor const& tensor : at_three) {
    bool const third = tensor.name.ends_with("4.norm") || tensor.name.starts_with("layer7.") || tensor.name == "tied";
    if (third) {
      begins[tensor.name] = 2;
    }
    EXPECT_EQ(tensor.arrays.contains("adam.first_moment"),
              !tensor.name.starts_with("layer3.") && tensor.name != "layer6.rows" && tensor.name != "every_end" &&
                  tensor.name != "layer1.rows")
        << tensor.name;
  }
  for (auto const& layout : all_layouts_of(world_.size())) {
    for (bool const shard : {false, true}) {
      options.shard = shard;
      SCOPED_TRACE(testing::Message() << state_of(layout).mesh.to_string() << (shard ? ", sharded" : ""));
      for (bool const tree : {false, true}) {
        SyntheticModel model(state_of(layout), options);
        Outcome const actual = run_unfreezing(model, 0, 5, tree);
        EXPECT_EQ(actual.norms, expected.norms);
        expect_on_rank_0(actual.tensors, expected.tensors);
      }
      SyntheticModel resumed(state_of(layout), options);
      resumed.unfreeze(3);
      resumed.unfreeze(2);  // as where the newest checkpoint cannot be read
      resumed.load(at_three);
      resumed.optimizer.set_state_begins(begins);
      expect_on_rank_0(run_unfreezing(resumed, 3, 5).tensors, expected.tensors);
    }
  }
}

TEST_F(DistributedOptimizerTest, AnUnfrozenParameterIsUpdatedAsInARunThatBegins) {
  Options options{.groups = {{"late", {"layer2.*"}, {.frozen_until = 2}}}};
  SyntheticModel late(ParallelState(), options);
  SyntheticModel begins(ParallelState(), {});
  begins.first_step = 2;
  std::vector<WholeTensor> const initial = begins.gathered();
  auto const frozen = run_unfreezing(late, 0, 2).tensors;
  auto const actual = run_unfreezing(late, 2, 4).tensors;
  auto const expected = run(begins, 2, 4).tensors;
  for (std::size_t index = 0; index < expected.size(); ++index) {
    bool const is_late = expected[index].name.starts_with("layer2.");
    EXPECT_EQ(frozen[index].arrays.at(value_key) == initial[index].arrays.at(value_key), is_late);
    EXPECT_EQ(actual[index] == expected[index], is_late) << expected[index].name;
  }
}

TEST_F(DistributedOptimizerTest, BucketsTravelFromTheStepOnThatUnfreezesThem) {
  Options options{.shard = true, .groups = {{"late", {"layer*"}, {.frozen_until = 1}}}};
  SyntheticModel model(state_of({1, world_.size(), 1, 1}), options);
  auto const bytes = [&] {
    return model.parallel.replicas.ledger()[static_cast<std::size_t>(CollectiveOp::reduce_scatter)].bytes;
  };
  model.step(0, micro_batches);
  std::int64_t const first = bytes();
  model.unfreeze(1);
  model.step(1, micro_batches);
  std::int64_t const all = world_.size() > 1 ? model.parameters.values().bytes() : 0;
  EXPECT_EQ(bytes() - first, all);
  EXPECT_LE(4 * first, all);
}

TEST_F(DistributedOptimizerTest, TheTreeDoesSoToo) {
  Outcome const expected = run_alone({.clip_norm = 50});
  for (auto const& layout : all_layouts_of(world_.size())) {
    for (bool const shard : {false, true}) {
      SyntheticModel model(state_of(layout), {.shard = shard, .clip_norm = 50});
      SCOPED_TRACE(testing::Message() << model.parallel.mesh.to_string() << (shard ? ", sharded" : ""));
      Outcome const actual = run(model, 0, steps, true);
      EXPECT_EQ(actual.norms, expected.norms);
      EXPECT_EQ(actual.losses, expected.losses);
      expect_on_rank_0(actual.tensors, expected.tensors);
    }
  }
}

TEST_F(DistributedOptimizerTest, TheTreeIsBitwiseTheSameOnAnyNumberOfDataRanks) {
  for (std::array<int, 3> const& others :
       {std::array{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 4, 1}, {1, 1, 2}, {2, 2, 1}}) {
    auto const [pipeline, context, tensor] = others;
    std::optional<Outcome> expected;
    for (int data = 1; pipeline * data * context * tensor <= world_.size(); ++data) {
      int const ranks = pipeline * data * context * tensor;
      Communicator const part = world_.split(world_.rank() < ranks ? 0 : 1, world_.rank());
      if (world_.rank() >= ranks) {
        continue;
      }
      Mesh const mesh({pipeline, data, context, tensor}, part.rank(), ranks);
      ParallelState const state = make_parallel_state(part, mesh);
      for (bool const shard : {false, true}) {
        SCOPED_TRACE(testing::Message() << mesh.to_string() << (shard ? ", sharded" : ""));
        SyntheticModel model(state, {.shard = shard, .clip_norm = 50, .exact = false});
        Outcome const actual = run(model, 0, steps, true);
        if (!expected) {
          expected = actual;
          EXPECT_GT(actual.norms.front(), 50);
        }
        EXPECT_EQ(actual.norms, expected->norms);
        if (part.rank() == 0) {
          expect_same(actual.tensors, expected->tensors);
        }
      }
    }
  }
}

// Replicas agree bitwise, although MPI may add in another order for another place in the buffers.
TEST_F(DistributedOptimizerTest, WhatSeveralRanksHoldStaysTheSameToTheBit) {
  for (auto const& layout : all_layouts_of(world_.size())) {
    for (bool const shard : {false, true}) {
      SyntheticModel model(state_of(layout), {.shard = shard, .bucket_elements = 1000, .exact = false});
      SCOPED_TRACE(testing::Message() << model.parallel.mesh.to_string() << (shard ? ", sharded" : ""));
      for (std::int64_t step = 0; step < steps; ++step) {
        model.step(step, micro_batches);
      }
      EXPECT_NO_THROW(check_replicas(model.parallel, model.parameters));
    }
  }
}

TEST_F(DistributedOptimizerTest, OneRankTakesTheStepOfCoresOptimizer) {
  for (double const clip : {0.0, 50.0}) {
    SyntheticModel model(ParallelState(), {.clip_norm = clip, .exact = false});
    SyntheticModel plain(ParallelState(), {.exact = false});
    OptimizerConfig config;
    config.clip_norm = clip;
    IndexRange const all{0, plain.parameters.size()};
    Optimizer const optimizer(config, {plain.registries, plain.choices}, plain.parameters, {all});
    plain.run_micro_batch(0);
    std::uint64_t const version = model.parameters.all().front().version;
    double squares = 0;
    for (float const gradient : to_host<float>(plain.parameters.gradients())) {
      squares += static_cast<double>(gradient) * static_cast<double>(gradient);
    }
    double const norm = model.step(0, 1);
    EXPECT_NEAR(norm, std::sqrt(squares), 1e-9 * norm);
    EXPECT_EQ(model.parameters.all().front().version, version + 1);
    optimizer.begin({.learning_rate = 0.01, .gradient_scale = optimizer.gradient_scale(norm), .step = 1});
    optimizer.apply(plain.execution, all);
    EXPECT_TRUE(same_bits(to_host<float>(model.parameters.values()), to_host<float>(plain.parameters.values())));
  }
}

TEST_F(DistributedOptimizerTest, WhatWasWrittenUnderOneLayoutGoesOnUnderAnother) {
  std::vector<WholeTensor> const written = run_alone({}, 1).tensors;
  Outcome const expected = run_alone({}, 2);
  for (auto const& layout : all_layouts_of(world_.size())) {
    for (bool const shard : {false, true}) {
      SyntheticModel model(state_of(layout), {.shard = shard});
      SCOPED_TRACE(testing::Message() << model.parallel.mesh.to_string() << (shard ? ", sharded" : ""));
      model.load(written);
      expect_on_rank_0(model.gathered(), written);
      expect_on_rank_0(run(model, 1, 2).tensors, expected.tensors);
    }
  }
}

TEST_F(DistributedOptimizerTest, ShardedEachReplicaKeepsItsPartOfTheMoments) {
  for (auto const& layout : all_layouts_of(world_.size())) {
    SyntheticModel const model(state_of(layout), {.shard = true});
    std::int64_t const replicas = model.parallel.replicas.size();
    EXPECT_EQ(model.optimizer.local().state_bytes() * replicas, 2 * model.parameters.values().bytes());
    EXPECT_EQ(model.optimizer.sharded(), replicas > 1);
  }
}

TEST_F(DistributedOptimizerTest, ShardedAStepMovesEveryBufferOnceEachWay) {
  SyntheticModel model(state_of({1, world_.size(), 1, 1}), {.shard = true});
  auto const traffic = [&](CollectiveOp collective) {
    return model.parallel.replicas.ledger()[static_cast<std::size_t>(collective)];
  };
  model.step(0, micro_batches);
  std::int64_t const bytes = world_.size() > 1 ? model.parameters.values().bytes() : 0;
  EXPECT_EQ(traffic(CollectiveOp::reduce_scatter).bytes, bytes);
  EXPECT_EQ(traffic(CollectiveOp::all_gather).bytes, bytes);
  EXPECT_EQ(traffic(CollectiveOp::all_reduce).bytes, world_.size() > 1 ? 16 : 0) << "a loss and a norm";
}

TEST_F(DistributedOptimizerTest, AGradientThatIsNotFiniteAnywhereChangesNothingAnywhere) {
  for (auto const& layout : all_layouts_of(world_.size())) {
    for (bool const shard : {false, true}) {
      SyntheticModel model(state_of(layout), {.shard = shard});
      SCOPED_TRACE(testing::Message() << model.parallel.mesh.to_string() << (shard ? ", sharded" : ""));
      model.step(0, micro_batches);
      auto const values = to_host<float>(model.parameters.values());
      auto const moments = to_host<float>(model.optimizer.local().state().at("adam.second_moment"));
      model.optimizer.zero_gradients();
      // The parameter is split over tensor, so that its gradient counts on every rank.
      if (world_.rank() == world_.size() - 1) {
        Tensor const& gradient = model.parameters.find("layer7.columns")->gradient;
        std::vector<float> bad(static_cast<std::size_t>(gradient.size()));
        bad.back() = std::numeric_limits<float>::infinity();
        copy_from_host(gradient, bad.data());
      }
      model.optimizer.reducer().reduce(model.loss_sums);
      EXPECT_FALSE(std::isfinite(model.optimizer.update(0.01, 2)));
      EXPECT_TRUE(same_bits(to_host<float>(model.parameters.values()), values));
      EXPECT_TRUE(same_bits(to_host<float>(model.optimizer.local().state().at("adam.second_moment")), moments));
    }
  }
}

TEST_F(DistributedOptimizerTest, TheWholeModelIsKnownOnEveryRank) {
  SyntheticModel const alone{ParallelState(), {}};
  std::int64_t elements = 0;
  for (Parameter const& parameter : alone.parameters.all()) {
    elements += parameter.global_shape().size();
  }
  for (auto const& layout : all_layouts_of(world_.size())) {
    SyntheticModel const model(state_of(layout), {});
    EXPECT_EQ(model.model.names().size(), alone.parameters.all().size());
    EXPECT_EQ(model.model.elements(), elements);
  }
}

TEST_F(DistributedOptimizerTest, AParameterThatStagesShareUnknowinglyIsFound) {
  if (world_.size() < 2) {
    return;  // one stage shares nothing
  }
  ParallelState const state = state_of({world_.size(), 1, 1, 1});
  auto const whole_model = [&](Shape const& shape, std::vector<int> const& stages) {
    ParameterSet parameters(state.mesh);
    if (world_.rank() < 2) {
      parameters.declare({"table", {shape, {}, {}, stages}, Initializer::zeros()});
    }
    parameters.allocate(DType::float32);
    return WholeModel::gather(state, parameters);
  };
  EXPECT_EQ(whole_model({4, 2}, {0, 1}).elements(), 8);
  expect_error([&] { whole_model({4, 2}, {}); }, "parameter table: held by the stages {0, 1}, while stage 0 says {0}");
  expect_error(
      [&] {
        whole_model({4 + world_.rank(), 2}, {0, 1});
      },
      "parameter table: [4, 2] on stage 0, and [5, 2] on stage 1");
}

}  // namespace
}  // namespace heddle
