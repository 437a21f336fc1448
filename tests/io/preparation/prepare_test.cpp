#include <boost/json.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/dataset/demo_data.hpp>
#include <heddle/io/preparation/prepare.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>

#include "prepare_fixture.hpp"
#include "read_lines.hpp"

namespace heddle {
namespace {

TEST_F(PrepareTest, WritesDatasetsThatDecodeToTheText) {
  PrepareReport const report = run();
  EXPECT_EQ(report.train->samples, 400);
  EXPECT_EQ(report.train->empty + report.train->too_long + report.train->unknown_tokens, 0);
  ASSERT_TRUE(report.valid.has_value());
  EXPECT_EQ(report.valid->samples, 20);
  EXPECT_TRUE(report.joint);
  Dataset const dataset = Dataset::open(options_.directory / "train.h5");
  auto const english = read_lines(options_.source.front());
  auto const german = read_lines(options_.target.front());
  ASSERT_EQ(dataset.size(), 400);
  for (int64_t i = 0; i < dataset.size(); ++i) {
    EXPECT_EQ(dataset.source_tokenizer().decode(dataset.source(i)), english[static_cast<std::size_t>(i)]);
    EXPECT_EQ(dataset.target_tokenizer().decode(dataset.target(i)), german[static_cast<std::size_t>(i)]);
  }
  EXPECT_EQ(report.train->tokens[0], dataset.tokens(SampleLength::source));
  EXPECT_EQ(Dataset::open(options_.directory / "valid.h5").vocabulary_digest(), dataset.vocabulary_digest());
  EXPECT_EQ(read_whole(options_.directory / "vocab.model"), dataset.source_tokenizer().model());
}

TEST_F(PrepareTest, PutsTheLanguagesOfAnImportedVocabularyBesideTexts) {
  std::filesystem::path const model = std::filesystem::path(HEDDLE_TEST_DATA) / "exchange" / "nllb";
  auto const read = read_vocabulary(family_named("m2m_100"),
                                    boost::json::parse(read_whole(model / "config.json")).as_object(), model);
  options_.source_model = inputs_.write("imported.model", read.source_model);
  expect_contains(failure(), "--source-language is missing");
  options_.languages = {"eng_Latn", "deu_Latn"};
  run();
  Dataset const dataset = Dataset::open(options_.directory / "train.h5");
  Tokenizer const& tokenizer = dataset.source_tokenizer();
  auto const german = read_lines(options_.target.front());
  for (int64_t i = 0; i < dataset.size(); ++i) {
    auto const target = dataset.target(i);
    EXPECT_EQ(tokenizer.piece(dataset.source(i).front()), "eng_Latn");
    EXPECT_EQ(tokenizer.piece(target.front()), "deu_Latn");
    EXPECT_EQ(std::vector(target.begin() + 1, target.end()), tokenizer.encode(german[static_cast<std::size_t>(i)]));
  }
  options_.overwrite = true;
  options_.max_length = 1;
  expect_error([&] { run(); }, "longer than 1 tokens");
}

TEST_F(PrepareTest, WritesTheSameBytesAgain) {
  run();
  auto const first = options_.directory;
  options_.directory = outputs_ / "again";
  run();
  EXPECT_EQ(read_whole(first / "vocab.model"), read_whole(options_.directory / "vocab.model"));
  EXPECT_EQ(read_whole(first / "train.h5"), read_whole(options_.directory / "train.h5"));
}

TEST_F(PrepareTest, MakesOrTakesSeparateVocabularies) {
  options_.separate_vocabularies = true;
  options_.vocabulary_type = "unigram";
  options_.vocabulary_size = 50;
  EXPECT_FALSE(run().joint);
  Dataset const first = Dataset::open(options_.directory / "train.h5");
  EXPECT_FALSE(first.joint());

  PrepareOptions const made = options_;
  options_.source_model = made.directory / "vocab.source.model";
  options_.target_model = made.directory / "vocab.target.model";
  options_.directory = outputs_ / "again";
  run();
  EXPECT_EQ(Dataset::open(options_.directory / "train.h5").vocabulary_digest(), first.vocabulary_digest());
}

TEST_F(PrepareTest, LeavesOutAndCountsEmptyAndLongPairs) {
  run();
  std::string const long_line = german_number(777'777) + " " + german_number(777'777);
  options_.target = {inputs_.write("gaps.de", "\nzwei\n \ndrei\n" + long_line + "\n")};
  options_.source = {inputs_.write("gaps.en", "one\ntwo\nthree\n\nfour\n")};
  options_.max_length = 20;
  options_.source_model = outputs_ / "deep/data/vocab.model";
  options_.directory = outputs_ / "again";
  PrepareReport const report = run();
  EXPECT_EQ(report.train->samples, 1);
  EXPECT_EQ(report.train->empty, 3);
  EXPECT_EQ(report.train->too_long, 1);
}

TEST_F(PrepareTest, CountsWhatIsWorthALook) {
  run();
  options_.source = {inputs_.write("odd.en", "one\none\ntwo\x01\nthree ☃ ☃\n")};
  options_.target = {inputs_.write("odd.de", "eins\neins\nzwei\ndrei ☃\n")};
  Tokenizer const tokenizer = Tokenizer::from_model(read_whole(outputs_ / "deep/data/vocab.model"));
  options_.vocabulary = Vocabulary{tokenizer, tokenizer};
  options_.directory = outputs_ / "again";
  PreparedText const train = *run().train;
  EXPECT_EQ(train.samples, 4);
  EXPECT_EQ(train.repeats, 1);
  EXPECT_EQ(train.control, 1);
  EXPECT_EQ(train.unknown_characters, 1);
  EXPECT_THAT(train.frequent_unknown, ElementsAre(::testing::Pair("☃", 3)));
  EXPECT_EQ(read_whole(options_.directory / "vocab.model"), tokenizer.model());
  auto const findings = Dataset::open(options_.directory / "train.h5").findings();
  EXPECT_EQ(findings.size(), text_findings.size());
  EXPECT_EQ(findings.at("unknown_tokens"), 3);
  EXPECT_EQ(findings.at("repeats"), 1);
  EXPECT_GT(findings.at("ratio_50"), 0.1);
}

TEST_F(PrepareTest, WritesLinesOfOneTextWithAMaskToken) {
  options_ = {};
  options_.text = {inputs_.write("text", "one two\n\nthree hundred and four <mask>\n" + std::string(3000, 'o') + "\n")};
  options_.valid_text = {inputs_ / "valid.en"};
  options_.vocabulary_size = 40;
  options_.max_length = 100;
  options_.directory = outputs_ / "text";
  PrepareReport const report = run();
  EXPECT_EQ(report.train->samples, 3) << "a long line is kept";
  EXPECT_EQ(report.train->empty, 1);
  EXPECT_GT(report.train->max_tokens[0], options_.max_length);
  EXPECT_EQ(report.valid->samples, 20);
  Dataset const dataset = Dataset::open(options_.directory / "train.h5");
  ASSERT_TRUE(dataset.has_lines());
  EXPECT_EQ(dataset.source_tokenizer().decode(dataset.line(0)), "one two");
  EXPECT_EQ(report.train->tokens[0], dataset.tokens(SampleLength::line));
  int32_t const mask = dataset.source_tokenizer().special_ids().mask;
  EXPECT_GT(mask, 0);
  auto const line = dataset.line(1);
  EXPECT_EQ(std::count(line.begin(), line.end(), mask), 0) << "text was read as the mask token";
  options_.source = {inputs_ / "train.en"};
  options_.directory = outputs_ / "again";
  expect_usage_error([&] { run(); }, "expected either --source and --target");
}

TEST_F(PrepareTest, WritesSeveralFilesThatAreOneDataset) {
  options_.directory = outputs_.path();
  run();
  Dataset const whole = Dataset::open(outputs_ / "train.h5");
  options_.samples_per_file = 150;
  expect_usage_error([&] { run(); }, "train.h5 exists");
  options_.overwrite = true;
  run();
  EXPECT_THAT(outputs_.names(),
              ElementsAre("train-00001.h5", "train-00002.h5", "train-00003.h5", "valid.h5", "vocab.model"));
  std::vector<std::string> paths;
  for (int file = 1; file <= 3; ++file) {
    paths.push_back((outputs_ / fmt::format("train-{:05}.h5", file)).string());
  }
  Dataset const dataset = Dataset::open(paths);
  ASSERT_EQ(dataset.size(), whole.size());
  for (int64_t pair = 0; pair < whole.size(); ++pair) {
    EXPECT_EQ(dataset.source(pair), whole.source(pair));
    EXPECT_EQ(dataset.target(pair), whole.target(pair));
  }
  options_.samples_per_file = 200;
  run();
  EXPECT_THAT(outputs_.names(), ElementsAre("train-00001.h5", "train-00002.h5", "valid.h5", "vocab.model"));
  options_.samples_per_file = -1;
  EXPECT_THROW(run(), UsageError);
}

TEST_F(PrepareTest, FilesAndColumnsOfATextGiveTheSameDataset) {
  run();
  std::string const expected = read_whole(options_.directory / "train.h5");
  auto const english = read_lines(options_.source.front());
  auto const german = read_lines(options_.target.front());
  std::array<std::string, 2> sources;
  std::array<std::string, 2> targets;
  std::array<std::string, 2> both;
  for (std::size_t line = 0; line < english.size(); ++line) {
    std::size_t const file = line < 150 ? 0 : 1;
    sources.at(file) += english[line] + "\n";
    targets.at(file) += german[line] + "\n";
    both.at(file) += english[line] + "\t" + german[line] + "\n";
  }
  options_.source = {inputs_.write("1.en", sources[0]), inputs_.write("2.en", sources[1])};
  options_.target = {inputs_.write("1.de", targets[0]), inputs_.write("2.de", targets[1])};
  options_.directory = outputs_ / "parts";
  run();
  EXPECT_EQ(read_whole(options_.directory / "train.h5"), expected);
  options_.source.clear();
  options_.target.clear();
  options_.tsv = {inputs_.write("1.tsv", both[0]), inputs_.write("2.tsv", both[1])};
  options_.directory = outputs_ / "columns";
  run();
  EXPECT_EQ(read_whole(options_.directory / "train.h5"), expected);
}

TEST_F(PrepareTest, RefusesFilesThatAreNotBesideEachOther) {
  options_.source.push_back(inputs_ / "valid.en");
  expect_contains(failure(), "as many files");
  // As many lines together, but not each.
  options_.source = {inputs_ / "train.en", inputs_ / "valid.en"};
  options_.target = {inputs_ / "valid.de", inputs_ / "train.de"};
  expect_contains(failure(), {"train.en has 400 lines", "valid.de has 20"});
  options_.tsv = {inputs_ / "train.en"};
  expect_contains(failure(), "expected either --source and --target, or --tsv");
  options_.source.clear();
  options_.target.clear();
  options_.tsv = {inputs_.write("bad.tsv", "one\teins\ntwo zwei\n")};
  expect_contains(failure(), {"bad.tsv: line 2 has 0 tabs", "SOURCE<TAB>TARGET"});
  options_.character_coverage = 0.5;
  expect_contains(failure(), "--character-coverage is 0.5; expected 0.98 to 1");
}

TEST_F(PrepareTest, RefusesUnequalLineCountsNamingBoth) {
  options_.valid_target = {inputs_ / "train.de"};
  expect_contains(failure(), {"valid.en has 20 lines", "train.de has 400"});
}

TEST_F(PrepareTest, RefusesTextThatCannotBeUsed) {
  options_.target = {inputs_.write("bad.de", "gut\nschlecht \xFC\n")};
  expect_contains(failure(), {"bad.de", "line 2", "UTF-8"});
  options_.target = {inputs_.write("empty.de", "")};
  expect_contains(failure(), {"empty.de", "the file is empty"});
  options_.target = {inputs_ / "absent.de"};
  expect_contains(failure(), "absent.de");
}

TEST_F(PrepareTest, SkipsOrReplacesWhatIsNotUtf8WhereAsked) {
  // The first source and the last target are not UTF-8.
  options_.source = {inputs_.write("bad.en", "\xFF" + read_whole(options_.source.front()))};
  std::string const german = read_whole(options_.target.front());
  options_.target = {inputs_.write("bad.de", german.substr(0, german.size() - 1) + " \xE2\x82\n")};
  options_.invalid_utf8 = InvalidUtf8::skip;
  options_.directory = outputs_ / "skipped";
  PreparedText const skipped = *run().train;
  EXPECT_EQ(skipped.invalid, 2);
  EXPECT_EQ(skipped.samples, 398);
  EXPECT_EQ(skipped.unknown_tokens, 0);
  Dataset const rest = Dataset::open(options_.directory / "train.h5");
  auto const english = read_lines(inputs_ / "train.en");
  EXPECT_EQ(rest.source_tokenizer().decode(rest.source(0)), english[1]) << "pairs stay pairs";
  EXPECT_EQ(rest.target_tokenizer().decode(rest.target(0)), read_lines(inputs_ / "train.de")[1]);

  options_.invalid_utf8 = InvalidUtf8::replace;
  options_.directory = outputs_ / "replaced";
  PreparedText const replaced = *run().train;
  EXPECT_EQ(replaced.invalid, 2);
  EXPECT_EQ(replaced.samples, 400);
  EXPECT_EQ(replaced.unknown_tokens, 0);
  Dataset const all = Dataset::open(options_.directory / "train.h5");
  // SentencePiece's normalisation takes U+FFFD for white space.
  EXPECT_EQ(all.source_tokenizer().decode(all.source(0)), english[0]);
  EXPECT_EQ(all.target_tokenizer().decode(all.target(399)), read_lines(inputs_ / "train.de")[399]);
}

TEST_F(PrepareTest, RefusesAVocabularyModelBeforeReadingTexts) {
  options_.source = {inputs_ / "absent.en"};
  options_.source_model = inputs_.path();
  expect_contains(failure(), inputs_.path().string() + ": is a directory");
  options_.source_model = inputs_ / "absent.model";
  expect_contains(failure(), "absent.model: does not exist; expected a vocabulary model");
  options_.source_model = inputs_.write("text.model", "text");
  expect_contains(failure(), {"text.model", "not a SentencePiece model"});
}

TEST_F(PrepareTest, RefusesWhenNoPairIsLeft) {
  options_.max_length = 1;
  expect_contains(failure(), {"no sentence pair can be used", "longer than 1 tokens"});
}

TEST_F(PrepareTest, RefusesImpossibleVocabularies) {
  options_.vocabulary_size = 1'000'000;
  expect_contains(failure(), "the largest possible is");
  options_.vocabulary_size = 90;
  options_.source_model = inputs_.write("x.model", "nonsense");
  expect_contains(failure(), {"x.model", "SentencePiece"});
  options_.separate_vocabularies = true;
  expect_contains(failure(), "--target-vocab-model");
}

TEST_F(PrepareTest, RefusesSymbolsThatAreThereAlready) {
  options_.symbols = {"<a>", "<b>", "<a>"};
  expect_contains(failure(), "has \"<a>\" more than once");
  options_.sentinels = 2;
  options_.byte_fallback = true;
  for (std::string const taken : {"<mask>", "<0xe4>", "<extra_id_1>"}) {
    options_.symbols = {taken};
    expect_contains(failure(), "has \"" + taken + "\", which is a special piece already");
  }
}

TEST_F(PrepareTest, RefusesAnUnwritableTarget) {
  options_.directory = inputs_ / "train.en" / "below-a-file";
  expect_contains(failure(), "train.en: cannot make this directory: Not a directory");
  options_.directory = inputs_ / "train.en";
  expect_contains(failure(), "train.en");
  options_.directory = "/proc/heddle";  // not even root can create this
  expect_contains(failure(), "/proc/heddle");
}

TEST_F(PrepareTest, ReplacesNothingUnlessAskedTo) {
  options_.directory = outputs_.path();
  run();
  EXPECT_THAT(outputs_.names(), ElementsAre("train.h5", "valid.h5", "vocab.model"));
  expect_usage_error([&] { run(); }, "--overwrite");
  options_.overwrite = true;
  options_.valid_source.clear();
  EXPECT_THROW(run(), UsageError);
  options_.valid_target.clear();
  options_.separate_vocabularies = true;
  options_.vocabulary_size = 50;
  run();
  EXPECT_THAT(outputs_.names(), ElementsAre("train.h5", "vocab.source.model", "vocab.target.model"));
}

}  // namespace
}  // namespace heddle
