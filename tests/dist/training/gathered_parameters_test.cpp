#include <bit>
#include <cstdint>
#include <heddle/core/parallel/host_values.hpp>
#include <map>

#include "dist_fixture.hpp"
#include "layout_run.hpp"

namespace heddle {
namespace {

/// All bits of this rank's values, by parameter.
using Bits = std::map<std::string, std::vector<std::uint32_t>>;

std::vector<std::uint32_t> bits_of(Tensor const& tensor) {
  std::vector<std::uint32_t> bits;
  for (float const value : to_host<float>(tensor)) {
    bits.push_back(std::bit_cast<std::uint32_t>(value));
  }
  return bits;
}

/// The bits of the places that `like` holds.
Bits held_bits(ParameterSet const& parameters, ParameterSet const& like) {
  Bits bits;
  for (Parameter const& parameter : parameters.all()) {
    Parameter const& other = *like.find(parameter.spec.name);
    IndexRange const held = like.held_places(other);
    std::int64_t const shift = parameter.place.begin - other.place.begin;
    if (held.count() > 0) {
      bits[parameter.spec.name] = bits_of(parameters.values_in({held.begin + shift, held.end + shift}));
    }
  }
  return bits;
}

class GatheredParametersTest : public DistTest {
 protected:
  /// Compares a layout in which replicas divide parameters, all or only experts, with the one where they do not.
  void expect_same_bits(Variant const& variant, Layout layout, DType dtype = DType::float32) {
    layout.shard_optimizer = true;
    layout.shard_parameters = layout.shard_parameters || layout.expert == 1;
    SCOPED_TRACE(describe(variant) + ", " + describe(layout));
    LayoutRun divided(variant, layout, world_, dtype);
    layout.shard_parameters = false;
    layout.shard_ranks = 0;
    layout.expert = 1;
    LayoutRun whole(variant, layout, world_, dtype);
    ParameterSet const& parameters = divided.engine().parameters();
    ASSERT_TRUE(any_of(world_, !parameters.sections().empty()));
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(whole.accumulate(step), divided.accumulate(step));
      double const norm = whole.engine().update(whole.rate(), step + 1);
      EXPECT_NEAR(divided.engine().update(whole.rate(), step + 1), norm, 1e-12 * norm);
    }
    EXPECT_EQ(held_bits(parameters, parameters), held_bits(whole.engine().parameters(), parameters));
    auto const losses = [](LayoutRun& run) {
      LossSums const sums = run.engine().evaluate(run.whole_batch(9));
      return std::pair(sums.negative_log_likelihood, sums.tokens);
    };
    EXPECT_EQ(losses(whole), losses(divided));
  }
};

// A micro-batch for each of four data ranks: gradients are added in the order of the ranks, in whatever buffers.
TEST_F(GatheredParametersTest, TrainingIsBitwiseThatOfWholeParameters) {
  if (world_.size() == 4) {
    for (Variant const& variant : all_variants()) {
      expect_same_bits(variant, {.shape = {1, 4, 1, 1}});
      expect_same_bits(variant, {.shape = {1, 4, 1, 1}}, DType::bfloat16);
    }
    expect_same_bits({NormPlacement::pre, true, "recompute = \"layer\""}, {.shape = {1, 4, 1, 1}});
    expect_same_bits({NormPlacement::pre, true, "recompute = \"attention\"\n[adapter]\nrank = 3\ntargets = [\"*\"]"},
                     {.shape = {1, 4, 1, 1}});
  }
}

// Weights that attention adds to its scores are matrices of its unit: the backward pass needs them, too, when others
// lie where they were.
TEST_F(GatheredParametersTest, WeightsOfScoresAreThereInTheBackwardPass) {
  if (world_.size() != 2) {
    return;
  }
  // One unit is larger than all others: they have another memory before it than after it.
  std::string const largest = "activation = \"swiglu\"\n[model.encoder.layer.4]\nd_ff = 200\n";
  std::string const relative =
      "[model.encoder]\nself_attention = { own_positions = true }\n"
      "[model.decoder]\nself_attention = { own_positions = true }\n[train]\ndeterministic = true";
  std::string const additive =
      "[model.encoder]\nself_attention = { score = \"additive\" }\n"
      "[model.decoder]\ncross_attention = { score = \"additive\" }\n[train]\ndeterministic = true";
  for (MeshShape const& shape : {MeshShape(1, 2, 1, 1), MeshShape(1, 1, 2, 1)}) {
    for (ContextMode const mode : {ContextMode::ring, ContextMode::ulysses}) {
      Layout const layout{.shape = shape, .context_mode = mode};
      expect_same_bits({NormPlacement::pre, true, "positions = \"relative\"\n" + largest + relative}, layout);
      expect_same_bits({NormPlacement::pre, true, largest + additive}, layout);
    }
  }
}

TEST_F(GatheredParametersTest, DeterministicTrainingIsBitwiseThatOfWholeParameters) {
  std::string const experts =
      "encoder_sublayers = [\"self_attention\", \"mixture_of_experts\"]\n"
      "decoder_sublayers = [\"self_attention\", \"cross_attention\", \"mixture_of_experts\"]\n";
  std::string const keys = "recompute = \"attention\"\n[train]\ndeterministic = true";
  for (MeshShape const& shape : shapes_of(world_.size())) {
    if (shape.size(replica_axes()) > 1 && shape.ranks() <= 4) {
      expect_same_bits({NormPlacement::pre, true, keys}, {.shape = shape});
      expect_same_bits({NormPlacement::post, false, keys}, {.shape = shape});
      if (shape.size(MeshAxis::pipeline) == 2) {  // one stage has one of the layers with common positions
        expect_same_bits({NormPlacement::pre, true,
                          "positions = \"relative_buckets\"\n[train]\ndeterministic = true\n"
                          "[parallel]\npipeline = 2\nstage_layers = [5, 3]"},
                         {.shape = shape});
      }
      // A matrix whose gradient is a sum over the tensor group lies after the norms that follow it.
      expect_same_bits({NormPlacement::pre, true, experts + keys},
                       {.shape = shape, .sequence_parallel = shape.size(MeshAxis::tensor) > 1});
    }
  }
}

// The rows of an expert from each rank are multiplied by themselves, as on the rank that they come from.
TEST_F(GatheredParametersTest, DeterministicTrainingIsBitwiseTheSameWithDividedExperts) {
  std::string const layers =
      "encoder_sublayers = [\"self_attention\", \"mixture_of_experts\"]\n"
      "decoder_sublayers = [\"self_attention\", \"cross_attention\", \"mixture_of_experts\"]\n";
  std::string const dropout = "activation_dropout = 0.2\nactivation = \"swiglu\"\n";
  std::string const keys =
      "[model.encoder]\nmixture_of_experts = { experts = 12 }\n[model.decoder]\nmixture_of_experts = { experts = 12 }\n"
      "[train]\ndeterministic = true";
  if (world_.size() == 4) {  // of two stages, which run their micro-batches in one order, one has no experts
    expect_same_bits({NormPlacement::pre, false,
                      "[model.decoder.layer.4]\n"
                      "sublayers = [\"self_attention\", \"cross_attention\", \"mixture_of_experts\"]\n"
                      "[train]\ndeterministic = true"},
                     {.shape = {2, 2, 1, 1}, .expert = 2});
  }
  int runs = 0;
  for (MeshShape const& shape : shapes_of(world_.size())) {
    for (int const expert : divisors_of(shape.size(replica_axes()))) {
      if (expert == 1 || shape.ranks() > 4) {
        continue;
      }
      if (runs++ % 2 == 0) {
        expect_same_bits({NormPlacement::pre, true, layers + dropout + keys}, {.shape = shape, .expert = expert});
      } else {
        expect_same_bits({NormPlacement::post, false, layers + "recompute = \"layer\"\n" + keys},
                         {.shape = shape,
                          .sequence_parallel = shape.size(MeshAxis::tensor) > 1,
                          .shard_parameters = true,
                          .expert = expert});
      }
    }
  }
}

// Runs of two replicas, or more, have copies of the parts.
TEST_F(GatheredParametersTest, DeterministicTrainingIsBitwiseTheSameInRunsOfReplicas) {
  for (MeshShape const& shape : shapes_of(world_.size())) {
    for (int const ranks : divisors_of(shape.size(replica_axes()))) {
      if (ranks > 1 && shape.ranks() <= 4) {
        expect_same_bits({NormPlacement::pre, true, "[train]\ndeterministic = true"},
                         {.shape = shape, .shard_parameters = true, .shard_ranks = ranks});
      }
    }
  }
}

TEST_F(GatheredParametersTest, ReplicasHoldEqualPartsAndEmptyValues) {
  Layout const layout{.shape = {1, world_.size(), 1, 1}, .shard_optimizer = true, .shard_parameters = true};
  if (world_.size() == 1) {
    return;
  }
  LayoutRun run({NormPlacement::post, true}, layout, world_);
  ParameterSet const& parameters = run.engine().parameters();
  std::int64_t divided = 0;
  std::int64_t of_gradients = 0;
  for (DividedSection const* const section : parameters.sections()) {
    EXPECT_EQ(section->own.count() * world_.size(), section->range.count());
    divided += section->range.count();
    of_gradients += section->divides_gradient ? section->range.count() : 0;
  }
  EXPECT_LT(of_gradients, divided) << "a tied table's gradient is whole";
  ParameterSet::BufferSizes const held = parameters.held_sizes();
  EXPECT_EQ(held.values, parameters.value_size() - divided + divided / world_.size());
  EXPECT_EQ(held.gradients, parameters.gradient_size() - of_gradients + of_gradients / world_.size());
  for (Parameter const& parameter : parameters.all()) {
    EXPECT_EQ(parameter.value.empty(), parameter.gathered) << parameter.spec.name;
    EXPECT_EQ(parameter.gathered, parameter.global_shape().rank() > 1) << parameter.spec.name;
  }
}

// A section's gradient may still be on its way when the next micro-batch's is complete.
TEST_F(GatheredParametersTest, GradientsOfSeveralMicroBatchesAreAddedOneAfterTheOther) {
  if (world_.size() == 1) {
    return;
  }
  Layout const layout{.shape = {1, world_.size(), 1, 1}, .shard_optimizer = true, .shard_parameters = true};
  LayoutRun run({NormPlacement::post, false}, layout, world_);
  GatheredParameters& gathered = *run.engine().gathered();
  ParameterSet& parameters = run.engine().parameters();
  auto const unit = std::ranges::find_if(parameters.units(), [](ParameterUnit const& each) {
    return !each.sections.empty() && each.sections.front()->divides_gradient;
  });
  DividedSection const& section = *unit->sections.front();
  run.engine().optimizer().zero_gradients();
  double sum = 0;
  for (int micro_batch = 0; micro_batch < 5; ++micro_batch) {
    gathered.begin({{&*unit, true}});
    gathered.use(*unit, true);
    double const value = 10 * micro_batch + world_.rank() + 1;
    std::vector<double> const gradient(static_cast<std::size_t>(section.range.count()), value);
    copy_from_host(section.gradient, gradient.data());
    gathered.done(*unit);
    sum += world_.size() * (10 * micro_batch) + world_.size() * (world_.size() + 1) / 2;
  }
  gathered.finish();
  EXPECT_EQ(values(parameters.gradients_in(section.own)),
            std::vector<double>(static_cast<std::size_t>(section.own.count()), sum));
}

TEST_F(GatheredParametersTest, UsesInAnotherOrderAreErrors) {
  if (world_.size() != 2) {
    return;
  }
  Layout const layout{.shape = {1, 2, 1, 1}, .shard_optimizer = true, .shard_parameters = true};
  LayoutRun run({NormPlacement::post, false}, layout, world_);
  ParameterSet& parameters = run.engine().parameters();
  GatheredParameters& gathered = *run.engine().gathered();
  ParameterUnit& first = parameters.units().at(0);
  ParameterUnit& second = parameters.units().at(1);
  gathered.begin({{&first, false}, {&second, true}});
  expect_error([&] { gathered.use(second, true); }, "is not the next that the pass was to use");
  expect_error([&] { gathered.use(first, true); }, "is not the next that the pass was to use");
  gathered.use(first, false);
  gathered.done(first);
  expect_error([&] { gathered.begin({}); }, "used 1 of its 2 units");
  gathered.use(second, true);
  EXPECT_FALSE(second.members.front()->value.empty());
  EXPECT_FALSE(second.members.front()->gradient.empty());
  gathered.done(second);
  gathered.finish();
  EXPECT_TRUE(second.members.front()->value.empty());
}

}  // namespace
}  // namespace heddle
