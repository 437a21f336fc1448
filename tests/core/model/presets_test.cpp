#include <heddle/core/config/config.hpp>

#include "golden_model.hpp"
#include "test.hpp"

namespace heddle {
namespace {

/// A file of apps/examples/models, the pieces of the published vocabulary and the parameters that follow.
struct Preset {
  char const* name;
  std::int64_t pieces;
  std::int64_t parameters;
};

class PresetsTest : public testing::TestWithParam<Preset> {};

TEST_P(PresetsTest, HasTheParametersOfThePublishedModel) {
  Config const config =
      load_config(std::string(HEDDLE_TEST_DATA) + "/../../apps/examples/models/" + GetParam().name + ".toml");
  TestBench bench(config.model, DType::float32, KernelChoices{});
  Model const model(bench.spec("", Side::source), bench.registries().layers,
                    {GetParam().pieces, GetParam().pieces, true});
  std::int64_t parameters = 0;
  for (Parameter const& parameter : bench.parameters().all()) {
    parameters += parameter.global_shape().size();
  }
  EXPECT_EQ(parameters, GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(
    Files, PresetsTest,
    testing::Values(Preset{"vaswani-base", 37000, 63'082'496},   // 65 million in the paper
                    Preset{"vaswani-big", 37000, 214'245'376},   // 213 million in the paper
                    Preset{"t5-v1.1-small", 32128, 76'961'152},  // google/t5-v1_1-small
                    // No published size: 8 layers of an encoder and of a decoder, two final norms and the embeddings.
                    Preset{"t5gemma-like", 256000, 8 * (2'361'344 + 3'148'800) + 2 * 512 + 256000 * 512},
                    // Helsinki-NLP/opus-mt-en-de has 74,410,496, with 2 * 512 * 512 of fixed positions; its output bias
                    // is not a parameter there.
                    Preset{"marian-base", 58101, 74'410'496 - 2 * 512 * 512 + 58101},
                    Preset{"nllb-600m", 256206, 615'073'792},  // facebook/nllb-200-distilled-600M
                    Preset{"gpt2-small", 50257, 124'439'808},  // openai-community/gpt2
                    // google-bert/bert-base-uncased has 109,482,240 with a pooler, in whose place is the transform
                    // before the output; here are also that transform's norm and an output bias.
                    Preset{"bert-base", 30522, 109'482'240 + 2 * 768 + 30522},
                    Preset{"llama-like", 32000, 1'100'048'384}),  // TinyLlama-1.1B
    [](auto const& instance) {
      std::string name = instance.param.name;
      std::replace_if(
          name.begin(), name.end(), [](char letter) { return letter == '-' || letter == '.'; }, '_');
      return name;
    });

/// `transformers` counts a token itself in a decoder's sliding window of 4,096; in the encoder it does not.
TEST(T5GemmaPresetTest, HasTheWindowsOfThePublishedModel) {
  Config const config = load_config(std::string(HEDDLE_TEST_DATA) + "/../../apps/examples/models/t5gemma-like.toml");
  TestBench const bench(config.model, DType::float32, KernelChoices{});
  ModelDescription const model = describe_model(config.model, bench.registries().layers);
  auto const window = [&](std::size_t stack, std::size_t layer) {
    return model.stacks[stack].layers[layer].sublayers.front().options.integer("window", 0);
  };
  for (std::size_t const layer : {0U, 2U, 4U, 6U}) {
    EXPECT_EQ(window(0, layer), 4096) << "encoder";
    EXPECT_EQ(window(1, layer), 4095) << "decoder";
  }
}

}  // namespace
}  // namespace heddle
