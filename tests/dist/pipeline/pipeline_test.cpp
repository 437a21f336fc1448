#include <heddle/core/layers/registries.hpp>
#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/dist/pipeline/pipeline.hpp>
#include <heddle/kernels/register.hpp>

#include "dist_fixture.hpp"
#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "pipeline_times.hpp"
#include "test_ids.hpp"
#include "test_micro_batches.hpp"

namespace heddle {
namespace {

using Gradients = std::map<std::string, std::vector<double>>;

/// A case's model and how it is cut.
struct Case {
  ModelConfig model;
  ParallelConfig parallel;
  VocabularySizes vocabulary{13, 13, true};
  DType dtype = DType::float64;
  KernelChoices kernels = reference_kernels();
};

Case small_case(int stages, PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward) {
  Case result;
  result.model.encoder.layers = 4;
  result.model.decoder.layers = 4;
  result.model.d_model = 8;
  result.model.d_ff = 12;
  result.model.heads = 2;
  result.model.max_length = 512;
  result.model.dropout = 0.3;
  result.model.attention_dropout = 0.1;
  result.model.activation_dropout = 0.1;
  result.parallel.pipeline = stages;
  result.parallel.pipeline_schedule = schedule;
  return result;
}

/// A rank's parts of a model, ready to run.
struct Stage {
  Stage(Case const& given, ParallelState const& state) : config(given.model), parallel(state), parameters(state.mesh) {
    register_built_in_kernels(registries.kernels);
    register_built_in_layers(registries.layers);
    KernelSource const kernels{registries.kernels, choices};
    PipelinePlan const plan =
        plan_pipeline(describe_model(config, registries.layers), given.parallel, given.vocabulary.target);
    LayerSpec const spec{"", Side::source, config, given.dtype, kernels, parallel, parameters};
    model = std::make_unique<Model>(spec, registries.layers, given.vocabulary, plan);
    parameters.allocate(given.dtype);
    parameters.initialize(7);
    pipeline = std::make_unique<Pipeline>(parallel.pipeline, *model, kernels.select<TensorOps>({given.dtype}),
                                          execution, Pipeline::Options{.split_backward = given.parallel.zero_bubble});
  }

  ModelConfig config;
  KernelChoices choices;
  Registries registries;
  ParallelState parallel;
  ParameterSet parameters;
  Arena scratch;
  Execution execution{Kokkos::DefaultExecutionSpace(), scratch};
  std::unique_ptr<Model> model;
  std::unique_ptr<Pipeline> pipeline;
  PassTimes passes;  ///< of the last call of train
};

/// Micro-batch `index`: packs differ in their numbers of sentences and tokens, `longer` tokens apart.
Pack pack_of(std::int64_t index, int longer = 0) {
  std::vector<Sample> pairs;
  for (std::int64_t sentence = 0; sentence < 1 + index % 3; ++sentence) {
    Sample pair{static_cast<std::int32_t>(10 * index + sentence), {}, {}};
    auto const number = static_cast<int>(index + sentence);
    for (int position = 0; position < 2 + number % 4 + longer; ++position) {
      pair.source.tokens.push_back(3 + (number * 7 + position * 5) % 10);
    }
    for (int position = 0; position < 1 + (3 * number) % 5 + longer; ++position) {
      pair.target.tokens.push_back(3 + (number * 3 + position * 7) % 10);
    }
    pairs.push_back(pair);
  }
  return make_pack(pairs, test_ids);
}

PipelineStep step_of(std::int64_t micro_batches) {
  PipelineStep step;
  step.micro_batches = {0, micro_batches};
  step.loss = {0.1, 0.125};
  step.seed = 5;
  step.step = 3;
  return step;
}

LossSums train(Stage& stage, std::int64_t micro_batches, int longer = 0, GradientProgress* gradients = nullptr) {
  auto const make = [longer](std::int64_t index) { return pack_of(index, longer); };
  PipelineStep step = step_of(micro_batches);
  step.gradients = gradients;
  step.observer = &stage.passes;
  stage.passes.clear();
  Tensor const losses = stage.pipeline->train(TestMicroBatches(micro_batches, make), step);
  LossSums sums;
  for (LossSums const& loss : fetch_loss_sums(losses)) {
    sums += loss;
  }
  return sums;
}

/// Records each gradient when the last of its parameter's uses is done.
class FinalGradients final : public GradientProgress {
 public:
  explicit FinalGradients(ParameterSet const& parameters) {
    for (Parameter const* const parameter : parameters.uses()) {
      ++uses_left_[parameter];
    }
  }

  void use_done(Parameter const& parameter) override {
    if (--uses_left_[&parameter] == 0) {
      when_final_[&parameter] = heddle::values(parameter.gradient);
    }
  }
  void progress() override {}

  /// Every gradient has become final, and has not changed since.
  void expect_right(ParameterSet const& parameters) const {
    for (Parameter const& parameter : parameters.all()) {
      auto const found = when_final_.find(&parameter);
      ASSERT_NE(found, when_final_.end()) << parameter.spec.name;
      EXPECT_EQ(uses_left_.at(&parameter), 0) << parameter.spec.name;
      EXPECT_EQ(found->second, heddle::values(parameter.gradient)) << parameter.spec.name;
    }
  }

 private:
  std::map<Parameter const*, int> uses_left_;
  std::map<Parameter const*, std::vector<double>> when_final_;
};

LossSums evaluate(Stage& stage, std::int64_t micro_batches, int longer = 0) {
  auto const make = [longer](std::int64_t index) { return pack_of(index, longer); };
  PipelineStep step = step_of(micro_batches);
  LossSums sums;
  for (LossSums const& loss : stage.pipeline->evaluate(TestMicroBatches(micro_batches, make), step)) {
    sums += loss;
  }
  return sums;
}

LayerContext context_of(Stage& stage, Arena& arena, Pack const& pack, bool training) {
  return {stage.execution, arena, pack, training, 5, 3};
}

/// Without a Pipeline: the whole model on one rank, one micro-batch after the other.
struct Expected {
  explicit Expected(Case given, std::int64_t micro_batches, int longer = 0) : stage(one_stage(given), ParallelState()) {
    Arena arena;
    for (std::int64_t index = 0; index < micro_batches; ++index) {
      Pack const pack = pack_of(index, longer);
      LayerContext training = context_of(stage, arena, pack, true);
      trained += stage.model->forward_backward(training, {0.1, 0.125});
      LayerContext evaluating = context_of(stage, arena, pack, false);
      evaluated += stage.model->forward(evaluating, 0.1);
    }
    for (Parameter const& parameter : stage.parameters.all()) {
      gradients[parameter.spec.name] = heddle::values(parameter.gradient);
    }
  }

  static Case one_stage(Case given) {
    given.parallel = {};
    return given;
  }
  Stage stage;
  LossSums trained;
  LossSums evaluated;
  Gradients gradients;
};

class PipelineTest : public DistTest {
 protected:
  /// The groups of `stages` ranks, which all do the same.
  ParallelState state_of(int stages) { return DistTest::state_of({stages, world_.size() / stages, 1, 1}); }

  static void expect_loss(LossSums const& mine, LossSums const& expected, Communicator const& pipeline) {
    LossSums const wanted = pipeline.rank() == pipeline.size() - 1 ? expected : LossSums();
    EXPECT_EQ(mine.tokens, wanted.tokens);
    EXPECT_NEAR(mine.smoothed, wanted.smoothed, 1e-11 * expected.smoothed);
    EXPECT_NEAR(mine.negative_log_likelihood, wanted.negative_log_likelihood, 1e-11 * expected.smoothed);
  }

  /// Every gradient of the whole model is the sum over the stages that hold the parameter.
  static void expect_gradients(Stage const& stage, Gradients const& expected) {
    std::vector<double> mine;
    for (auto const& [name, values] : expected) {
      Parameter const* const parameter = stage.parameters.find(name);
      auto const held = parameter == nullptr ? std::vector<double>(values.size()) : heddle::values(parameter->gradient);
      mine.insert(mine.end(), held.begin(), held.end());
    }
    Tensor const sums = tensor_of(mine);
    stage.parallel.pipeline.all_reduce(sums);
    std::vector<double> const whole = to_host<double>(sums);
    auto next = whole.begin();
    for (auto const& [name, values] : expected) {
      auto const end = next + static_cast<std::ptrdiff_t>(values.size());
      EXPECT_LE(relative_error({next, end}, values), 1e-11) << name;
      next = end;
    }
  }

  void expect_equal(Case const& given, std::int64_t micro_batches, Expected const& expected, int longer = 0) {
    SCOPED_TRACE(testing::Message() << given.parallel.pipeline << " stages, " << name_of(given.model.norm) << ", "
                                    << (given.model.tie_embeddings ? "tied, " : "untied, ")
                                    << name_of(given.parallel.pipeline_schedule)
                                    << (given.parallel.zero_bubble ? " zero-bubble, " : ", ") << micro_batches
                                    << " micro-batches");
    Stage stage(given, state_of(given.parallel.pipeline));
    FinalGradients gradients(stage.parameters);
    expect_loss(train(stage, micro_batches, longer, &gradients), expected.trained, stage.parallel.pipeline);
    gradients.expect_right(stage.parameters);
    int const passes = given.parallel.zero_bubble ? 3 : 2;
    EXPECT_EQ(stage.passes.passes(), passes * micro_batches * std::ssize(stage.model->parts()));
    expect_gradients(stage, expected.gradients);
    expect_loss(evaluate(stage, micro_batches, longer), expected.evaluated, stage.parallel.pipeline);
  }

  /// 2, 4, … stages, at most the number of ranks and `most`; one on one rank.
  std::vector<int> stage_counts(int max) const {
    std::vector<int> counts;
    for (int stages = std::min(world_.size(), 2); stages <= std::min(max, world_.size()); stages *= 2) {
      counts.push_back(stages);
    }
    return counts;
  }
};

TEST_F(PipelineTest, LossAndGradientsAreThoseOfOneRank) {
  for (NormPlacement const norm : {NormPlacement::post, NormPlacement::pre}) {
    for (bool const tied : {true, false}) {
      for (std::int64_t const micro_batches : {1, 2, 3, 4, 5}) {
        Case given = small_case(1);
        given.model.norm = norm;
        given.model.tie_embeddings = tied;
        Expected const expected(given, micro_batches);
        for (int const stages : stage_counts(8)) {
          given.parallel = small_case(stages).parallel;
          expect_equal(given, micro_batches, expected);
          given.parallel.zero_bubble = true;
          expect_equal(given, micro_batches, expected);
        }
        for (int const stages : stage_counts(4)) {
          given.parallel = small_case(stages, PipelineSchedule::interleaved).parallel;
          expect_equal(given, micro_batches, expected);
          given.parallel.zero_bubble = true;
          expect_equal(given, micro_batches, expected);
        }
      }
    }
  }
}

TEST_F(PipelineTest, SplitBackwardPassesGiveBitwiseTheGradients) {
  for (PipelineSchedule const schedule : {PipelineSchedule::one_forward_one_backward, PipelineSchedule::interleaved}) {
    for (Recompute const recompute : {Recompute::none, Recompute::layer}) {
      Case given = small_case(std::min(world_.size(), 4), schedule);
      given.model.recompute = recompute;
      Stage whole(given, state_of(given.parallel.pipeline));
      given.parallel.zero_bubble = true;
      Stage split(given, state_of(given.parallel.pipeline));
      static_cast<void>(train(whole, 5));
      static_cast<void>(train(split, 5));
      for (Parameter const& parameter : whole.parameters.all()) {
        EXPECT_EQ(heddle::values(parameter.gradient),
                  heddle::values(split.parameters.find(parameter.spec.name)->gradient))
            << parameter.spec.name;
      }
    }
  }
}

TEST_F(PipelineTest, ACutAnywhereIsRight) {
  int const stages = std::min(world_.size(), 2);
  Case given = small_case(stages);
  given.model.norm = NormPlacement::pre;
  given.model.positions = Positions::learned;
  given.vocabulary = {13, 15, false};
  Expected const expected(given, 3);
  if (stages == 1) {
    given.parallel.stage_layers = {8};
    expect_equal(given, 3, expected);
    return;
  }
  for (std::int64_t first = 1; first < 8; ++first) {
    given.parallel.stage_layers = {first, 8 - first};
    SCOPED_TRACE(testing::Message() << first << " layers on the first stage");
    expect_equal(given, 3, expected);
  }
  given.parallel.pipeline_schedule = PipelineSchedule::interleaved;
  given.parallel.stage_layers = {3, 1, 1, 3};
  expect_equal(given, 3, expected);
}

// Large messages are sent only when their receiver is ready; a cycle of waiting stages would deadlock.
TEST_F(PipelineTest, LargeMessagesAndManyMicroBatchesComeThrough) {
  for (PipelineSchedule const schedule : {PipelineSchedule::one_forward_one_backward, PipelineSchedule::interleaved}) {
    int const stages = std::min(world_.size(), 4);
    Case given = small_case(stages, schedule);
    given.model.d_model = 64;
    given.parallel.zero_bubble = schedule == PipelineSchedule::interleaved;
    given.dtype = DType::float32;
    given.kernels = KernelChoices();
    Stage stage(given, state_of(stages));
    for (std::int64_t const micro_batches : {11, 25}) {
      LossSums const trained = train(stage, micro_batches, 60);
      LossSums const evaluated = evaluate(stage, micro_batches, 60);
      bool const last = stage.parallel.pipeline.rank() == stages - 1;
      EXPECT_EQ(trained.tokens > 0, last);
      EXPECT_EQ(evaluated.tokens, trained.tokens);
    }
  }
}

TEST_F(PipelineTest, MemoryDoesNotGrowWithTheMicroBatches) {
  for (PipelineSchedule const schedule : {PipelineSchedule::one_forward_one_backward, PipelineSchedule::interleaved}) {
    Case given = small_case(std::min(world_.size(), 4), schedule);
    given.parallel.zero_bubble = true;
    Stage stage(given, state_of(given.parallel.pipeline));
    std::vector<std::size_t> peaks;
    for (std::int64_t const micro_batches : {12, 48}) {
      static_cast<void>(train(stage, micro_batches));
      static_cast<void>(evaluate(stage, micro_batches));
      peaks.push_back(stage.pipeline->peak_memory().total());
    }
    EXPECT_LT(peaks[1], 2 * peaks[0]) << "four times the micro-batches";
  }
}

TEST_F(PipelineTest, NoMicroBatchesAreNoWork) {
  Case const given = small_case(std::min(world_.size(), 4));
  Stage stage(given, state_of(given.parallel.pipeline));
  EXPECT_EQ(train(stage, 0).tokens, 0);
  EXPECT_EQ(evaluate(stage, 0).tokens, 0);
  EXPECT_EQ(stage.passes.passes(), 0);
}

TEST_F(PipelineTest, TimesOfPassesAreGathered) {
  Case const given = small_case(std::min(world_.size(), 4));
  Stage stage(given, state_of(given.parallel.pipeline));
  static_cast<void>(train(stage, 6));
  PipelineTimes times = stage.passes.gather(stage.parallel.pipeline);
  EXPECT_EQ(times.stages(), given.parallel.pipeline);
  EXPECT_EQ(times.micro_batches, 6);
  EXPECT_GT(times.total, 0);
  EXPECT_LT(times.bubble(), 1);
  for (std::size_t place = 0; place < times.busy.size(); ++place) {
    EXPECT_GT(times.busy[place], 0);
    EXPECT_GE(times.waited[place], 0);
  }
  EXPECT_LE(times.busy.front(), times.total) << "passes of a stage follow each other";
  double const total = times.total;
  times.add(times);
  EXPECT_EQ(times.total, 2 * total);
}

}  // namespace
}  // namespace heddle
