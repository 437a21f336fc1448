#include <heddle/core/tensor/execution.hpp>
#include <heddle/io/formats/npz.hpp>

#include "exchange/exporting.hpp"
#include "exchange/importing.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

/// The model of tests/golden/exchange/make_marian.py.
class MarianTest : public KernelTest {
 protected:
  fs::path golden() const { return fs::path(HEDDLE_TEST_DATA) / "exchange" / "marian_npz"; }

  TrainedModelOptions options(fs::path const& run) {
    TrainedModelOptions options;
    options.checkpoint = run.string();
    options.execution = &execution_;
    return options;
  }

  ExportedModel export_to(std::string const& format, fs::path const& run, fs::path const& directory) {
    ExportOptions exported;
    exported.model.checkpoint = run.string();
    exported.format = format;
    exported.directory = directory;
    return export_model(execution_, exported);
  }

  static std::vector<float> values(NpzFile const& file, std::string const& name) {
    std::vector<float> values(static_cast<std::size_t>(file.tensors().at(name).elements()));
    file.read(name, {0, std::ssize(values)}, values);
    return values;
  }

  /// A copy of the model in which a text of special:model.yml is replaced by another.
  fs::path changed(std::string const& from, std::string const& to) { return changed(from, to, golden(), "model.npz"); }
  fs::path changed(std::string const& from, std::string const& to, fs::path const& models, std::string const& which) {
    fs::path const copy = directory_ / "changed";
    fs::remove_all(copy);
    fs::copy(models, copy);
    NpzFile const file = NpzFile::open(models / which);
    std::string text = file.bytes("special:model.yml");
    text.replace(text.find(from), from.size(), to);
    fs::remove(copy / "model.npz");
    NpzWriter writer(copy / "model.npz");
    for (auto const& [name, tensor] : file.tensors()) {
      bool const is_text = name == "special:model.yml";
      writer.begin(name, is_text ? "|i1" : "<f4", is_text ? std::vector<std::int64_t>{std::ssize(text)} : tensor.shape);
      std::vector<float> const numbers = is_text ? std::vector<float>() : values(file, name);
      writer.write(
          {reinterpret_cast<std::uint8_t const*>(is_text ? text.data() : static_cast<void const*>(numbers.data())),
           is_text ? text.size() : numbers.size() * sizeof(float)});
    }
    writer.finish();
    return copy;
  }

  /// An import's logits are those that the file has.
  void expect_logits(fs::path const& run, fs::path const& logits);

  TemporaryDirectory directory_;
};

void MarianTest::expect_logits(fs::path const& run, fs::path const& logits) {
  std::ifstream file(logits);
  auto const next_line = [&](auto& into) {
    std::string line;
    std::getline(file, line);
    std::istringstream words(line);
    for (typename std::remove_reference_t<decltype(into)>::value_type number{}; words >> number;) {
      into.push_back(number);
    }
  };
  std::vector<std::int32_t> source, target;
  next_line(source);
  next_line(target);
  auto const model = TrainedModel::open(options(run));
  Sample const pair{0, source, target};
  std::vector<float> const found = model->logits(make_pack(std::span(&pair, 1), model->vocabulary().special_ids()));
  std::size_t const rows = target.size() + 1;
  ASSERT_EQ(found.size(), rows * 91);  // 90 pieces, and the token that the decoder starts from
  for (std::size_t row = 0; row < rows; ++row) {
    std::vector<float> expected;
    next_line(expected);
    ASSERT_EQ(expected.size(), 90U);
    for (std::size_t id = 0; id < expected.size(); ++id) {
      EXPECT_NEAR(found[row * 91 + id], expected[id], 1e-4) << "row " << row << ", id " << id;
    }
    EXPECT_EQ(found[row * 91 + 90], -10'000);
  }
}

TEST_F(MarianTest, AnImportedModelHasTheLogitsOfMarian) {
  import_model(execution_, golden(), directory_ / "run");
  expect_logits(directory_ / "run", golden() / "logits.txt");
}

/// Decoders with SSRU (Kim et al. 2019), average attention (Zhang et al. 2018) and tied layers.
TEST_F(MarianTest, StudentsHaveTheLogitsOfMarianAndGoBack) {
  fs::path const students = fs::path(HEDDLE_TEST_DATA) / "exchange" / "marian_students";
  for (std::string const name : {"ssru", "ssru_pre", "average", "average_plain"}) {
    SCOPED_TRACE(name);
    import_model(execution_, students / (name + ".npz"), directory_ / name);
    expect_logits(directory_ / name, students / (name + ".logits.txt"));
    ExportedModel const exported = export_to("marian", directory_ / name, directory_ / (name + ".back"));
    EXPECT_EQ(exported.largest_difference, 0.0);
    NpzFile const before = NpzFile::open(students / (name + ".npz"));
    NpzFile const after = NpzFile::open(directory_ / (name + ".back") / "model.npz");
    EXPECT_EQ(before.tensors().size(), after.tensors().size());
    for (auto const& [tensor, info] : before.tensors()) {
      EXPECT_TRUE(tensor.starts_with("special") || before.bytes(tensor) == after.bytes(tensor)) << tensor;
    }
    import_model(execution_, directory_ / (name + ".back"), directory_ / (name + ".again"));
    expect_logits(directory_ / (name + ".again"), students / (name + ".logits.txt"));
  }
}

TEST_F(MarianTest, StudentsThatMarianComputesOtherwiseAreNamed) {
  fs::path const students = fs::path(HEDDLE_TEST_DATA) / "exchange" / "marian_students";
  auto const refusal = [&](std::string const& name, std::string const& from, std::string const& to) {
    fs::path const model = changed(from, to, students, name);
    return message_of<ConfigError>([&] { import_model(execution_, model, directory_ / "refused"); });
  };
  expect_contains(refusal("ssru.npz", "dec-cell: ssru", "dec-cell: gru"),
                  {"transformer-decoder-autoreg = \"rnn of gru\" cannot be imported", "\"rnn of ssru\""});
  expect_contains(refusal("ssru.npz", "layer-normalization: false", "layer-normalization: true"),
                  "\"rnn of ssru with layer-normalization\"");
  expect_contains(refusal("average.npz", "aan-depth: 2", "aan-depth: 3"), "transformer-aan-depth = 3");
  expect_contains(refusal("average.npz", "dim-aan: 20", "dim-aan: 8"), "without a second projection");
  expect_contains(refusal("average.npz", "transformer-preprocess: \"\"", "transformer-preprocess: n"),
                  "of tokens before their norm");
}

TEST_F(MarianTest, AnExportHasTheBytesOfTheTensorsThatWereImported) {
  import_model(execution_, golden() / "model.npz", directory_ / "run");
  ExportedModel const exported = export_to("marian", directory_ / "run", directory_ / "back");
  EXPECT_EQ(exported.largest_difference, 0.0);
  NpzFile const before = NpzFile::open(golden() / "model.npz");
  NpzFile const after = NpzFile::open(directory_ / "back" / "model.npz");
  EXPECT_EQ(before.tensors().size(), after.tensors().size());
  for (auto const& [name, tensor] : before.tensors()) {
    ASSERT_TRUE(after.tensors().contains(name)) << name;
    if (name != "special:model.yml") {
      EXPECT_EQ(before.tensors().at(name).shape, after.tensors().at(name).shape);
      EXPECT_EQ(before.bytes(name), after.bytes(name)) << name;
    }
  }
  expect_contains(after.bytes("special:model.yml"),
                  {"transformer-postprocess: \"dan\"\n", "tied-embeddings-all: true\n"});
  EXPECT_EQ(read_whole(golden() / "vocab.spm"), read_whole(directory_ / "back" / "vocab.spm"));
  expect_contains(read_whole(directory_ / "back" / "decoder.yml"), "models:\n  - \"model.npz\"\n");
}

TEST_F(MarianTest, TheStartOfTheDecoderStaysZeroInTraining) {
  import_model(execution_, golden(), directory_ / "run");
  Config const config = load_config(directory_ / "run" / "config.toml");
  ASSERT_EQ(config.optimizer.groups.size(), 1U);
  EXPECT_THAT(config.optimizer.groups.front().parameters, ElementsAre("embedding.weight"));
  EXPECT_TRUE(config.optimizer.groups.front().rule.zero_last_row);
}

TEST_F(MarianTest, OptionsThatTheLayersCannotComputeAreNamed) {
  auto const refusal = [&](std::string const& from, std::string const& to) {
    fs::path const model = changed(from, to);
    return message_of<ConfigError>([&] { import_model(execution_, model, directory_ / "refused"); });
  };
  expect_contains(refusal("ffn-activation: swish", "ffn-activation: gelu"),
                  "special:model.yml: transformer-ffn-activation = \"gelu\"");
  expect_contains(refusal("autoreg: self-attention", "autoreg: rnn"), "transformer-decoder-autoreg");
  expect_contains(refusal("postprocess: dan", "postprocess: da"), "transformer-preprocess, -postprocess");
  expect_contains(refusal("ulr: false", "right-left: true"), "right-left = true");
}

TEST_F(MarianTest, AVocabularyOfAnotherSizeIsRefused) {
  fs::path const copy = changed("v1.12.0", "v1.12.0");
  fs::copy_file(fs::path(HEDDLE_TEST_DATA) / "exchange" / "sentencepiece_source.model", copy / "vocab.spm",
                fs::copy_options::overwrite_existing);
  expect_data_error([&] { import_model(execution_, copy, directory_ / "refused"); }, "pieces for a table of 90 rows");
}

TEST_F(MarianTest, OneModelOfADirectoryAndFilesInItAreTaken) {
  fs::path const copy = changed("v1.12.0", "v1.12.0");
  std::ofstream(copy / "decoder.yml") << "models: [/elsewhere/model.npz]\nvocabs: [../../vocab.spm, 'vocab.spm']\n";
  EXPECT_NO_THROW(import_model(execution_, copy, directory_ / "run"));
  std::ofstream(copy / "decoder.yml") << "models: [model.npz, other.npz]\n";
  expect_data_error([&] { import_model(execution_, copy, directory_ / "other"); }, "names 2 models");
  fs::remove(copy / "vocab.spm");
  fs::remove(copy / "decoder.yml");
  expect_data_error([&] { import_model(execution_, copy, directory_ / "other"); }, "vocab.yml does not exist");
}

TEST_F(MarianTest, AVocabularyOfAnotherSystemIsRefused) {
  fs::path const transformers = fs::path(HEDDLE_TEST_DATA) / "exchange" / "marian";
  import_model(execution_, transformers, directory_ / "run");
  expect_config_error([&] { export_to("marian", directory_ / "run", directory_ / "back"); },
                      "the vocabulary is not one of `heddle prepare`");
  EXPECT_FALSE(fs::exists(directory_ / "back"));
}

}  // namespace
}  // namespace heddle
