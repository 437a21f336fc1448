#include <heddle/core/generation/generation.hpp>
#include <heddle/dist/training/training_engine.hpp>

#include "dist_fixture.hpp"
#include "golden_model.hpp"
#include "layouts.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

using Tokens = std::vector<std::int32_t>;
using Translations = std::vector<std::vector<Hypothesis>>;

constexpr VocabularySizes vocabulary{23, 23, true};  // no number of ranks divides it

/// Translates, or continues the sources as prompts with a decoder alone.
enum class Task { translation, continuation };

Config config_of(Task task, Variant const& variant, Layout const& layout) {
  Config config = parse_config("[model]\n" + variant.keys, "test");
  if (task == Task::continuation) {
    config.model.stacks = {"decoder"};
    config.model.decoder.sublayers = {"self_attention", "feed_forward"};
    std::erase_if(config.model.decoder.settings, [](auto const& entry) { return entry.first.starts_with("cross_"); });
  }
  config.model.encoder.layers = 4;
  config.model.decoder.layers = task == Task::continuation ? 8 : 4;
  config.model.d_model = 16;
  config.model.d_ff = 24;
  config.model.heads = 8;
  config.model.max_length = 8;
  config.model.norm = variant.norm;
  config.model.tie_embeddings = variant.tied;
  if (variant.keys.empty()) {
    config.model.positions = variant.tied ? Positions::sinusoidal : Positions::learned;
  }
  config.train.seed = 5;
  config.parallel.pipeline = layout.sizes[0];
  config.parallel.tensor = layout.sizes[3];
  config.parallel.pipeline_schedule = layout.schedule;
  return config;
}

/// Results for a few sources, an empty one among them, by a model of random weights on a mesh.
Translations generated(Task task, Variant const& variant, Layout const& layout, Communicator const& world) {
  Config const config = config_of(task, variant, layout);
  TestBench bench(config.model, DType::float64, KernelChoices{});
  ParallelState const parallel = parallel_of(layout, world);
  TrainingEngine engine({config, bench.registries(), parallel, bench.execution(), vocabulary, DType::float64});
  engine.parameters().initialize(config.train.seed);
  std::vector<Tokens> const sources{{3, 4, 5}, {}, {22, 9, 14, 7, 3, 11}, {6}, {18, 17}};
  GenerationModel const model{engine.model(), test_ids, config.model.max_length};
  // Batches of few tokens, so that there are several.
  return generate(bench.execution(), bench.arena(), model, sources, {.beam_size = 3, .n_best = 2, .batch_tokens = 30});
}

class LayoutGenerationTest : public DistTest, public testing::WithParamInterface<Task> {};

TEST_P(LayoutGenerationTest, EveryLayoutGeneratesAsOneRank) {
  std::vector<Variant> variants = other_variants();
  variants.insert(variants.begin(), {{NormPlacement::post, true}, {NormPlacement::pre, false}});
  for (Variant const& variant : variants) {
    Translations const expected = generated(GetParam(), variant, Layout{}, Communicator::self());
    for (Layout const& layout : layouts_on(world_.size())) {
      if (layout.sizes[1] > 1 || layout.sizes[2] > 1) {
        continue;  // data and context ranks translate separately
      }
      SCOPED_TRACE(describe(variant) + ", " + describe(layout));
      Translations const actual = generated(GetParam(), variant, layout, world_);
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t source = 0; source < expected.size(); ++source) {
        ASSERT_EQ(actual[source].size(), expected[source].size());
        for (std::size_t place = 0; place < expected[source].size(); ++place) {
          EXPECT_EQ(actual[source][place].tokens, expected[source][place].tokens);
          EXPECT_NEAR(actual[source][place].log_probability, expected[source][place].log_probability, 1e-9);
          EXPECT_NEAR(actual[source][place].score, expected[source][place].score, 1e-9);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tasks, LayoutGenerationTest, testing::Values(Task::translation, Task::continuation));

}  // namespace
}  // namespace heddle
