#include <heddle/core/generation/generation.hpp>
#include <heddle/core/tensor/doubles.hpp>
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

/// Translates, or continues the sources as prompts with a decoder-only model.
enum class Task { translation, continuation };

Config config_of(Task task, Variant const& variant, Layout const& layout) {
  Config config = tiny_config(layout, parse_config("[model]\n" + variant.keys, "test"));
  if (task == Task::continuation) {
    config.model.stacks = {"decoder"};
    std::erase(config.model.decoder.sublayers, "cross_attention");
    for (LayerOverride& some : config.model.decoder.overrides) {
      if (auto const own = some.settings.find("sublayers"); own != some.settings.end()) {
        std::erase(std::get<std::vector<std::string>>(own->second.value), "cross_attention");
      }
    }
    config.model.decoder.settings.erase("tied_layers");
    std::erase_if(config.model.decoder.settings, [](auto const& entry) { return entry.first.starts_with("cross_"); });
  }
  config.model.decoder.layers = task == Task::continuation ? 8 : 4;
  config.model.max_length = 8;
  config.model.norm = variant.norm;
  config.model.tie_embeddings = variant.tied;
  if (variant.keys.empty()) {
    config.model.positions = variant.tied ? Positions::sinusoidal : Positions::learned;
  }
  config.train.seed = 5;
  return config;
}

/// A model of random weights on a mesh.
class Generator {
 public:
  Generator(Task task, Variant const& variant, Layout const& layout, Communicator const& world)
      : config_(config_of(task, variant, layout)),
        bench_(config_.model, DType::float64, KernelChoices{}),
        parallel_(parallel_of(layout, world)),
        engine_({config_, bench_.registries(), parallel_, bench_.execution(), vocabulary, DType::float64}) {
    engine_.parameters().initialize(config_.train.seed);
  }

  /// Makes the logits of the vocabulary's first token NaN, on the ranks that compute them.
  void spoil() {
    Parameter* const output = engine_.parameters().find("output.weight");
    if (output != nullptr && output->global_offset(0) == 0) {
      copy_from_doubles(output->value.rows(0, 1), std::vector<double>(16, std::numeric_limits<double>::quiet_NaN()));
    }
  }
  /// Results for a few sources, an empty one among them.
  Translations run(GenerationOptions const& options) {
    std::vector<Tokens> const sources{{3, 4, 5}, {}, {22, 9, 14, 7, 3, 11}, {6}, {18, 17}};
    GenerationModel const model{engine_.model(), test_ids, config_.model.max_length};
    return generate(bench_.execution(), bench_.arena(), model, sources, options);
  }

 private:
  Config config_;
  TestBench bench_;
  ParallelState parallel_;
  TrainingEngine engine_;
};

void expect_equal(Translations const& actual, Translations const& expected) {
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

/// Calls `check(layout)` for the layouts of tensor and pipeline ranks: those of data and of context translate
/// separately. Where the encoder has a grid of its own, all ranks of the two translate the same sentences.
template <class Check>
void for_each_layout(Communicator const& world, Check const& check) {
  std::vector<Layout> layouts = layouts_on(world.size());
  std::ranges::copy(grid_layouts_on(world.size()), std::back_inserter(layouts));
  for (Layout const& layout : layouts) {
    if (layout.size(MeshAxis::data) == 1 && layout.size(MeshAxis::context) == 1) {
      SCOPED_TRACE(describe(layout));
      check(layout);
    }
  }
}

class LayoutGenerationTest : public DistTest, public testing::WithParamInterface<Task> {};

TEST_P(LayoutGenerationTest, EveryLayoutGeneratesAsOneRank) {
  // Batches of few tokens, so that there are several; tokens drawn from the whole vocabulary.
  GenerationOptions const beams{.beam_size = 3, .n_best = 2, .batch_tokens = 30};
  GenerationOptions const draws{.sampling = {.temperature = 1}};
  std::vector<Variant> variants = other_variants();
  variants.insert(variants.begin(), {{NormPlacement::post, true}, {NormPlacement::pre, false}});
  for (Variant const& variant : variants) {
    SCOPED_TRACE(describe(variant));
    Generator alone(GetParam(), variant, Layout{}, Communicator::self());
    Translations const best = alone.run(beams);
    Translations const drawn = alone.run(draws);
    for_each_layout(world_, [&](Layout const& layout) {
      if (!supports(config_of(GetParam(), variant, layout), layout)) {
        return;  // too many stages for tied layers, or sequence-parallel average attention
      }
      Generator generator(GetParam(), variant, layout, world_);
      expect_equal(generator.run(beams), best);
      expect_equal(generator.run(draws), drawn);
    });
  }
}

TEST_P(LayoutGenerationTest, LogitsThatAreNotFiniteAreAnErrorOfEveryRank) {
  for_each_layout(world_, [&](Layout const& layout) {
    Generator generator(GetParam(), {NormPlacement::pre, false}, layout, world_);
    generator.spoil();
    expect_error([&] { generator.run({}); }, "not finite");
  });
}

INSTANTIATE_TEST_SUITE_P(Tasks, LayoutGenerationTest, testing::Values(Task::translation, Task::continuation));

}  // namespace
}  // namespace heddle
