#include <boost/json.hpp>
#include <cstring>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/io/formats/float16.hpp>
#include <heddle/io/formats/safetensors.hpp>

#include "exchange/exporting.hpp"
#include "exchange/importing.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

/// model.bin as CTranslate2 reads it (src/models/model.cc there).
class Ctranslate2Content {
 public:
  struct Variable {
    std::vector<std::uint32_t> shape;
    std::uint8_t type;
    std::string bytes;

    template <class Element>
    std::vector<Element> elements() const {
      std::vector<Element> elements(bytes.size() / sizeof(Element));
      std::memcpy(elements.data(), bytes.data(), bytes.size());
      return elements;
    }
  };

  explicit Ctranslate2Content(fs::path const& path) : rest_(read_whole(path)) {
    version = next<std::uint32_t>();
    specification = text();
    revision = next<std::uint32_t>();
    for (auto left = next<std::uint32_t>(); left > 0; --left) {
      std::string const name = text();
      Variable variable;
      for (auto sizes = next<std::uint8_t>(); sizes > 0; --sizes) {
        variable.shape.push_back(next<std::uint32_t>());
      }
      variable.type = next<std::uint8_t>();
      variable.bytes = take(next<std::uint32_t>());
      EXPECT_TRUE(variables.emplace(name, std::move(variable)).second) << name;
    }
    for (auto left = next<std::uint32_t>(); left > 0; --left) {
      std::string const alias = text();
      aliases[alias] = text();
    }
    EXPECT_TRUE(rest_.empty());
  }

  std::uint32_t version, revision;
  std::string specification;
  std::map<std::string, Variable> variables;
  std::map<std::string, std::string> aliases;

 private:
  std::string take(std::size_t count) {
    EXPECT_LE(count, rest_.size());
    std::string taken = rest_.substr(0, count);
    rest_.erase(0, count);
    return taken;
  }
  template <class Integer>
  Integer next() {
    Integer integer = 0;
    std::memcpy(&integer, take(sizeof integer).c_str(), sizeof integer);
    return integer;
  }
  std::string text() {
    std::string const taken = take(next<std::uint16_t>());
    EXPECT_EQ(taken.back(), '\0');
    return taken.substr(0, taken.size() - 1);
  }

  std::string rest_;
};

class Ctranslate2Test : public KernelTest {
 protected:
  fs::path golden(std::string const& family) const { return fs::path(HEDDLE_TEST_DATA) / "exchange" / family; }

  Ctranslate2Content exported(std::string const& family, std::string const& dtype) {
    return exported_from(golden(family), dtype);
  }

  Ctranslate2Content exported_from(fs::path const& theirs, std::string const& dtype) {
    fs::path const run = directory_ / (theirs.filename().string() + ".run");
    if (!fs::exists(run)) {
      import_model(execution_, theirs, run);
    }
    ExportOptions options;
    options.model.checkpoint = run.string();
    options.format = "ctranslate2";
    options.dtype = dtype;
    options.directory = directory_ / (theirs.filename().string() + "." + dtype);
    ExportedModel const result = export_model(execution_, options);
    EXPECT_FALSE(result.largest_difference.has_value());
    return Ctranslate2Content(options.directory / "model.bin");
  }

  /// Tensors of the golden model, one after the other.
  std::vector<float> joined(std::string const& family, std::vector<std::string> const& names) const {
    SafetensorsFiles const files = SafetensorsFiles::open(golden(family));
    std::vector<float> all;
    for (std::string const& name : names) {
      std::vector<float> values(static_cast<std::size_t>(files.tensors().at(name).elements()));
      files.read(name, {0, std::ssize(values)}, values);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  TemporaryDirectory directory_;
};

TEST_F(Ctranslate2Test, AnExportHasTheVariablesOfTheSpecification) {
  Ctranslate2Content const marian = exported("marian", "float32");
  EXPECT_EQ(marian.version, 6U);
  EXPECT_EQ(marian.specification, "TransformerSpec");
  EXPECT_EQ(marian.revision, 7U);
  auto const& variables = marian.variables;
  std::string const first = "model.decoder.layers.0.";
  EXPECT_EQ(variables.at("decoder/layer_0/self_attention/linear_0/weight").elements<float>(),
            joined("marian", {first + "self_attn.q_proj.weight", first + "self_attn.k_proj.weight",
                              first + "self_attn.v_proj.weight"}));
  EXPECT_EQ(variables.at("decoder/layer_0/self_attention/linear_0/weight").shape, (std::vector<std::uint32_t>{48, 16}));
  EXPECT_EQ(variables.at("decoder/layer_0/attention/linear_1/bias").elements<float>(),
            joined("marian", {first + "encoder_attn.k_proj.bias", first + "encoder_attn.v_proj.bias"}));
  EXPECT_EQ(variables.at("decoder/layer_0/ffn/layer_norm/gamma").elements<float>(),
            joined("marian", {first + "final_layer_norm.weight"}));
  EXPECT_EQ(variables.at("decoder/embeddings/weight").elements<float>(), joined("marian", {"model.shared.weight"}));
  EXPECT_EQ(variables.at("encoder/num_heads").elements<std::int16_t>(), std::vector<std::int16_t>{2});
  EXPECT_EQ(variables.at("decoder/num_heads").elements<std::int16_t>(), std::vector<std::int16_t>{4});
  EXPECT_EQ(variables.at("decoder/pre_norm").elements<std::int8_t>(), std::vector<std::int8_t>{0});
  EXPECT_EQ(variables.at("encoder/activation").elements<std::int8_t>(), std::vector<std::int8_t>{2});
  EXPECT_THAT(marian.aliases,
              UnorderedElementsAre(
                  testing::Pair("decoder/projection/weight", "decoder/embeddings/weight"),
                  testing::Pair("encoder/embeddings_0/weight", "decoder/embeddings/weight"),
                  testing::Pair("encoder/position_encodings/encodings", "decoder/position_encodings/encodings")));
  auto const positions = variables.at("decoder/position_encodings/encodings").elements<float>();
  ASSERT_EQ(positions.size(), 1025U * 16U);  // more than the model's 32: as many as CTranslate2 may read
  EXPECT_FLOAT_EQ(positions[16 + 1], static_cast<float>(std::sin(std::pow(10000.0, -2.0 / 16))));
  EXPECT_FLOAT_EQ(positions[16 + 9], static_cast<float>(std::cos(std::pow(10000.0, -2.0 / 16))));
}

TEST_F(Ctranslate2Test, TheOutputBiasOfATokenThatIsNotGeneratedIsLow) {
  std::vector<float> expected = joined("marian", {"final_logits_bias"});
  expected.back() = -10'000;  // <pad>
  EXPECT_EQ(exported("marian", "float32").variables.at("decoder/projection/bias").elements<float>(), expected);

  fs::path const others = directory_ / "others";
  fs::copy(golden("marian"), others);
  fs::permissions(others / "generation_config.json", fs::perms::owner_write, fs::perm_options::add);
  std::ofstream(others / "generation_config.json") << R"({"bad_words_ids": [[5], [6, 7]]})";
  expected = joined("marian", {"final_logits_bias"});
  expected[5] = -10'000;
  EXPECT_EQ(exported_from(others, "float32").variables.at("decoder/projection/bias").elements<float>(), expected);
}

TEST_F(Ctranslate2Test, ConfigurationAndVocabularyAreThoseOfTheTokenizer) {
  exported("marian", "float32");
  fs::path const directory = directory_ / "marian.float32";
  json::object const config = json::parse(read_whole(directory / "config.json")).as_object();
  EXPECT_EQ(config.at("decoder_start_token"), "<pad>");
  EXPECT_EQ(config.at("eos_token"), "</s>");
  EXPECT_EQ(config.at("unk_token"), "<unk>");
  EXPECT_EQ(config.at("add_source_eos"), true);
  EXPECT_EQ(config.at("layer_norm_epsilon").to_number<double>(), 1e-5);
  json::array const pieces = json::parse(read_whole(directory / "shared_vocabulary.json")).as_array();
  json::object const ids = json::parse(read_whole(golden("marian") / "vocab.json")).as_object();
  ASSERT_EQ(pieces.size(), ids.size());
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    EXPECT_EQ(ids.at(pieces[id].as_string()), id);
  }
}

TEST_F(Ctranslate2Test, RelativeBucketsGatesAndColumnsOfHeadsAreStated) {
  Ctranslate2Content const t5 = exported("t5-v1.1", "float32");
  std::string const attention = "decoder/layer_0/self_attention/";
  EXPECT_EQ(t5.variables.at(attention + "head_dim").elements<std::int32_t>(), std::vector<std::int32_t>{6});
  EXPECT_EQ(t5.variables.at(attention + "queries_scale").elements<float>(), std::vector<float>{1});
  EXPECT_EQ(t5.variables.at(attention + "relative_attention_max_distance").elements<std::int32_t>(),
            std::vector<std::int32_t>{128});
  EXPECT_EQ(t5.variables.at(attention + "relative_attention_bias").elements<float>(),
            joined("t5-v1.1", {"decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"}));
  EXPECT_EQ(t5.variables.at("encoder/layer_0/ffn/linear_0/weight").elements<float>(),
            joined("t5-v1.1", {"encoder.block.0.layer.1.DenseReluDense.wi_0.weight"}));
  EXPECT_EQ(t5.variables.at("encoder/layer_0/ffn/linear_0_noact/weight").elements<float>(),
            joined("t5-v1.1", {"encoder.block.0.layer.1.DenseReluDense.wi_1.weight"}));
  EXPECT_FALSE(t5.variables.contains("encoder/layer_norm/beta"));
  EXPECT_FALSE(t5.variables.contains("decoder/position_encodings/encodings"));
  EXPECT_FALSE(t5.aliases.contains("decoder/projection/weight"));
}

TEST_F(Ctranslate2Test, DecoderOnlyModelsHaveASpecificationOfTheirOwn) {
  fs::path const copy = directory_ / "mistral";
  fs::copy(golden("mistral"), copy);
  json::object config = json::parse(read_whole(copy / "config.json")).as_object();
  config["sliding_window"] = nullptr;
  std::ofstream(copy / "config.json") << json::serialize(config);
  Ctranslate2Content const mistral = exported_from(copy, "float32");
  EXPECT_EQ(mistral.specification, "TransformerDecoderSpec");
  EXPECT_EQ(mistral.revision, 8U);
  std::string const attention = "decoder/layer_0/self_attention/";
  std::string const theirs = "model.layers.0.self_attn.";
  EXPECT_EQ(mistral.variables.at(attention + "linear_0/weight").shape, (std::vector<std::uint32_t>{16 + 8 + 8, 16}));
  EXPECT_EQ(mistral.variables.at(attention + "linear_0/weight").elements<float>(),
            joined("mistral", {theirs + "q_proj.weight", theirs + "k_proj.weight", theirs + "v_proj.weight"}));
  EXPECT_EQ(mistral.variables.at(attention + "num_heads_kv").elements<std::int32_t>(), std::vector<std::int32_t>{2});
  EXPECT_EQ(mistral.variables.at(attention + "rotary_dim").elements<std::int32_t>(), std::vector<std::int32_t>{0});
  EXPECT_EQ(mistral.variables.at(attention + "rotary_interleave").elements<std::int8_t>(), std::vector<std::int8_t>{0});
  EXPECT_THAT(mistral.aliases, ElementsAre(testing::Pair("decoder/projection/weight", "decoder/embeddings/weight")));
  for (auto const& [name, variable] : mistral.variables) {
    EXPECT_TRUE(name.starts_with("decoder/")) << name;
  }
  EXPECT_TRUE(fs::exists(directory_ / "mistral.float32" / "vocabulary.json"));
}

TEST_F(Ctranslate2Test, WeightsAreQuantizedByRowsOrAsAWhole) {
  std::string const name = "encoder/layer_0/ffn/linear_0/weight";
  std::vector<float> const weights = joined("marian", {"model.encoder.layers.0.fc1.weight"});
  auto const by_row = exported("marian", "int8").variables;
  auto const scales = by_row.at(name + "_scale").elements<float>();
  auto const bytes = by_row.at(name).elements<std::int8_t>();
  ASSERT_EQ(scales.size(), 16U);
  ASSERT_EQ(bytes.size(), weights.size());
  auto const whole = exported("marian", "int16").variables;
  EXPECT_TRUE(whole.at(name + "_scale").shape.empty());
  float const scale = whole.at(name + "_scale").elements<float>().at(0);
  auto const words = whole.at(name).elements<std::int16_t>();
  float largest = 0;
  for (std::size_t index = 0; index < weights.size(); ++index) {
    EXPECT_EQ(static_cast<float>(bytes[index]), std::nearbyint(weights[index] * scales[index / 16]));
    EXPECT_EQ(static_cast<float>(words[index]), std::nearbyint(weights[index] * scale));
    largest = std::max(largest, std::abs(weights[index]));
  }
  for (std::size_t row = 0; row < scales.size(); ++row) {
    auto const begin = bytes.begin() + static_cast<std::ptrdiff_t>(16 * row);
    EXPECT_EQ(std::abs(*std::max_element(begin, begin + 16, [](int a, int b) { return std::abs(a) < std::abs(b); })),
              127);
  }
  EXPECT_FLOAT_EQ(scale * largest, 1024);
  EXPECT_EQ(by_row.at("encoder/layer_0/ffn/linear_0/bias").type, 0);
}

TEST_F(Ctranslate2Test, HalvesAreRoundedToNearest) {
  std::vector<float> const weights = joined("nllb", {"model.encoder.layers.0.fc1.weight"});
  auto const variables = exported("nllb", "float16").variables;
  EXPECT_EQ(variables.at("encoder/layer_0/ffn/linear_0/weight").type, 4);
  auto const halves = variables.at("encoder/layer_0/ffn/linear_0/weight").elements<std::uint16_t>();
  ASSERT_EQ(halves.size(), weights.size());
  for (std::size_t index = 0; index < weights.size(); ++index) {
    EXPECT_EQ(halves[index], Float16(weights[index]).bits);
  }
}

TEST_F(Ctranslate2Test, AModelThatItCannotComputeIsRefusedByKey) {
  auto const refusal = [&](std::string const& family, std::vector<std::string> const& overrides) {
    fs::path const run = directory_ / "other";
    fs::remove_all(run);
    import_model(execution_, golden(family), run, {overrides});
    ExportOptions options;
    options.model.checkpoint = run.string();
    options.format = "ctranslate2";
    options.directory = directory_ / "refused";
    std::string message = message_of<ConfigError>([&] { export_model(execution_, options); });
    EXPECT_FALSE(fs::exists(options.directory));
    return message;
  };
  expect_contains(refusal("mistral", {}), "model.decoder.self_attention.window");
  expect_contains(refusal("mistral", {"model.logit_cap=30.0"}),
                  {"model.decoder.self_attention.window", "model.logit_cap"});
  expect_contains(refusal("bert", {}), "only encoder-decoder and decoder-only models can be exported");
  expect_contains(refusal("marian", {"model.encoder.layer.1.activation=gelu"}), "model.encoder.layer.1");
  expect_contains(refusal("marian", {"model.decoder.self_attention.window=3"}), "model.decoder.self_attention.window");
}

TEST_F(Ctranslate2Test, AByteLevelVocabularyIsATokenizerJson) {
  exported("gpt2", "float32");
  EXPECT_TRUE(fs::exists(directory_ / "gpt2.float32" / "tokenizer.json"));
  EXPECT_FALSE(fs::exists(directory_ / "gpt2.float32" / "source.model"));
}

}  // namespace
}  // namespace heddle
