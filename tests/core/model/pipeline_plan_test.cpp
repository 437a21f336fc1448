#include <heddle/core/config/config.hpp>
#include <heddle/core/model/pipeline_plan.hpp>

#include "golden_model.hpp"
#include "test.hpp"

namespace heddle {
namespace {

ModelConfig model_of(std::int64_t encoder_layers, std::int64_t decoder_layers, std::int64_t d_ff = 32) {
  ModelConfig model;
  model.encoder.layers = encoder_layers;
  model.decoder.layers = decoder_layers;
  model.d_model = 8;
  model.d_ff = d_ff;
  model.heads = 2;
  return model;
}

ParallelConfig stages_of(int stages, std::vector<std::int64_t> stage_layers = {}) {
  ParallelConfig parallel;
  parallel.pipeline = stages;
  parallel.stage_layers = std::move(stage_layers);
  return parallel;
}

ParallelConfig interleaved(int stages, std::vector<std::int64_t> stage_layers = {}) {
  ParallelConfig parallel = stages_of(stages, std::move(stage_layers));
  parallel.pipeline_schedule = PipelineSchedule::interleaved;
  return parallel;
}

PipelinePlan planned(ModelConfig const& model, ParallelConfig const& parallel, std::int64_t vocabulary) {
  return plan_pipeline(description_of(model), parallel, vocabulary);
}

/// Multiplications of a token, each of which is two operations.
std::int64_t cost_of(IndexRange const& layers, ModelConfig const& model, std::int64_t vocabulary) {
  return static_cast<std::int64_t>(part_cost(layers, description_of(model), vocabulary).operations) / 2;
}

/// The costs of a model's parts, each computed once: a search over all cuts asks for each of them many times.
class PartCosts {
 public:
  PartCosts(ModelConfig model, std::int64_t vocabulary) : model_(std::move(model)), vocabulary_(vocabulary) {}

  std::int64_t of(IndexRange const& layers) {
    auto const [place, is_new] = known_.try_emplace({layers.begin, layers.end});
    if (is_new) {
      place->second = cost_of(layers, model_, vocabulary_);
    }
    return place->second;
  }

 private:
  ModelConfig model_;
  std::int64_t vocabulary_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> known_;
};

/// The ranges of all virtual stages.
std::vector<IndexRange> ranges_of(PipelinePlan const& plan) {
  std::vector<IndexRange> ranges;
  for (int stage = 0; stage < plan.virtual_stages(); ++stage) {
    ranges.push_back(plan.layers(stage));
  }
  return ranges;
}

using Costs = std::span<std::int64_t const>;

/// The lowest possible cost of the most expensive stage, over all cuts of `layers` into parts beside these costs.
std::int64_t min_dearest(IndexRange const& layers, Costs beside, PartCosts& costs) {
  if (beside.size() == 1) {
    return costs.of(layers) + beside.front();
  }
  auto const rest = static_cast<std::int64_t>(beside.size()) - 1;
  std::int64_t min = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t cut = layers.begin + 1; cut + rest <= layers.end; ++cut) {
    min = std::min(min, std::max(costs.of({layers.begin, cut}) + beside.front(),
                                 min_dearest({cut, layers.end}, beside.subspan(1), costs)));
  }
  return min;
}

/// Returns the parts' costs.
std::vector<std::int64_t> expect_best(IndexRange const& layers, std::vector<IndexRange> const& ranges, Costs beside,
                                      PartCosts& parts) {
  std::vector<std::int64_t> costs;
  std::int64_t dearest = 0;
  std::int64_t next = layers.begin;
  for (IndexRange const& range : ranges) {
    EXPECT_EQ(range.begin, next);
    EXPECT_GT(range.end, range.begin);
    next = range.end;
    dearest = std::max(dearest, parts.of(range) + beside[costs.size()]);
    costs.push_back(parts.of(range));
  }
  EXPECT_EQ(next, layers.end);
  EXPECT_EQ(dearest, min_dearest(layers, beside, parts));
  return costs;
}

TEST(PipelinePlan, CostsAreThoseOfTheMatrixProducts) {
  ModelConfig const model = model_of(2, 2);
  std::int64_t const encoder_layer = 4 * 64 + 2 * 8 * 32;
  std::int64_t const decoder_layer = 8 * 64 + 2 * 8 * 32;
  EXPECT_EQ(cost_of({0, 1}, model, 100), encoder_layer);
  EXPECT_EQ(cost_of({0, 2}, model, 100), 2 * encoder_layer);
  EXPECT_EQ(cost_of({1, 3}, model, 100), encoder_layer + decoder_layer);
  EXPECT_EQ(cost_of({2, 3}, model, 100), decoder_layer);
  EXPECT_EQ(cost_of({3, 4}, model, 100), decoder_layer + 800) << "the output projection";
}

TEST(PipelinePlan, TheDearestStageIsAsCheapAsCanBe) {
  for (std::int64_t encoder_layers = 1; encoder_layers <= 5; ++encoder_layers) {
    for (std::int64_t decoder_layers = 1; decoder_layers <= 5; ++decoder_layers) {
      for (std::int64_t const vocabulary : {1, 90, 700}) {
        ModelConfig const model = model_of(encoder_layers, decoder_layers);
        PartCosts costs(model, vocabulary);
        IndexRange const all{0, encoder_layers + decoder_layers};
        for (int stages = 1; stages <= all.end; ++stages) {
          PipelinePlan const plan = plan_pipeline(description_of(model), stages_of(stages), vocabulary);
          EXPECT_EQ(plan.stages(), stages);
          EXPECT_EQ(plan.parts_per_stage(), 1);
          std::vector<std::int64_t> const nothing(static_cast<std::size_t>(stages));
          expect_best(all, ranges_of(plan), nothing, costs);
        }
        for (int stages = 2; stages <= std::min(encoder_layers, decoder_layers); ++stages) {
          PipelinePlan const plan = plan_pipeline(description_of(model), interleaved(stages), vocabulary);
          EXPECT_EQ(plan.stages(), stages);
          EXPECT_EQ(plan.parts_per_stage(), 2);
          std::vector<IndexRange> const ranges = ranges_of(plan);
          std::vector<std::int64_t> const nothing(static_cast<std::size_t>(stages));
          auto const decoder_costs =
              expect_best({encoder_layers, all.end}, {ranges.begin() + stages, ranges.end()}, nothing, costs);
          expect_best({0, encoder_layers}, {ranges.begin(), ranges.begin() + stages}, decoder_costs, costs);
        }
      }
    }
  }
}

TEST(PipelinePlan, OfEquallyGoodCutsTheMoreEvenOneIsTaken) {
  // The output projection costs more than all layers, so the other stages could share them in many ways.
  std::vector<IndexRange> const ranges = ranges_of(planned(model_of(6, 1), stages_of(4), 100000));
  EXPECT_EQ(ranges, (std::vector<IndexRange>{{0, 2}, {2, 4}, {4, 6}, {6, 7}}));
}

TEST(PipelinePlan, ACutMayLieInsideEitherStack) {
  EXPECT_EQ(ranges_of(planned(model_of(5, 1), stages_of(2), 1)), (std::vector<IndexRange>{{0, 3}, {3, 6}}));
  EXPECT_EQ(ranges_of(planned(model_of(1, 5), stages_of(2), 1)), (std::vector<IndexRange>{{0, 3}, {3, 6}}));
}

TEST(PipelinePlan, FrozenLayersCostLess) {
  ModelConfig model = model_of(6, 2);
  double const before = part_cost({7, 8}, description_of(model), 100).operations;
  EXPECT_EQ(ranges_of(planned(model, stages_of(2), 1)), (std::vector<IndexRange>{{0, 4}, {4, 8}}));
  model.frozen.frozen = {"encoder.*"};
  EXPECT_EQ(ranges_of(planned(model, stages_of(2), 1)), (std::vector<IndexRange>{{0, 5}, {5, 8}}));
  EXPECT_EQ(part_cost({7, 8}, description_of(model), 100).operations, before);
  model.frozen.frozen = {model.tie_embeddings ? "embedding.weight" : "output.weight"};
  EXPECT_NEAR(part_cost({7, 8}, description_of(model), 100).operations, before - 2 * 800.0 / 3, 1e-9);
  model.frozen = {.trained = {"*.lora_*"}};
  EXPECT_NEAR(part_cost({7, 8}, description_of(model), 100).operations, before * 2 / 3, 1e-9);
}

TEST(PipelinePlan, StageLayersAreFollowed) {
  EXPECT_EQ(ranges_of(planned(model_of(3, 4), stages_of(3, {1, 4, 2}), 100)),
            (std::vector<IndexRange>{{0, 1}, {1, 5}, {5, 7}}));
  PipelinePlan const plan = planned(model_of(3, 4), interleaved(2, {1, 2, 3, 1}), 100);
  EXPECT_EQ(ranges_of(plan), (std::vector<IndexRange>{{0, 1}, {1, 3}, {3, 6}, {6, 7}}));
  EXPECT_EQ(plan.parts, (std::vector<std::vector<IndexRange>>{{{0, 1}, {3, 6}}, {{1, 3}, {6, 7}}}));
}

TEST(PipelinePlan, OneStageIsOnePart) {
  EXPECT_EQ(ranges_of(planned(model_of(2, 2), interleaved(1), 100)), (std::vector<IndexRange>{{0, 4}}));
}

TEST(PipelinePlan, RefusesWhatCannotBeCut) {
  auto const planning = [](ModelConfig const& model, ParallelConfig const& parallel) {
    return [=] { static_cast<void>(plan_pipeline(description_of(model), parallel, 100)); };
  };
  expect_config_error(planning(model_of(2, 3), stages_of(6)), "expected 5 or less");
  expect_config_error(planning(model_of(2, 4), interleaved(3)), "expected 2 or less, or \"1f1b\" with 6 or less");
  expect_config_error(planning(model_of(4, 2), interleaved(3)), "expected 2 or less");
  expect_config_error(planning(model_of(2, 2), stages_of(2, {1, 2, 1})),
                      "stage_layers = [1, 2, 1] cannot be followed: parallel.pipeline = 2 "
                      "takes the layers of each stage: 2 of them");
  expect_config_error(planning(model_of(2, 2), stages_of(2, {1, 2})),
                      "it adds up to 3, but there are the encoder's 2 and the decoder's 2 layers");
  expect_config_error(planning(model_of(2, 2), interleaved(2, {2, 2})), "4 of them");
  expect_config_error(planning(model_of(3, 3), interleaved(2, {1, 1, 2, 2})),
                      "it adds up to 2 and 4, but there are the encoder's 3");
}

TEST(PipelinePlan, SharesAddUpToOneAndRangesHaveWords) {
  ModelConfig const model = model_of(3, 3);
  std::vector<double> const shares =
      cost_shares(plan_pipeline(description_of(model), interleaved(2, {1, 2, 2, 1}), 100), description_of(model), 100);
  double const first = 768 + 2 * 1024;
  double const second = 2 * 768 + 1024 + 800;
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_NEAR(shares[0], first / (first + second), 1e-15);
  EXPECT_NEAR(shares[1], second / (first + second), 1e-15);
  EXPECT_EQ(describe({0, 1}, description_of(model)), "encoder layer 1");
  EXPECT_EQ(describe({1, 5}, description_of(model)), "encoder layers 2 to 3, decoder layers 1 to 2");
  EXPECT_EQ(describe({5, 6}, description_of(model)), "decoder layer 3");
}

}  // namespace
}  // namespace heddle
