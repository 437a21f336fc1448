#include <gmock/gmock.h>

#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/dist/planning/planner.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <numeric>

#include "dist_fixture.hpp"
#include "golden_model.hpp"
#include "layouts.hpp"
#include "test_ids.hpp"
#include "test_micro_batches.hpp"

namespace heddle {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::Not;
using testing::Truly;

constexpr VocabularySizes vocabulary{501, 403, false};
constexpr std::int64_t micro_batches = 6;  // of each data rank
constexpr std::int64_t micro_batch_tokens = 400;

Config small_config() {
  Config config;
  config.model.encoder.layers = 4;
  config.model.decoder.layers = 4;
  config.model.d_model = 64;
  config.model.d_ff = 128;
  config.model.heads = 8;
  config.model.max_length = 64;
  config.train.validate_every = 0;
  config.train.micro_batch_tokens = micro_batch_tokens;
  config.train.batch_tokens = micro_batches * micro_batch_tokens;
  return config;
}

LayoutChoice choice_of(Layout const& layout) {
  return {layout.sizes,    layout.sequence_parallel, layout.mode,
          layout.schedule, layout.shard_optimizer,   micro_batch_tokens};
}

/// Ragged pairs that fill a micro-batch.
std::vector<SentencePair> pairs_of(std::int64_t index) {
  std::vector<SentencePair> pairs;
  std::int64_t used = 0;
  for (auto sample = static_cast<std::int32_t>(100 * index);; ++sample) {
    std::int64_t const length = 4 + sample * 7 % 31;
    used += length;
    if (used > micro_batch_tokens) {
      return pairs;
    }
    pairs.push_back({sample, std::vector<std::int32_t>(static_cast<std::size_t>(length - 1), 5),
                     std::vector<std::int32_t>(static_cast<std::size_t>(length - 1 - sample % 2), 7)});
  }
}

/// The same number of micro-batches on each data rank, all equal or all different.
class RaggedSamples final : public BatchSamples {
 public:
  explicit RaggedSamples(bool equal) : equal_(equal) {}

  int batches() const override { return 1; }
  std::unique_ptr<MicroBatchSource> cut(int /*batch*/, MicroBatchCut const& cut) const override {
    auto const make = [equal = equal_, split = cut.context](std::int64_t index) {
      return make_pack(pairs_of(equal ? 0 : index), test_ids, split);
    };
    Pack const whole = make_pack(pairs_of(0), test_ids);
    std::int64_t const tokens = micro_batches * cut.data.ranks * (whole.source_rows.tokens + whole.target_rows.tokens);
    return std::make_unique<TestMicroBatches<decltype(make)>>(micro_batches, make, tokens);
  }

 private:
  bool equal_;
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
        return {{.sizes = {2, 1, 1, 1}}, {.sizes = {2, 1, 1, 1}, .schedule = PipelineSchedule::interleaved},
                {.sizes = {1, 2, 1, 1}}, {.sizes = {1, 2, 1, 1}, .shard_optimizer = true},
                {.sizes = {1, 1, 2, 1}}, {{1, 1, 2, 1}, false, ContextMode::ulysses, plain, true},
                {.sizes = {1, 1, 1, 2}}, {.sizes = {1, 1, 1, 2}, .sequence_parallel = true}};
      case 4:
        return {{.sizes = {4, 1, 1, 1}}, {{2, 1, 1, 2}, true, ContextMode::ring, plain, false}};
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
    Config config = with_layout(small_config(), choice);
    config.train.batch_tokens *= layout.sizes[1];
    RaggedSamples const samples(true);
    Planner planner = planner_of(config, {.nodes = 1, .ranks_per_node = world_.size()}, samples);
    LayoutPlan const plan = planner.estimate(choice);
    std::vector<MemoryUse> const expected = planner.expected_memory(choice);

    ParallelState const parallel = parallel_of(layout, world_);
    TestBench bench(config.model, DType::float32, KernelChoices());  // its kernels keep nothing yet
    TrainingEngine engine({config, bench.registries(), parallel, bench.execution(), vocabulary});
    engine.parameters().initialize(1);
    auto const batch = samples.cut(0, {.most_tokens = micro_batch_tokens,
                                       .data = {parallel.data.rank(), parallel.data.size()},
                                       .context = engine.context()});
    TrafficByGroup const before = traffic_of(parallel);
    engine.step(*batch, 0, 1e-3);
    TrafficByGroup const after = traffic_of(parallel) - before;
    int const stage = parallel.pipeline.rank();
    if (world_.rank() != rehearsed_rank(choice, stage)) {
      continue;
    }
    expect_equal(expected[static_cast<std::size_t>(stage)], measure_memory(engine), layout.sizes[0] > 1);
    for (auto const& [name, ledger] : {std::pair("context", after[3]), {"tensor", after[4]}, {"replicas", after[5]}}) {
      auto const found = std::ranges::find(plan.groups, name, &GroupTraffic::name);
      std::int64_t const planned = found == plan.groups.end() ? 0 : found->bytes;
      if (layout.sizes[0] == 1) {
        // Context ranks have unequal parts of a sentence; the plan has the largest.
        EXPECT_NEAR(static_cast<double>(planned), static_cast<double>(all_bytes(ledger)),
                    layout.sizes[2] > 1 ? 0.01 * static_cast<double>(planned) : 0)
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
    Config config = with_layout(small_config(), choice);
    config.train.batch_tokens *= layout.sizes[1];
    RaggedSamples const samples(false);
    Planner planner = planner_of(config, {.nodes = 1, .ranks_per_node = world_.size()}, samples);
    LayoutPlan plan = planner.estimate(choice);
    auto const estimated = static_cast<double>(plan.node_bytes);
    planner.plan_exactly(plan);
    EXPECT_NEAR(estimated / static_cast<double>(plan.node_bytes), 1, 0.15);
    for (int stage = 0; stage < layout.sizes[0]; ++stage) {
      Mesh const mesh(layout.sizes, rehearsed_rank(choice, stage), world_.size());
      EXPECT_EQ(plan.stages[static_cast<std::size_t>(stage)],
                plan_memory(config, mesh, vocabulary, bench_.registries()).use);
    }
  }
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
  EXPECT_TRUE(std::ranges::is_sorted(roomy.best, {}, &LayoutPlan::step_seconds));
  EXPECT_THAT(roomy.rejections, Contains(Field(&Rejection::limit, "the ranks of a node, with parallel.tensor")));
  EXPECT_THAT(roomy.rejections, Contains(Field(&Rejection::limit, "the model, with parallel.tensor")));  // 8 heads
  EXPECT_THAT(roomy.rejections, Not(Contains(Field(&Rejection::limit, "the memory of a node"))));

  Plan const tight = best(roomy.best.front().node_bytes - 1);
  EXPECT_THAT(tight.rejections, Contains(Field(&Rejection::limit, "the memory of a node")));
  for (LayoutPlan const& plan : tight.best) {
    EXPECT_LT(plan.node_bytes, roomy.best.front().node_bytes);
  }
  Plan const none = best(1000);
  EXPECT_TRUE(none.best.empty());
  EXPECT_EQ(none.fitting, 0);
  EXPECT_THAT(describe_best(none, 1000), HasSubstr("rejected by the memory of a node"));
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
    LayoutChoice choice = choice_of({.sizes = {stages, 4, 1, 1}});
    Planner fresh = planner_of(config, {}, samples);
    for (int stage = 0; stage < stages; ++stage) {
      EXPECT_EQ(planner.work(choice, stage).most_holders, fresh.work(choice, stage).most_holders)
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
  auto const update = update_kernels(work, work.parameters);
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
