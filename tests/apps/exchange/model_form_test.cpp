#include "exchange/model_form.hpp"

#include <heddle/core/base/random.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/io/formats/npz.hpp>
#include <heddle/io/formats/safetensors.hpp>

#include "exchange/exporting.hpp"
#include "exchange/importing.hpp"
#include "kernel_test_support.hpp"
#include "learnt_tokenizer.hpp"
#include "run/checkpoints/new_run.hpp"

namespace heddle {
namespace {

/// Random parameters, of about the size that training leaves.
class RandomTensors final : public OneRankTensors {
 public:
  /// Tables of tokens have a row of zeros.
  RandomTensors(std::vector<StreamedTensor> tensors, std::optional<std::int64_t> zero_row) : zero_row_(zero_row) {
    tensors_ = std::move(tensors);
  }
  void receive(TensorChunk const& chunk, std::span<float> elements) override {
    StreamedTensor const& tensor = tensors_.at(chunk.tensor);
    bool const scale = tensor.name.ends_with("norm.weight");
    double const width = 2 / std::sqrt(static_cast<double>(tensor.shape.back()));
    for (std::int64_t index = 0; index < chunk.elements.count(); ++index) {
      auto const place = static_cast<std::uint32_t>(chunk.elements.begin + index);
      auto const word = Philox::words(random_key(1, tensor.name), {place, 0, 0, 0})[0];
      double const uniform = static_cast<double>(word) / 4294967296.0 - 0.5;
      bool const zero = tensor.name.ends_with("embedding.weight") && place / tensor.shape.back() == zero_row_;
      elements[static_cast<std::size_t>(index)] = zero ? 0 : static_cast<float>((scale ? 1 : 0) + width * uniform);
    }
  }

 private:
  std::optional<std::int64_t> zero_row_;
};

/// Models that were trained here: their vocabularies are those of `heddle prepare`.
class ModelFormTest : public KernelTest {
 protected:
  static std::string vocabulary(int size) {
    std::string text;
    for (int number = 0; number < 300; ++number) {
      text += fmt::format("a number {} and its neighbour {}\n", number * 7919, number * 104729);
    }
    TokenizerTraining training;
    training.vocabulary_size = size;
    return learn_tokenizer(text, training).model();
  }

  /// The place of a run with these keys beside small sizes.
  fs::path run_of(std::vector<std::string> settings, int source_size = 50, int target_size = 50,
                  bool starts_from_zeros = false) {
    settings.insert(settings.begin(), {"model.d_model=24", "model.d_ff=32", "model.heads=2", "model.encoder_layers=2",
                                       "model.decoder_layers=2", "model.max_length=40"});
    fs::path const run = directory_ / "run";
    fs::remove_all(run);
    CheckpointContents contents;
    contents.source_model = vocabulary(source_size);
    contents.target_model = vocabulary(target_size);
    Config const config = parse_config("", "test", settings);
    contents.state.seed = config.train.seed;
    contents.config = to_toml(config);
    std::optional<std::int64_t> zero_row;
    if (starts_from_zeros) {
      zero_row = contents.vocabulary().target.special_ids().begin;
    }
    RandomTensors tensors(parameters_of(execution_, config, contents.vocabulary()), zero_row);
    write_new_run(run, contents, tensors);
    return run;
  }

  ExportedModel export_as(std::string const& format, std::string const& family = "") {
    ExportOptions options;
    options.model.checkpoint = (directory_ / "run").string();
    options.format = format;
    options.family = family;
    options.directory = directory_ / "out";
    fs::remove_all(options.directory);
    return export_model(execution_, options);
  }

  TemporaryDirectory directory_;
};

TEST_F(ModelFormTest, ThePlainestConfigurationGoesToTransformers) {
  run_of({});
  ExportedModel const exported = export_as("huggingface");
  EXPECT_EQ(exported.family, "marian");
  EXPECT_LT(exported.largest_difference.value(), 1e-5);
  EXPECT_GT(exported.largest_difference.value(), 0) << "the columns have another order";
  EXPECT_FALSE(fs::exists(directory_ / "out" / "form"));
  SafetensorsFiles const files = SafetensorsFiles::open(directory_ / "out");
  EXPECT_EQ(files.tensors().at("final_logits_bias").shape, (std::vector<std::int64_t>{1, 50}));
}

TEST_F(ModelFormTest, PairsOfRotaryPositionsAreHalvesInTheFamilies) {
  for (std::string const family : {"llama", "mixtral"}) {
    std::string const last = family == "llama" ? "feed_forward" : "mixture_of_experts";
    run_of({"model.stacks=[\"decoder\"]", "model.norm=pre", "model.norm_kind=rms", "model.positions=rotary",
            "model.biases=false", "model.activation=swiglu", "model.scale_embedding=false",
            "model.decoder.self_attention.kv_heads=1",
            "model.decoder_sublayers=[\"self_attention\", \"" + last + "\"]"});
    ExportedModel const exported = export_as("huggingface");
    EXPECT_EQ(exported.family, family);
    EXPECT_LT(exported.largest_difference.value(), 1e-5);
  }
}

TEST_F(ModelFormTest, SinusoidsAreATableWhereTheFamilyHasOne) {
  for (std::string const layout : {"interleaved", "halves"}) {  // MarianMTModel has no norm of embeddings
    run_of({"model.embedding_norm=true", "model.position_frequencies=paper", "model.position_layout=" + layout});
    ExportedModel const exported = export_as("huggingface");
    EXPECT_EQ(exported.family, "bart");
    EXPECT_EQ(exported.largest_difference.value(), 0);
    import_model(execution_, directory_ / "out", directory_ / "again");
    EXPECT_EQ(read_whole(directory_ / "again/source.model"), read_whole(directory_ / "run/source.model"));
    fs::remove_all(directory_ / "again");
  }
}

TEST_F(ModelFormTest, ThePlainestConfigurationGoesToMarian) {
  for (int const target_size : {50, 45}) {  // one vocabulary, and two
    for (char const* const tied : {"true", "false"}) {
      run_of({fmt::format("model.tie_embeddings={}", tied)}, 50, target_size);
      ExportedModel const exported = export_as("marian");
      EXPECT_LT(exported.largest_difference.value(), 2e-5);
      NpzFile const npz = NpzFile::open(directory_ / "out" / "model.npz");
      EXPECT_EQ(npz.tensors().at("decoder_ff_logit_out_b").shape, (std::vector<std::int64_t>{1, target_size}));
      expect_contains(npz.bytes("special:model.yml"), fmt::format("dim-vocabs:\n  - 50\n  - {}\n", target_size));
      EXPECT_FALSE(fs::exists(directory_ / "out" / "form"));
      import_model(execution_, directory_ / "out", directory_ / "again");
      fs::remove_all(directory_ / "again");
    }
  }
}

TEST_F(ModelFormTest, MarianHasTheEndAsIdZeroAndTheUnknownPieceAsOne) {
  run_of({});
  export_as("marian");
  Tokenizer const tokenizer = Tokenizer::from_model(read_whole(directory_ / "out" / "vocab.spm"));
  EXPECT_EQ(tokenizer.special_ids().end, 0);
  EXPECT_EQ(tokenizer.special_ids().unknown, 1);
  EXPECT_EQ(tokenizer.size(), 50);
}

TEST_F(ModelFormTest, AModelWithPreNormHasOneMoreLayerInMarian) {
  for (int const target_size : {50, 45}) {
    run_of({"model.norm=pre"}, 50, target_size);
    EXPECT_LT(export_as("marian").largest_difference.value(), 2e-5);
    NpzFile const npz = NpzFile::open(directory_ / "out" / "model.npz");
    EXPECT_TRUE(npz.tensors().contains("decoder_l3_ffn_W1"));
    EXPECT_EQ(npz.tensors().contains("encoder_l3_ffn_W1"), target_size == 50) << "one table is moved for both";
  }
}

TEST_F(ModelFormTest, StudentsGoToMarianIfTheyStartFromZeros) {
  auto const student = [&](std::string const& layer, std::vector<std::string> more, bool starts_from_zeros = true) {
    more.insert(more.begin(), {"model.norm_epsilon=1e-6", "model.position_frequencies=tensor2tensor",
                               "model.decoder_sublayers=[\"" + layer + "\", \"cross_attention\", \"feed_forward\"]"});
    run_of(more, 50, 50, starts_from_zeros);
  };
  for (std::vector<std::string> const& keys :
       {std::vector<std::string>{}, {"model.decoder.tied_layers=[1, 1]"}, {"model.decoder.ssru.projection=true"}}) {
    student("ssru", keys);
    EXPECT_LT(export_as("marian").largest_difference.value(), 2e-5);
  }
  student("average_attention", {"model.decoder.average_attention.d_ff=20"});
  EXPECT_LT(export_as("marian").largest_difference.value(), 2e-5);

  student("ssru", {}, false);
  expect_config_error([&] { export_as("marian"); }, "only models whose decoder begins with self_attention");
  student("average_attention", {"model.decoder.average_attention.d_ff=24"});
  expect_config_error([&] { export_as("marian"); }, "without a second projection");
  student("average_attention", {"model.norm=pre"});
  expect_config_error([&] { export_as("marian"); }, "of tokens before their norm");
}

TEST_F(ModelFormTest, KeysThatMarianDoesNotHaveAreNamed) {
  run_of({"model.embedding_norm=true"});
  expect_config_error([&] { export_as("marian"); }, "starts from a vector of zeros");
  run_of({"model.activation=gelu"});
  expect_config_error([&] { export_as("marian"); }, "model.activation = gelu");
  EXPECT_FALSE(fs::exists(directory_ / "out"));
}

TEST_F(ModelFormTest, KeysOfSinusoidsStandInTheWayOfNoFamilyWithoutThem) {
  Config const form = in_form_of(family_named("t5"), parse_config("", "test", {"model.d_model=24", "model.heads=2"}));
  EXPECT_EQ(form.model.position_frequencies, PositionFrequencies::automatic);
}

TEST_F(ModelFormTest, PreNormIsPegasusWithAVocabularyOfItsOwn) {
  run_of({"model.norm=pre"});
  ExportedModel const exported = export_as("huggingface");
  EXPECT_EQ(exported.family, "pegasus");
  EXPECT_LT(exported.largest_difference.value(), 1e-5);
  SafetensorsFiles const files = SafetensorsFiles::open(directory_ / "out");
  EXPECT_EQ(files.tensors().at("model.decoder.embed_positions.weight").shape, (std::vector<std::int64_t>{40, 24}));
  import_model(execution_, directory_ / "out", directory_ / "again");
  EXPECT_EQ(read_whole(directory_ / "again" / "source.model"), read_whole(directory_ / "run/source.model"));
}

}  // namespace
}  // namespace heddle
