#include "exchange/vocabulary_growth.hpp"

#include <boost/json.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/tokenizers/text_form.hpp>
#include <heddle/io/vocabularies/added_pieces.hpp>

#include "exchange/exporting.hpp"
#include "exchange/importing.hpp"
#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "run/checkpoints/provenance.hpp"

namespace heddle {
namespace {

class VocabularyGrowthTest : public KernelTest, public testing::WithParamInterface<char const*> {
 protected:
  fs::path golden(std::string const& family) const { return fs::path(HEDDLE_TEST_DATA) / "exchange" / family; }
  fs::path at(std::string const& name) const { return directory_ / name; }

  GrownModel grow(fs::path const& run, std::vector<std::string> const& pieces, fs::path const& out) {
    VocabularyGrowth growth;
    growth.model.checkpoint = run.string();
    growth.pieces = pieces;
    growth.run = out;
    return extend_vocabulary(execution_, growth);
  }

  std::unique_ptr<TrainedModel> open(fs::path const& run) {
    TrainedModelOptions options;
    options.checkpoint = run.string();
    options.execution = &execution_;
    options.add_kernels = [](KernelRegistries&, KernelChoices& choices) { choices = reference_kernels(); };
    return TrainedModel::open(options);
  }

  /// The logits [tokens, vocabulary] of some tokens that all models here have.
  static std::vector<float> logits(TrainedModel& model) {
    std::vector<std::int32_t> const source{5, 17, 23, 42, 8};
    std::vector<std::int32_t> const target{11, 31, 7, 60};
    Sample const pair{0, source, target};
    TokenSequence const sequence{0, target, target};
    bool const alone = model.config().model.is_decoder_only();
    return model.logits(alone ? make_sequence_pack(std::span(&sequence, 1), Side::target)
                              : make_pack(std::span(&pair, 1), model.vocabulary().special_ids()));
  }

  static Checkpoint checkpoint_of(fs::path const& run) {
    TrainedModelOptions options;
    options.checkpoint = run.string();
    return std::move(open_checkpoints(options).checkpoints.front());
  }

  TemporaryDirectory directory_;
};

TEST_P(VocabularyGrowthTest, TheOldPartOfEveryLogitKeepsItsBits) {
  std::vector<std::string> const pieces{"<2de>", "qzq"};
  import_model(execution_, golden(GetParam()), at("run"));
  GrownModel const grown = grow(at("run"), pieces, at("grown"));
  EXPECT_FALSE(grown.tables.empty());
  auto const before = open(at("run"));
  auto const after = open(at("grown"));
  auto const old_size = static_cast<std::size_t>(before->vocabulary().target.size());
  ASSERT_EQ(after->vocabulary().target.size(), before->vocabulary().target.size() + 2);
  std::vector<float> const expected = logits(*before);
  std::vector<float> const found = logits(*after);
  ASSERT_EQ(found.size() / (old_size + 2), expected.size() / old_size);
  for (std::size_t index = 0; index < expected.size(); ++index) {
    ASSERT_EQ(found[index / old_size * (old_size + 2) + index % old_size], expected[index]) << index;
  }
}

TEST_P(VocabularyGrowthTest, NewRowsAreTheMeansOfTheirParts) {
  std::vector<std::string> const pieces{"<2de>", "qzq"};
  import_model(execution_, golden(GetParam()), at("run"));
  GrownModel const grown = grow(at("run"), pieces, at("grown"));
  Checkpoint const before = checkpoint_of(at("run"));
  Checkpoint const after = checkpoint_of(at("grown"));
  std::int64_t const rows = grown.before.target.size();
  int tables = 0;
  for (TensorInfo const& tensor : before.tensors()) {
    TensorInfo const& now = after.tensor(tensor.name);
    EXPECT_EQ(now.keys, std::vector<std::string>{value_key});
    std::vector<float> const old_values = before.read(tensor.name);
    std::vector<float> values = after.read(tensor.name);
    bool const is_table = tensor.shape.front() == rows && now.shape.front() == rows + 2;
    EXPECT_EQ(std::ranges::find(grown.tables, tensor.name) != grown.tables.end(), is_table) << tensor.name;
    if (is_table) {
      ++tables;
      auto const columns = old_values.size() / static_cast<std::size_t>(rows);
      for (std::size_t piece = 0; piece < 2; ++piece) {
        std::vector<std::int32_t> const parts = parts_of(grown.before.source, pieces[piece]);
        for (std::size_t column = 0; column < columns; ++column) {
          double sum = 0;
          for (std::int32_t const part : parts) {
            sum += static_cast<double>(old_values[static_cast<std::size_t>(part) * columns + column]);
          }
          EXPECT_FLOAT_EQ(values[old_values.size() + piece * columns + column],
                          static_cast<float>(sum / static_cast<double>(parts.size())));
        }
      }
      values.resize(old_values.size());
    }
    EXPECT_EQ(values, old_values) << tensor.name;
  }
  EXPECT_EQ(tables, std::ssize(grown.tables));
}

TEST_P(VocabularyGrowthTest, GoesOutAndComesInAgainWithItsPieces) {
  import_model(execution_, golden(GetParam()), at("run"));
  grow(at("run"), {"<2de>", "qzq"}, at("grown"));
  ExportOptions options;
  options.model.checkpoint = at("grown").string();
  options.directory = at("out");
  EXPECT_EQ(export_model(execution_, options).largest_difference, 0.0);
  EXPECT_FALSE(fs::exists(at("out") / import_record));
  import_model(execution_, at("out"), at("again"));
  Vocabulary const before = checkpoint_of(at("grown")).contents().vocabulary();
  Vocabulary const after = checkpoint_of(at("again")).contents().vocabulary();
  for (std::string const text : {"a man <2de> a dog", "aqzqa <2de>", "two young men"}) {
    EXPECT_EQ(after.source.encode(text), before.source.encode(text));
    EXPECT_EQ(after.target.encode(text), before.target.encode(text));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, VocabularyGrowthTest,
                         testing::Values("marian", "t5-v1.1", "nllb", "mistral", "llama-bpe"));

TEST_F(VocabularyGrowthTest, ANewLanguageStartsAsTheMeanOfTheOthersAndGoesOutAndComesIn) {
  import_model(execution_, golden("nllb"), at("run"));
  VocabularyGrowth growth;
  growth.model.checkpoint = at("run").string();
  growth.pieces = {"qzq"};
  growth.languages = {"gsw_Latn"};
  growth.run = at("grown");
  extend_vocabulary(execution_, growth);
  std::vector<float> const before = checkpoint_of(at("run")).read("embedding.weight");
  std::vector<float> const after = checkpoint_of(at("grown")).read("embedding.weight");
  TextForm const form = checkpoint_of(at("run")).contents().vocabulary().source.form();
  ASSERT_EQ(form.languages.size(), 2U);
  std::size_t const columns = (after.size() - before.size()) / 2;
  for (std::size_t column = 0; column < columns; ++column) {
    auto const of = [&](std::size_t row) { return before[row * columns + column]; };
    EXPECT_FLOAT_EQ(
        after[before.size() + columns + column],
        (of(static_cast<std::size_t>(form.languages[0])) + of(static_cast<std::size_t>(form.languages[1]))) / 2);
  }
  ExportOptions options;
  options.model.checkpoint = at("grown").string();
  options.directory = at("out");
  EXPECT_EQ(export_model(execution_, options).largest_difference, 0.0);
  import_model(execution_, at("out"), at("again"));
  Vocabulary const again = checkpoint_of(at("again")).contents().vocabulary();
  EXPECT_EQ(again.source.piece(again.source.size() - 1), "gsw_Latn");
  EXPECT_EQ(frame_of(again, {"eng_Latn", "gsw_Latn"}).start.back(), again.source.size() - 1);
  EXPECT_EQ(again.source.encode("aqzqa"), checkpoint_of(at("grown")).contents().vocabulary().source.encode("aqzqa"));
}

TEST_F(VocabularyGrowthTest, OneSideOfAJointVocabularyCannotGrow) {
  import_model(execution_, golden("marian"), at("run"));
  VocabularyGrowth growth;
  growth.model.checkpoint = at("run").string();
  growth.pieces = {"qzq"};
  growth.target = false;
  growth.run = at("grown");
  expect_config_error([&] { extend_vocabulary(execution_, growth); }, "--side both");
  EXPECT_FALSE(fs::exists(at("grown") / "checkpoints"));
}

TEST_F(VocabularyGrowthTest, MariansOwnFilesHaveNoPlaceForNewPieces) {
  import_model(execution_, golden("marian_npz"), at("run"));
  grow(at("run"), {"qzq"}, at("grown"));
  ExportOptions options;
  options.model.checkpoint = at("grown").string();
  options.directory = at("out");
  options.format = "marian";
  expect_data_error([&] { export_model(execution_, options); }, "pieces were added");
}

TEST_F(VocabularyGrowthTest, ACheckpointSaysWhereItsModelCameFrom) {
  import_model(execution_, golden("nllb"), at("run"));
  grow(at("run"), {"qzq"}, at("grown"));
  std::vector<std::string> const lines = describe_origin(checkpoint_of(at("grown")).contents());
  ASSERT_GE(lines.size(), 3U);
  expect_contains(lines.front(), "a model of the family m2m_100 in nllb, imported on 20");
  std::string const weights = sha256(read_whole(golden("nllb") / "model.safetensors"));
  EXPECT_THAT(lines, Contains(HasSubstr("model.safetensors (sha256 " + weights + ")")));
  EXPECT_THAT(lines, Contains(HasSubstr("sentencepiece.bpe.model (sha256 ")));
  expect_contains(lines.back(), "vocabulary of run extended by 1 pieces on 20");
  import_model(execution_, golden("marian_npz") / "model.npz", at("npz"));
  EXPECT_THAT(describe_origin(checkpoint_of(at("npz")).contents()), Contains(HasSubstr("model.npz (sha256 ")));
  EXPECT_TRUE(describe_origin({}).empty());
}

}  // namespace
}  // namespace heddle
