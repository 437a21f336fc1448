#include <heddle/core/base/cpu_level.hpp>
#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/planning/available_memory.hpp>
#include <heddle/dist/planning/memory_plan.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <heddle/kernels/register.hpp>

#include "dist_fixture.hpp"
#include "planning/planned_run.hpp"

namespace heddle {
namespace {

Config config_of(Layout const& layout) {
  Config config = planned_config(layout);
  config.model.dropout = 0.1;
  return config;
}

/// Full micro-batches of the configured size, as `ragged_pack` makes them.
PlannedPacks packs_of(Config const& config, ParallelState const& parallel) {
  Pack const full = full_pack(config.train.micro_batch_tokens, config.model.max_length, context_split(parallel.mesh));
  PlannedPacks packs{.training = {full}, .micro_batches = {config.train.deterministic ? 1 : micro_batches}};
  if (config.train.validate_every > 0) {
    packs.validation = {full};
  }
  return packs;
}

class MemoryPlanTest : public DistTest {
 protected:
  /// The predicted and the measured memory of a step with real kernels and messages.
  MemoryReport compare(Config const& config, Layout const& layout) {
    TestBench bench(config.model, DType::float32, KernelChoices());
    ParallelState const parallel = parallel_of(layout, world_);
    MemoryReport report;
    report.predicted =
        plan_memory(config, parallel.mesh, vocabulary, bench.registries(), packs_of(config, parallel)).use;
    TrainingEngine engine({config, bench.registries(), parallel, bench.execution(), vocabulary});
    engine.parameters().initialize(1);
    auto const make = [&](std::int64_t index) { return ragged_pack(index, engine.context()); };
    std::int64_t const count = config.train.deterministic ? micro_batches * layout.size(MeshAxis::data) : micro_batches;
    TestMicroBatches const batch(count, make, 1000);
    engine.accumulate(batch, 0);
    if (config.train.validate_every > 0) {
      engine.pipeline().evaluate(batch,
                                 {.micro_batches = {0, micro_batches}, .loss = {}, .row_split = engine.row_split()});
    }
    report.measured = measure_memory(engine);
    return report;
  }

  // Parameters, gradients, moments and packed weights are exact. Activations are those of full micro-batches: real
  // ones leave some tokens free, and the chunks of short sequences differ in length.
  static void expect_close(MemoryReport const& report) {
    EXPECT_EQ(report.predicted.parameters, report.measured.parameters);
    EXPECT_EQ(report.predicted.gradients, report.measured.gradients);
    EXPECT_EQ(report.predicted.state, report.measured.state);
    EXPECT_EQ(report.predicted.kernels, report.measured.kernels);
    if (kernel_memory_space() == MemorySpace::host) {  // a device's products keep no packed weights
      EXPECT_GT(report.measured.kernels, 0);
    }
    EXPECT_GT(report.measured.activations, 0);
    EXPECT_NEAR(static_cast<double>(report.predicted.activations) / static_cast<double>(report.measured.activations), 1,
                0.1);
  }

  /// Layouts that use every axis and switch possible on this many ranks.
  std::vector<Layout> layouts() const {
    auto const ring = ContextMode::ring;
    auto const ulysses = ContextMode::ulysses;
    auto const plain = PipelineSchedule::one_forward_one_backward;
    auto const interleaved = PipelineSchedule::interleaved;
    switch (world_.size()) {
      case 1:
        return {Layout{}};
      case 2:
        return {{{2, 1, 1, 1}, false, ring, plain, false},   {{2, 1, 1, 1}, false, ring, interleaved, false},
                {{1, 2, 1, 1}, false, ring, plain, true},    {{1, 1, 2, 1}, false, ring, plain, false},
                {{1, 1, 2, 1}, false, ulysses, plain, true}, {{1, 1, 1, 2}, false, ring, plain, false},
                {{1, 1, 1, 2}, true, ring, plain, false}};
      case 4:
        return {{{4, 1, 1, 1}, false, ring, plain, false},
                {{2, 1, 1, 2}, true, ring, interleaved, false},
                {{1, 1, 4, 1}, false, ring, plain, true},
                {{1, 1, 2, 2}, true, ulysses, plain, false},
                {MeshShape(1, 1, 2, 2).with_encoder_tensor(4), true, ring, plain, true}};
      default:
        return {{{2, world_.size() / 8, 2, 2}, true, ring, plain, true}};
    }
  }
};

TEST_F(MemoryPlanTest, PredictsWhatIsMeasured) {
  for (Layout const& layout : layouts()) {
    SCOPED_TRACE(describe(layout));
    Config config = config_of(layout);
    expect_close(compare(config, layout));
    config.train.validate_every = 1;
    config.model.norm = NormPlacement::pre;
    config.model.positions = Positions::learned;
    MemoryReport const kept = compare(config, layout);
    expect_close(kept);
    config.model.recompute = Recompute::layer;
    MemoryReport const recomputed = compare(config, layout);
    expect_close(recomputed);
    if (layout.size(MeshAxis::pipeline) == 1) {  // in a pipeline the cut may be another one
      EXPECT_LT(recomputed.measured.activations, kept.measured.activations);
    }
  }
}

// On a device an arena has no more than its plan and a margin, and a step that needs more is an error.
TEST_F(MemoryPlanTest, TrainingFitsIntoThePlannedArenas) {
  for (Layout const& layout : layouts()) {
    SCOPED_TRACE(describe(layout));
    Config config = config_of(layout);
    config.train.validate_every = 1;
    TestBench bench(config.model, DType::float32, KernelChoices());
    ParallelState const parallel = parallel_of(layout, world_);
    PipelineMemory const planned =
        plan_memory(config, parallel.mesh, vocabulary, bench.registries(), packs_of(config, parallel)).pipeline;
    TrainingEngine engine({config, bench.registries(), parallel, bench.execution(), vocabulary});
    engine.parameters().initialize(1);
    engine.pipeline().reserve(planned);
    auto const make = [&](std::int64_t index) { return ragged_pack(index, engine.context()); };
    TestMicroBatches const batch(micro_batches, make, 1000);
    for (int step = 0; step < 2; ++step) {
      engine.step(batch, step, 0.001);
      engine.pipeline().evaluate(batch,
                                 {.micro_batches = {0, micro_batches}, .loss = {}, .row_split = engine.row_split()});
    }
    PipelineMemory const used = engine.pipeline().peak_memory();
    EXPECT_GT(used.temporary, 0U);
    EXPECT_LE(used.temporary, with_margin(planned.temporary));
    EXPECT_LE(std::ranges::max(used.activations), with_margin(std::ranges::max(planned.activations)));
    EXPECT_LE(std::ranges::max(used.messages), with_margin(std::ranges::max(planned.messages)));
  }
}

// Steps whose number of micro-batches is not a multiple of the stages have more in flight in an interleaved schedule.
TEST_F(MemoryPlanTest, AStepOfAnyNumberOfMicroBatchesIsPlannedAsItRuns) {
  TestBench bench(config_of({}).model, DType::float32, KernelChoices());
  for (auto const& [stages, zero_bubble] : {std::pair(2, false), std::pair(4, false), std::pair(4, true)}) {
    Layout const layout{
        .shape = {stages, 1, 1, 1}, .pipeline_schedule = PipelineSchedule::interleaved, .zero_bubble = zero_bubble};
    Config const config = config_of(layout);
    Mesh const mesh(layout.shape, 0, layout.ranks());
    Pack const full = full_pack(config.train.micro_batch_tokens, config.model.max_length);
    auto const activations = [&](PlannedPacks const& packs) {
      return plan_memory(config, mesh, vocabulary, bench.registries(), packs).use.activations;
    };
    for (std::int64_t const number : {1, 3, 5, 9, 11, 13, 18, 19, 67, 102, 131}) {
      PlannedPacks run;
      run.steps.emplace_back(static_cast<std::size_t>(number), full);
      auto const planned = static_cast<double>(activations({.training = {full}, .micro_batches = {number}}));
      auto const needed = static_cast<double>(activations(run));
      EXPECT_GE(planned, needed) << describe(layout) << ", " << number << " micro-batches";
      EXPECT_LE(planned, 1.02 * needed) << describe(layout) << ", " << number << " micro-batches";
    }
  }
}

TEST_F(MemoryPlanTest, FrozenWeightsInBfloat16TakeLittle) {
  Layout const layout{.shape = {1, 1, 1, world_.size()}};
  Config config = config_of(layout);
  config.model.adapter.rank = 4;
  config.optimizer.trained = config.model.frozen.trained = {"*.lora_*"};
  MemoryReport const plain = compare(config, layout);
  config.model.frozen.rounded = true;
  MemoryReport const rounded = compare(config, layout);
  EXPECT_EQ(rounded.predicted.parameters, rounded.measured.parameters);
  EXPECT_EQ(rounded.predicted.kernels, rounded.measured.kernels);
  EXPECT_EQ(rounded.predicted.gradients, plain.predicted.gradients);
  EXPECT_LT(rounded.measured.parameters, plain.measured.parameters * 6 / 10);
  if (kernel_memory_space() == MemorySpace::host) {
    int const tenths = usable_cpu_level() >= CpuLevel::v4_amx ? 4 : 3;  // with AMX oneDNN pads a rank of 4 to a block
    EXPECT_LT(rounded.measured.kernels, plain.measured.kernels * tenths / 10) << "packed copies of adapters only";
  }
}

TEST_F(MemoryPlanTest, PredictsDeterministicSteps) {
  Layout const layout{.shape = {1, world_.size(), 1, 1}};
  Config config = config_of(layout);
  config.train.deterministic = true;
  expect_close(compare(config, layout));
}

// Plans that need no ranks: for a rank of a mesh that does not run.
TEST_F(MemoryPlanTest, SplitsTakeLessMemory) {
  auto const plan = [](Layout const& layout, int rank, int micro_batch = 400) {
    Config config = config_of(layout);
    config.train.micro_batch_tokens = micro_batch;
    Registries registries;
    register_built_in_layers(registries.layers);
    Mesh const mesh(layout.shape, rank, layout.ranks());
    return plan_memory(config, mesh, vocabulary, registries, full_packs(config, mesh)).use;
  };
  MemoryUse const one = plan({}, 0);
  EXPECT_EQ(one.state, 2 * one.parameters);
  EXPECT_EQ(plan({}, 0, 200).parameters, one.parameters);
  EXPECT_LT(plan({}, 0, 200).activations, one.activations * 6 / 10);

  MemoryUse const context = plan({.shape = {1, 1, 4, 1}}, 2);
  EXPECT_EQ(context.parameters, one.parameters);
  EXPECT_LT(context.activations, one.activations * 4 / 10);

  MemoryUse const tensor = plan({.shape = {1, 1, 1, 4}}, 3);
  EXPECT_LT(tensor.parameters, one.parameters * 3 / 10);
  EXPECT_LT(plan({.shape = {1, 1, 1, 4}, .sequence_parallel = true}, 3).activations, tensor.activations * 8 / 10);

  MemoryUse const sharded = plan({.shape = {1, 8, 1, 1}, .shard_optimizer = true}, 5);
  EXPECT_NEAR(static_cast<double>(sharded.state) / static_cast<double>(one.state), 1.0 / 8, 0.001);

  // The first stage keeps more micro-batches in flight, the last one has the logits.
  EXPECT_GT(plan({.shape = {4, 1, 1, 1}}, 0).activations, plan({.shape = {4, 1, 1, 1}}, 3).activations);
  EXPECT_THROW(plan({.shape = {16, 1, 1, 1}}, 0), ConfigError);
}

TEST_F(MemoryPlanTest, PredictsStateOfParametersWithASingleOwner) {
  Registries registries;
  register_built_in_layers(registries.layers);
  register_built_in_kernels(registries.kernels);
  int const ranks = world_.size();
  for (Layout const& layout :
       {Layout{.shape = {1, ranks, 1, 1}}, Layout{.shape = {1, ranks, 1, 1}, .shard_optimizer = true},
        Layout{.shape = {1, 1, 1, ranks}}}) {
    for (char const* const rule : {"muon", "soap", "adafactor", "lamb"}) {
      Config config = config_of(layout);
      config.optimizer.name = rule;
      ParallelState const parallel = parallel_of(layout, world_);
      TestBench bench(config.model, DType::float32, KernelChoices());
      TrainingEngine engine({config, registries, parallel, bench.execution(), vocabulary});
      std::int64_t const measured = measure_memory(engine).state;
      EXPECT_GT(measured, 0);
      EXPECT_EQ(plan_memory(config, parallel.mesh, vocabulary, registries, packs_of(config, parallel)).use.state,
                measured)
          << rule;
    }
  }
}

TEST_F(MemoryPlanTest, APlanCountsTheProductsOfUpdatesOfMatrices) {
  Registries registries;
  register_built_in_layers(registries.layers);
  register_built_in_kernels(registries.kernels);
  Config config = config_of({});
  config.optimizer.name = "muon";
  auto const work_of = [&](LayoutChoice const& layout) {
    RankWork const work =
        dry_run_stage(config, layout, 0, vocabulary, registries, full_packs(config, Mesh()).training.front());
    EXPECT_FALSE(work.updates.at("adamw").elements == 0);
    EXPECT_EQ(work.updates.at("adamw").matrices, 0);
    return work.updates.at("muon");
  };
  UpdateWork const one = work_of({});
  EXPECT_EQ(one.split_elements, 0);
  EXPECT_GT(one.functions.operations, 0);
  UpdateWork const split = work_of({.shape = {1, 1, 1, 2}});
  EXPECT_EQ(split.matrices, one.matrices);
  EXPECT_EQ(split.split_elements, one.elements / 2);
  EXPECT_EQ(split.functions.operations, one.functions.operations / 2);
  PlannedPacks const packs = full_packs(config, Mesh());
  std::int64_t const scratch = plan_memory(config, Mesh(), vocabulary, registries, packs).scratch;
  config.optimizer.name = "adam";
  EXPECT_GE(scratch, plan_memory(config, Mesh(), vocabulary, registries, packs).scratch);
}

TEST_F(MemoryPlanTest, FrozenParametersNeedNeitherGradientsNorStateNorProducts) {
  Registries registries;
  register_built_in_layers(registries.layers);
  Config config = config_of({});
  auto const use = [&] { return plan_memory(config, Mesh(), vocabulary, registries, full_packs(config, Mesh())).use; };
  auto const backward = [&] {
    RankWork const work =
        dry_run_stage(config, LayoutChoice{}, 0, vocabulary, registries, full_packs(config, Mesh()).training.front());
    double operations = 0;
    for (KernelCalls const& calls : work.backward.front().kernels) {
      operations += calls.calls * calls.cost.operations;
    }
    return operations;
  };
  MemoryUse const all = use();
  double const all_operations = backward();
  config.optimizer.groups = {{"still", {"encoder.*"}, {.frozen = true}}};
  MemoryUse const some = use();
  EXPECT_NEAR(static_cast<double>(some.parameters), static_cast<double>(all.parameters), 256);
  EXPECT_LT(some.gradients, all.gradients * 7 / 10);
  EXPECT_EQ(some.state, 2 * some.gradients);
  EXPECT_LT(some.activations, all.activations + all.activations / 100) << "the sums of norms are temporary";
  EXPECT_LT(backward(), 0.9 * all_operations);
}

TEST_F(MemoryPlanTest, ParametersThatAreUnfrozenLaterArePlannedForFromTheStart) {
  Registries registries;
  register_built_in_layers(registries.layers);
  Config config = config_of({});
  auto const use = [&] { return plan_memory(config, Mesh(), vocabulary, registries, full_packs(config, Mesh())).use; };
  MemoryUse const all = use();
  config.optimizer.groups = {{"late", {"encoder.*"}, {.frozen_until = 5}}};
  MemoryUse const late = use();
  EXPECT_EQ(late.parameters, all.parameters);
  EXPECT_EQ(late.gradients, all.gradients);
  EXPECT_EQ(late.state, all.state);
  EXPECT_GE(late.activations, all.activations);
  config.optimizer.groups.front().rule = {.frozen = true};
  EXPECT_GE(late.activations, use().activations) << "the first steps count, too";
  RankWork const work =
      dry_run_stage(config, LayoutChoice{}, 0, vocabulary, registries, full_packs(config, Mesh()).training.front());
  config.optimizer.groups.front().rule = {.frozen_until = 5};
  RankWork const later =
      dry_run_stage(config, LayoutChoice{}, 0, vocabulary, registries, full_packs(config, Mesh()).training.front());
  EXPECT_GT(later.trained(), work.trained()) << "the times are those of the last steps";
}

// A rank's share of a batch is smaller than a micro-batch, but the validation set is not divided by batches.
TEST_F(MemoryPlanTest, ValidationHasItsOwnMicroBatches) {
  Config config = config_of({});
  Registries registries;
  register_built_in_layers(registries.layers);
  auto const activations = [&](std::int64_t validate_every, std::int64_t tokens) {
    config.train.validate_every = validate_every;
    config.train.micro_batch_tokens = tokens;
    config.train.batch_tokens = 8 * 100;
    Mesh const mesh({1, 8, 1, 1}, 3, 8);
    DataBounds const bounds{.training = {.longest = 30}, .validation = {.tokens = 4000, .longest = 30}};
    return plan_memory(config, mesh, vocabulary, registries, full_packs(config, mesh, bounds)).use.activations;
  };
  EXPECT_GT(activations(1, 1600), 2 * activations(0, 1600));
  EXPECT_EQ(activations(1, 8000), activations(1, 4000)) << "more than all of the validation set";
}

// No dry run holds it, and no host could hold its packs.
TEST_F(MemoryPlanTest, AHugeMicroBatchIsPlannedByASmallerOne) {
  Registries registries;
  register_built_in_layers(registries.layers);
  auto const planned = [&](std::int64_t tokens) {
    Config config = config_of({});
    config.train.batch_tokens = config.train.micro_batch_tokens = tokens;
    return plan_memory(config, Mesh(), vocabulary, registries, full_packs(config, Mesh()));
  };
  constexpr std::int64_t dry_run_tokens = std::int64_t{1} << 18;
  constexpr std::int64_t huge = 2'000'000'000;
  MemoryPlan const plan = planned(huge);
  double const factor = static_cast<double>(huge) / dry_run_tokens;
  EXPECT_NEAR(static_cast<double>(plan.use.activations),
              factor * static_cast<double>(planned(dry_run_tokens).use.activations), 1e9);
  EXPECT_GT(plan.packs, huge * 6 * static_cast<std::int64_t>(sizeof(std::int32_t)));
  EXPECT_GT(plan.scratch, 0);
  EXPECT_EQ(plan.total(), plan.use.total() + plan.packs + plan.scratch + plan.margin());
  EXPECT_GE(plan.margin(), plan.use.total() / 20);
}

TEST_F(MemoryPlanTest, PacksOfAPrefixMaskHavePrefixes) {
  Config config = config_of({});
  config.model.stacks = {"decoder"};
  config.model.decoder.sublayers = {"self_attention", "feed_forward"};
  config.model.decoder.settings["self_attention.mask"] = {std::string("prefix"), "test"};
  TestBench bench(config_of({}).model, DType::float32, KernelChoices());
  PlannedPacks const packs = full_packs(config, Mesh(), {.prefixes = true});
  EXPECT_GT(plan_memory(config, Mesh(), vocabulary, bench.registries(), packs).use.activations, 0);
}

TEST_F(MemoryPlanTest, TheTableHasEveryRankOrFoldsThem) {
  auto const mebibytes = [](std::int64_t count) { return count << 20; };
  MemoryReport own;
  own.predicted = {
      .parameters = mebibytes(1), .gradients = mebibytes(2), .state = mebibytes(3), .activations = mebibytes(4)};
  own.measured = {.parameters = mebibytes(1),
                  .gradients = mebibytes(2),
                  .state = mebibytes(3),
                  .activations = mebibytes(world_.rank() == 0 ? 7 : 5)};
  own.resident = mebibytes(100 + world_.rank());
  auto const ranks = gather_values(world_, own);
  ASSERT_EQ(ranks.size(), static_cast<std::size_t>(world_.size()));
  EXPECT_EQ(ranks.front().measured.activations, mebibytes(7));
  EXPECT_EQ(ranks[static_cast<std::size_t>(world_.rank())].resident, own.resident);
  expect_contains(describe_memory(ranks), {"rank 0", "100.0"});
  if (world_.size() > 2) {
    expect_contains(describe_memory(ranks), "ranks 1 to " + std::to_string(world_.size() - 1));
  }
  std::vector<MemoryReport> many(100);
  for (std::size_t rank = 0; rank < many.size(); ++rank) {
    many[rank].predicted.parameters = mebibytes(static_cast<std::int64_t>(rank) + 20);
  }
  std::string const table = describe_prediction(many);
  expect_contains(table, {"20.0", "119.0"});
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3);
  EXPECT_GT(peak_resident_bytes(), mebibytes(1));
}

}  // namespace
}  // namespace heddle
