#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/dist/planning/planner.hpp>
#include <heddle/dist/training/training_engine.hpp>

#include "dist_fixture.hpp"
#include "planning/planned_run.hpp"

namespace heddle {
namespace {

using testing::Field;
using testing::Truly;

Config small_config() {
  return planned_config({});
}

LayoutChoice choice_of(Layout layout) {
  layout.micro_batch_tokens = micro_batch_tokens;
  return layout;
}

/// The same number of micro-batches on each data rank, all equal or all different.
class RaggedSamples : public BatchSamples {
 public:
  explicit RaggedSamples(bool equal) : equal_(equal) {}

  int batches() const override { return 1; }
  std::unique_ptr<MicroBatchSource> cut(int /*batch*/, MicroBatchCut const& cut) const override {
    auto const make = [equal = equal_, split = cut.context](std::int64_t index) {
      return ragged_pack(equal ? 0 : index, split);
    };
    Pack const whole = ragged_pack(0);
    std::int64_t const tokens = micro_batches * cut.data.ranks * (whole.source_rows.tokens + whole.target_rows.tokens);
    return std::make_unique<TestMicroBatches<decltype(make)>>(micro_batches, make, tokens);
  }

 private:
  bool equal_;
};

/// The last data rank has twice as many micro-batches as the others.
class UnevenSamples final : public RaggedSamples {
 public:
  UnevenSamples() : RaggedSamples(true) {}

  std::unique_ptr<MicroBatchSource> cut(int batch, MicroBatchCut const& cut) const override {
    bool const is_last = cut.data.ranks > 1 && cut.data.rank + 1 == cut.data.ranks;
    std::shared_ptr<MicroBatchSource> const whole = RaggedSamples::cut(batch, cut);
    auto const make = [whole](std::int64_t) { return whole->micro_batch(0); };
    return std::make_unique<TestMicroBatches<decltype(make)>>((is_last ? 2 : 1) * micro_batches, make);
  }
};

class CountingSamples final : public RaggedSamples {
 public:
  CountingSamples() : RaggedSamples(false) {}

  PlannedPacks largest(Config const& config, Mesh const& mesh) const override {
    ++planned;
    return RaggedSamples::largest(config, mesh);
  }

  mutable int planned = 0;  ///< ranks whose memory was planned exactly
};

class PlannerTest : public DistTest {
 protected:
  Planner planner_of(Config const& config, Machines const& machines, BatchSamples const& samples) {
    return Planner({.config = config,
                    .registries = bench_.registries(),
                    .vocabulary = vocabulary,
                    .machines = machines,
                    .samples = samples,
                    .batch_tokens = config.train.batch_tokens,
                    .longest_sequence = config.model.max_length,
                    .network = network_,
                    .times = times_});
  }

  std::vector<Layout> layouts() const {
    auto const plain = PipelineSchedule::one_forward_one_backward;
    switch (world_.size()) {
      case 1:
        return {Layout{}};
      case 2:
        return {{.shape = {2, 1, 1, 1}},
                {.shape = {2, 1, 1, 1}, .pipeline_schedule = PipelineSchedule::interleaved},
                {.shape = {1, 2, 1, 1}},
                {.shape = {1, 2, 1, 1}, .shard_optimizer = true},
                {.shape = {1, 1, 2, 1}},
                {{1, 1, 2, 1}, false, ContextMode::ulysses, plain, true},
                {.shape = {1, 1, 1, 2}},
                {.shape = {1, 1, 1, 2}, .sequence_parallel = true},
                {.shape = MeshShape(1, 1, 1, 2).with_encoder_tensor(1)}};
      case 4:
        return {{.shape = {4, 1, 1, 1}}, {{2, 1, 1, 2}, true, ContextMode::ring, plain, false}};
      default:
        return {{{2, world_.size() / 8, 2, 2}, true, ContextMode::ring, plain, true}};
    }
  }

  /// Messages between stages may still be on their way when the next pass takes memory.
  static void expect_equal(MemoryUse const& planned, MemoryUse const& measured, bool stages) {
    MemoryUse others = measured;
    others.activations = planned.activations;
    EXPECT_EQ(planned, others);
    EXPECT_NEAR(static_cast<double>(planned.activations) / static_cast<double>(measured.activations), 1,
                stages ? 0.05 : 0);
  }

  TestBench bench_{small_config().model, DType::float32, KernelChoices()};
  NetworkModel network_ = NetworkModel::uniform(1e-6, 1e-9, "");
  KernelTimes times_;
};

std::int64_t all_bytes(Ledger const& ledger) {
  return std::accumulate(ledger.begin(), ledger.end(), std::int64_t{0},
                         [](std::int64_t sum, Traffic const& traffic) { return sum + traffic.bytes; });
}

TEST_F(PlannerTest, PredictsTheMemoryAndTheTrafficOfARun) {
  for (Layout const& layout : layouts()) {
    SCOPED_TRACE(describe(layout));
    LayoutChoice const choice = choice_of(layout);
    Config const config = planned_config(layout);
    RaggedSamples const samples(true);
    Planner planner = planner_of(config, {.nodes = 1, .ranks_per_node = world_.size()}, samples);
    LayoutPlan const plan = planner.estimate(choice);
    std::vector<MemoryNeed> const expected = planner.memory_of_ranks(choice, true);

    ParallelState const parallel = parallel_of(layout, world_);
    TestBench bench(config.model, DType::float32, KernelChoices());  // its kernels keep nothing yet
    TrainingEngine engine({config, bench.registries(), parallel, bench.execution(), vocabulary});
    engine.parameters().initialize(1);
    auto const batch = samples.cut(0, {.max_tokens = micro_batch_tokens,
                                       .data = {parallel.data.rank(), parallel.data.size()},
                                       .context = engine.context()});
    TrafficByGroup const before = traffic_of(parallel);
    engine.step(*batch, 0, 1e-3);
    TrafficByGroup const after = traffic_of(parallel) - before;
    int const stage = parallel.pipeline.rank();
    expect_equal(expected[static_cast<std::size_t>(world_.rank())].use, measure_memory(engine),
                 layout.size(MeshAxis::pipeline) > 1);
    if (world_.rank() != dry_run_rank(choice, stage)) {
      continue;
    }
    for (auto const& [name, ledger] : {std::pair("context", after[TrafficGroup::context]),
                                       {"tensor", after[TrafficGroup::tensor]},
                                       {"replicas", after[TrafficGroup::replicas]},
                                       {"encoder_context", after[TrafficGroup::encoder_context]},
                                       {"encoder_tensor", after[TrafficGroup::encoder_tensor]}}) {
      auto const found = std::ranges::find(plan.groups, name, &GroupTraffic::name);
      std::int64_t const planned = found == plan.groups.end() ? 0 : found->bytes;
      if (layout.size(MeshAxis::pipeline) == 1) {
        // Context ranks have unequal parts of a sentence; the plan has the largest.
        EXPECT_NEAR(static_cast<double>(planned), static_cast<double>(all_bytes(ledger)),
                    layout.context(Grid::encoder) > 1 ? 0.01 * static_cast<double>(planned) : 0)
            << name;
      } else {  // the plan has the stage that communicates longest
        EXPECT_GE(planned, all_bytes(ledger)) << name;
      }
    }
  }
}

TEST_F(PlannerTest, EstimatesTheMemoryThatTheRunPlans) {
  for (Layout const& layout : layouts()) {
    SCOPED_TRACE(describe(layout));
    LayoutChoice const choice = choice_of(layout);
    Config const config = planned_config(layout);
    RaggedSamples const samples(false);
    Planner planner = planner_of(config, {.nodes = 1, .ranks_per_node = world_.size()}, samples);
    LayoutPlan plan = planner.estimate(choice);
    auto const estimated = static_cast<double>(plan.node_bytes);
    std::vector<MemoryNeed> const ranks = planner.plan_exactly(plan);
    EXPECT_NEAR(estimated / static_cast<double>(plan.node_bytes), 1, 0.15);
    std::int64_t bytes = 0;
    for (int rank = 0; rank < world_.size(); ++rank) {
      Mesh const mesh(layout.shape, rank, world_.size());
      MemoryNeed const& planned = ranks[static_cast<std::size_t>(rank)];
      EXPECT_EQ(planned.use, plan_memory(config, mesh, vocabulary, bench_.registries(), full_packs(config, mesh)).use);
      EXPECT_GE(plan.stages[static_cast<std::size_t>(mesh.coordinate(MeshAxis::pipeline))].activations,
                planned.use.activations);
      bytes += planned.total();
    }
    EXPECT_EQ(plan.node_bytes, bytes);
  }
}

TEST_F(PlannerTest, EstimatesTheMemoryOfDividedExperts) {
  std::string const experts = "mixture_of_experts = { experts = 32 }\n";
  ModelConfig const layers =
      parse_config("[model.encoder]\nsublayers = [\"self_attention\", \"mixture_of_experts\"]\n" + experts +
                       "[model.decoder]\nsublayers = [\"self_attention\", " +
                       "\"cross_attention\", \"mixture_of_experts\"]\n" + experts,
                   "test")
          .model;
  for (int const expert : {2, 4}) {
    SCOPED_TRACE(expert);
    Layout const layout{.shape = {1, 4, 1, 1}, .shard_optimizer = true, .expert = expert};
    Config config = planned_config(layout);
    ModelConfig const sizes = std::exchange(config.model, layers);
    config.model.d_model = sizes.d_model;
    config.model.d_ff = sizes.d_ff;
    config.model.heads = sizes.heads;
    config.model.max_length = sizes.max_length;
    RaggedSamples const samples(false);
    Planner planner = planner_of(config, {.nodes = 1, .ranks_per_node = 4}, samples);
    LayoutPlan plan = planner.estimate(choice_of(layout));
    auto const estimated = static_cast<double>(plan.node_bytes);
    planner.plan_exactly(plan);
    EXPECT_NEAR(estimated / static_cast<double>(plan.node_bytes), 1, 0.15);
  }
}

TEST_F(PlannerTest, TheDataRankWithTheMostTokensDecides) {
  Machines const machines{.nodes = 1, .ranks_per_node = 2};
  LayoutChoice const two = choice_of({.shape = {1, 2, 1, 1}});
  LayoutPlan const even = planner_of(small_config(), machines, RaggedSamples(true)).estimate(two);
  LayoutPlan const uneven = planner_of(small_config(), machines, UnevenSamples()).estimate(two);
  EXPECT_EQ(uneven.micro_batches, 2 * even.micro_batches);
  EXPECT_GT(uneven.kernel_seconds, 1.5 * even.kernel_seconds);
}

TEST_F(PlannerTest, RejectsLayoutsByTheLimitThatTheyBreak) {
  if (world_.rank() > 0) {
    return;  // a plan needs no ranks
  }
  Config config = small_config();
  config.model.encoder.layers = 2;
  config.model.decoder.layers = 2;
  config.train.batch_tokens = 4 * micro_batch_tokens;
  RaggedSamples const samples(false);
  auto const best = [&](std::int64_t memory) {
    Machines const machines{.nodes = 6, .ranks_per_node = 2, .node_memory = memory};
    return planner_of(config, machines, samples).best_layouts(5);
  };
  Plan const roomy = best(std::int64_t{1} << 40);
  ASSERT_EQ(roomy.best.size(), 5U);
  EXPECT_GT(roomy.fitting, 5);
  double const fastest = std::ranges::min(roomy.best, {}, &LayoutPlan::step_seconds).step_seconds;
  for (LayoutPlan const& plan : roomy.best) {
    EXPECT_LE(plan.step_seconds, fastest * (1 + plan.error()));
    EXPECT_GE(complexity(plan.layout), complexity(roomy.best.front().layout));
  }
  EXPECT_THAT(roomy.rejections,
              Contains(Field(&Rejection::limit, "parallel.tensor does not divide the ranks of a node")));
  EXPECT_THAT(roomy.rejections,
              Contains(Field(&Rejection::limit, "the model does not support this parallel.tensor")));  // 8 heads
  EXPECT_THAT(roomy.rejections, Not(Contains(Field(&Rejection::limit, memory_limit))));

  Plan const tight = best(roomy.best.front().node_bytes - 1);
  EXPECT_THAT(tight.rejections, Contains(Field(&Rejection::limit, memory_limit)));
  for (LayoutPlan const& plan : tight.best) {
    EXPECT_LT(plan.node_bytes, roomy.best.front().node_bytes);
  }
  Plan const none = best(1000);
  EXPECT_TRUE(none.best.empty());
  EXPECT_EQ(none.fitting, 0);
  expect_contains(describe_best(none, 1000), "rejected: a node has too little memory; for example ");
  EXPECT_THAT(describe_refusal(none, {.nodes = 6, .ranks_per_node = 2}),
              AllOf(StartsWith("no layout of 12 ranks fits: a node has too little memory for "),
                    HasSubstr(" MiB of 0.0 MiB; more nodes (--nodes), nodes with more memory (--memory), a "
                              "smaller model (model.d_model, ")));
}

TEST_F(PlannerTest, PlansTheMemoryOfEachListedLayoutOnce) {
  if (world_.rank() > 0) {
    return;
  }
  Config const config = small_config();
  CountingSamples const samples;
  Machines const machines{.nodes = 1, .ranks_per_node = 2, .node_memory = std::int64_t{1} << 40};
  Plan const plan = planner_of(config, machines, samples).best_layouts(1000);
  EXPECT_EQ(std::ssize(plan.best), plan.fitting);
  EXPECT_EQ(samples.planned, 2 * plan.fitting);
}

TEST_F(PlannerTest, ABatchOfTooFewTokensIsNamed) {
  if (world_.rank() > 0) {
    return;
  }
  Config config = small_config();
  config.model.max_length = 200;
  RaggedSamples const samples(false);
  Plan const plan =
      planner_of(config, {.nodes = 1, .ranks_per_node = 64, .node_memory = std::int64_t{1} << 40}, samples)
          .best_layouts(1);
  EXPECT_THAT(
      plan.rejections,
      Contains(
          AllOf(Field(&Rejection::limit, batch_limit),
                Field(&Rejection::example,
                      HasSubstr("the batch of 2,400 tokens has 37 tokens a rank (64 ranks), fewer than one sequence of "
                                "model.max_length = 200; with train.batch_tokens = 12,800 there is one each")))));
  EXPECT_THAT(describe_refusal(plan, {.nodes = 1, .ranks_per_node = 64}),
              StartsWith("no layout of 64 ranks fits: the batch of 2,400 tokens has 37 tokens a rank"));
  Plan const max{.rejections = {{batch_limit, "the batch has too few tokens", 60}, {"another limit", "x", 3}}};
  EXPECT_THAT(describe_best(max, 100), StartsWith("60 of the layouts are left out: the batch has too few tokens\n"));
  Plan const few{.fitting = 100, .rejections = {{batch_limit, "the batch has too few tokens", 60}}};
  expect_contains(describe_best(few, 100), "60 layouts rejected: the batch has too few tokens; for example the batch");
}

TEST_F(PlannerTest, StageLayersStayWhereTheStagesAndTheScheduleDo) {
  Config config = small_config();
  config.parallel.pipeline = 2;
  config.parallel.pipeline_schedule = PipelineSchedule::interleaved;
  config.parallel.stage_layers = {1, 3, 3, 1};
  LayoutChoice choice = choice_of({.shape = {2, 1, 1, 1}, .pipeline_schedule = PipelineSchedule::interleaved});
  EXPECT_EQ(with_layout(config, choice).parallel.stage_layers, config.parallel.stage_layers);
  choice.pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  EXPECT_TRUE(with_layout(config, choice).parallel.stage_layers.empty());
  choice = choice_of({.shape = {4, 1, 1, 1}, .pipeline_schedule = PipelineSchedule::interleaved});
  EXPECT_TRUE(with_layout(config, choice).parallel.stage_layers.empty());
}

TEST_F(PlannerTest, SimplerLayoutsHaveFewerParts) {
  EXPECT_EQ(complexity(choice_of({.shape = {1, 8, 1, 1}})), 0);
  EXPECT_EQ(complexity(choice_of({.shape = {1, 8, 1, 1}, .shard_optimizer = true})), 1);
  EXPECT_EQ(complexity(choice_of({.shape = {1, 1, 1, 8}, .sequence_parallel = true})), 3);
  EXPECT_EQ(complexity(choice_of({.shape = {1, 1, 2, 4}})), 4);
  Layout const grids{.shape = MeshShape(1, 1, 1, 8).with_encoder_tensor(1)};
  EXPECT_EQ(complexity(choice_of(grids)), 3);
  Layout ulysses = grids;
  ulysses.context_mode = ContextMode::ulysses;
  EXPECT_NE(describe(ulysses), describe(grids));
}

TEST_F(PlannerTest, TheTableOfNodesHasSpeedEfficiencyAndTime) {
  if (world_.rank() > 0) {
    return;
  }
  Config const config = small_config();
  RaggedSamples const samples(false);
  Planner planner =
      planner_of(config, {.nodes = 3, .ranks_per_node = 1, .node_memory = std::int64_t{1} << 40}, samples);
  std::vector<NodesPlan> plans = planner.best_by_nodes();
  ASSERT_EQ(plans.size(), 3U);
  EXPECT_EQ(plans[2].nodes, 3);
  ASSERT_TRUE(plans[1].best);
  EXPECT_EQ(plans[1].best->layout.ranks(), 2);
  EXPECT_EQ(planner.best_layouts(1).best.front().layout.ranks(), 3) << "the planner's own machines are as before";
  plans[0].best.reset();
  plans[1].best->step_seconds = 0.5;
  plans[2].best->step_seconds = 0.4;
  std::string const table = describe_nodes(plans, 3000, 36000);
  expect_contains(table, "none fits");
  EXPECT_THAT(table, testing::ContainsRegex(" 2 +6,000 +100 % +5.00 +10.0 "));
  EXPECT_THAT(table, testing::ContainsRegex(" 3 +7,500 +83 % +4.00 +12.0 "));
}

// Interleaved stages hold a part of the encoder and one of the decoder.
TEST_F(PlannerTest, OnlyModelsOfTwoStacksAreInterleaved) {
  Config config = small_config();
  auto const interleaved = [&] {
    auto const layouts = list_layouts(config, describe_model(config.model, bench_.registries().layers),
                                      {.ranks_per_node = 4}, config.model.max_length, 16 * micro_batch_tokens)
                             .layouts;
    EXPECT_THAT(layouts,
                Contains(Truly([](LayoutChoice const& layout) { return layout.size(MeshAxis::pipeline) > 1; })));
    return std::ranges::count(layouts, PipelineSchedule::interleaved, &LayoutChoice::pipeline_schedule);
  };
  EXPECT_GT(interleaved(), 0);
  config.model.stacks = {"decoder"};
  EXPECT_EQ(interleaved(), 0);
}

// A rule of whole parameters, and validation by translation, need on a rank what sharded parameters leave nowhere.
TEST_F(PlannerTest, ParametersAreNotShardedWhereARankNeedsThemWhole) {
  Config config = small_config();
  config.train.validate_bleu = false;
  config.train.validate_every = 1;
  KernelRegistries const& kernels = bench_.registries().kernels;
  auto const sharded = [&] {
    LayoutCandidates const found =
        list_layouts(config, describe_model(config.model, bench_.registries().layers), {.ranks_per_node = 4},
                     config.model.max_length, 16 * micro_batch_tokens, undivided_reason(config, kernels));
    bool const refused = std::ranges::count(found.rejections, "parallel.shard_parameters and expert cannot be used",
                                            &Rejection::limit) > 0;
    auto const layouts = std::ranges::count(found.layouts, true, &LayoutChoice::shard_parameters);
    EXPECT_EQ(refused, layouts == 0);
    return layouts;
  };
  EXPECT_GT(sharded(), 0);
  config.optimizer.name = "muon";
  EXPECT_EQ(sharded(), 0);
  config.optimizer.name = "adam";
  config.train.validate_bleu = true;
  EXPECT_EQ(sharded(), 0);
}

// Stages with equal layers share their work, but only those of equally long pipelines: the number of stages that hold
// a shared table differs.
TEST_F(PlannerTest, WorkDoesNotDependOnTheLayoutsPlannedBefore) {
  Config config = small_config();
  config.model.positions = Positions::relative_buckets;  // a table that all stages of a stack hold
  config.model.encoder.layers = 8;
  config.model.decoder.layers = 8;
  RaggedSamples const samples(true);
  Planner planner = planner_of(config, {}, samples);
  for (int const stages : {12, 8, 6, 5}) {
    LayoutChoice choice = choice_of({.shape = {stages, 4, 1, 1}});
    Planner fresh = planner_of(config, {}, samples);
    for (int stage = 0; stage < stages; ++stage) {
      EXPECT_EQ(planner.work(choice, stage).max_holders, fresh.work(choice, stage).max_holders)
          << "stage " << stage << " of " << stages;
    }
  }
}

// One rank without communication: the step is the sum of its kernels' times.
TEST_F(PlannerTest, AddsUpKernels) {
  Config const config = small_config();
  RaggedSamples const samples(true);
  LayoutChoice const one = choice_of({});
  RankWork const work = planner_of(config, {}, samples).work(one, 0);
  auto const time_passes = [&](double first_seconds) {
    double calls = 0;
    for (auto const* const passes : {&work.forward, &work.backward}) {
      for (KernelCalls const& kernel : passes->front().kernels) {
        times_.add(kernel.kind, {.cost = kernel.cost, .seconds = 1, .first_seconds = first_seconds});
        calls += kernel.calls;
      }
    }
    return calls;
  };
  double const calls = time_passes(3);
  auto const update = update_kernels(work, 1);
  for (KernelCalls const& kernel : update) {
    times_.add(kernel.kind, {.cost = kernel.cost, .seconds = 1, .first_seconds = 1});
  }
  LayoutPlan const plan = planner_of(config, {}, samples).estimate(one);
  EXPECT_EQ(plan.micro_batches, micro_batches);
  EXPECT_DOUBLE_EQ(plan.assumed_share, 0);
  auto const updates = static_cast<double>(update.size());
  EXPECT_NEAR(plan.step_seconds, (micro_batches + 2) * calls + updates, 1e-6 * calls);

  // Calls after an update that were measured to be the faster ones, as on a busy machine: packing takes no time.
  time_passes(0);
  EXPECT_NEAR(planner_of(config, {}, samples).estimate(one).step_seconds, micro_batches * calls + updates,
              1e-6 * calls);
}

}  // namespace
}  // namespace heddle
