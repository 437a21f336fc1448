#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <sys/stat.h>

#include <heddle/io/dataset/dataset.hpp>
#include <thread>

#include "prepare_fixture.hpp"
#include "read_lines.hpp"

namespace heddle {
namespace {

TEST_F(PrepareTest, RefusesSymbolsThatRuinAVocabulary) {
  for (std::string const symbol : {"\u2581", "\u2581the", "a\u2581"}) {
    options_.symbols = {"<a>", symbol};
    expect_contains(failure(), "U+2581, which stands for the space");
  }
  for (std::string const symbol : {"", " ", "a b", "\u3000", "a\u00A0", "a,b"}) {
    options_.symbols = {symbol};
    expect_contains(failure(), "expected text without spaces");
  }
  options_.symbols = {"a\xFF"};
  expect_contains(failure(), "not valid UTF-8");
}

TEST_F(PrepareTest, NormalizesAsAsked) {
  options_.source = {inputs_.write("odd.en", "Ａ ﬁ\u00A0É\nA B\n")};
  options_.target = {inputs_.write("odd.de", "a é\nb\n")};
  options_.valid_source.clear();
  options_.valid_target.clear();
  auto const decoded = [&](std::string const& rule, std::int64_t size) {
    options_.normalization = rule;
    options_.vocabulary_size = size;
    options_.directory = outputs_ / rule;
    run();
    Dataset const data = Dataset::open(options_.directory / "train.h5");
    return data.source_tokenizer().decode(data.source(0));
  };
  EXPECT_EQ(decoded("nmt_nfkc", 14), "A fi É");
  EXPECT_EQ(decoded("nfkc", 14), "A fi É");
  EXPECT_EQ(decoded("nmt_nfkc_cf", 11), "a fi é");
  EXPECT_EQ(decoded("identity", 14), "Ａ ﬁ\u00A0É");
  options_.normalization = "nfd";
  options_.directory = outputs_ / "other";
  expect_usage_error([&] { run(); }, "--normalization is nfd; expected one of nmt_nfkc");
}

/// Named pipes, into which one thread writes line by line, as one program that makes both sides of a text.
class Pipes {
 public:
  Pipes(std::vector<std::filesystem::path> paths, std::vector<std::vector<std::string>> texts) {
    for (auto const& path : paths) {
      EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    }
    writer_ = std::thread([paths = std::move(paths), texts = std::move(texts)] {
      std::vector<std::ofstream> pipes;
      for (auto const& path : paths) {
        pipes.emplace_back(path);
      }
      for (std::size_t line = 0; line < texts.front().size(); ++line) {
        for (std::size_t side = 0; side < pipes.size(); ++side) {
          pipes[side] << texts[side][line] << '\n' << std::string(line == 0 ? 200'000 : 0, ' ') << std::flush;
        }
      }
    });
  }
  Pipes(Pipes const&) = delete;
  Pipes& operator=(Pipes const&) = delete;
  ~Pipes() { writer_.join(); }

 private:
  std::thread writer_;
};

TEST_F(PrepareTest, ReadsPipesAsFiles) {
  run();
  auto const english = read_lines(options_.source.front());
  auto const german = read_lines(options_.target.front());
  std::string const expected = read_whole(options_.directory / "train.h5");
  std::vector<std::string> both;
  for (std::size_t line = 0; line < english.size(); ++line) {
    both.push_back(english[line] + "\t" + german[line]);
  }
  options_.source = {inputs_ / "pipe.en"};
  options_.target = {inputs_ / "pipe.de"};
  options_.directory = outputs_ / "pipes";
  {
    Pipes const pipes({options_.source.front(), options_.target.front()}, {english, german});
    run();
  }
  EXPECT_EQ(read_whole(options_.directory / "train.h5"), expected);
  EXPECT_THAT(names_in(options_.directory), ElementsAre("train.h5", "valid.h5", "vocab.model"));
  options_.source.clear();
  options_.target.clear();
  options_.tsv = {inputs_ / "pipe.tsv"};
  options_.directory = outputs_ / "columns";
  {
    Pipes const pipes({options_.tsv.front()}, {both});
    run();
  }
  EXPECT_EQ(read_whole(options_.directory / "train.h5"), expected);

  // Read once, a pipe is not copied.
  std::filesystem::remove(options_.tsv.front());
  options_.source_model = outputs_ / "deep/data/vocab.model";
  options_.directory = outputs_ / "once";
  options_.threads = 3;
  std::ostringstream progress;
  {
    Pipes const pipes({options_.tsv.front()}, {both});
    prepare(options_, progress);
  }
  EXPECT_EQ(read_whole(options_.directory / "train.h5"), expected);
  EXPECT_THAT(progress.str(), ::testing::Not(HasSubstr("copying")));
  options_.valid_source = options_.valid_target = {};
  options_.valid_tsv = options_.tsv;
  options_.directory = outputs_ / "twice";
  expect_usage_error([&] { run(); }, "pipe.tsv is given for two texts");
}

TEST_F(PrepareTest, TakesTheColumnsThatAreNamed) {
  run();
  auto const expected = Dataset::open(options_.directory / "valid.h5");
  auto const english = read_lines(options_.valid_source.front());
  auto const german = read_lines(options_.valid_target.front());
  std::string lines;
  for (std::size_t line = 0; line < english.size(); ++line) {
    lines += "0.9\t" + german[line] + "\turl\t" + english[line] + (line % 2 == 0 ? "\tmore\n" : "\n");
  }
  options_ = {};
  options_.valid_tsv = {inputs_.write("valid.tsv", lines)};
  options_.directory = outputs_ / "columns";
  options_.source_model = outputs_ / "deep/data/vocab.model";
  expect_data_error([&] { run(); }, {"line 1 has 4 tabs", "--columns names the columns"});
  options_.columns = {4, 2};
  run();
  EXPECT_EQ(Dataset::open(options_.directory / "valid.h5").digest(), expected.digest());
  options_.overwrite = true;
  options_.columns = {5, 2};
  expect_data_error([&] { run(); }, {"line 2 has 3 tabs", "at least 5 columns"});
  options_.columns = {2, 2};
  expect_usage_error([&] { run(); }, "two different columns");
}

TEST_F(PrepareTest, WritesAVocabularyOrAValidationSetAlone) {
  run();
  PrepareOptions const whole = options_;
  options_.directory = outputs_ / "vocabulary";
  options_.only_vocabulary = true;
  expect_usage_error([&] { run(); }, "--only-vocab learns a vocabulary");
  options_.valid_source.clear();
  options_.valid_target.clear();
  PrepareReport const report = run();
  EXPECT_FALSE(report.train || report.valid);
  EXPECT_THAT(names_in(options_.directory), ElementsAre("vocab.model"));
  std::string const model = read_whole(options_.directory / "vocab.model");
  EXPECT_EQ(model, read_whole(whole.directory / "vocab.model"));
  options_.directory = whole.directory;
  options_.overwrite = true;
  expect_usage_error([&] { run(); }, "choose another --out for --only-vocab");

  options_ = {};
  options_.valid_source = whole.valid_source;
  options_.valid_target = whole.valid_target;
  options_.directory = whole.directory;
  expect_usage_error([&] { run(); }, "a validation text alone needs");
  options_.source_model = whole.directory / "vocab.model";
  expect_usage_error([&] { run(); }, "valid.h5 exists");
  std::string const expected = read_whole(whole.directory / "valid.h5");
  std::filesystem::remove(whole.directory / "valid.h5");
  run();
  EXPECT_EQ(read_whole(whole.directory / "valid.h5"), expected);
  EXPECT_THAT(names_in(whole.directory), ElementsAre("train.h5", "valid.h5", "vocab.model"));
  inputs_.write("vocab.model", "another");
  options_.directory = inputs_.path();
  expect_usage_error([&] { run(); }, "vocab.model has another vocabulary");
}

TEST_F(PrepareTest, CompletesASentencePieceModelWithoutAStart) {
  std::string const prefix = (inputs_ / "marian").string();
  auto const status = sentencepiece::SentencePieceTrainer::Train(
      "--input=" + options_.source.front().string() + "," + options_.target.front().string() + " --model_prefix=" +
      prefix + " --vocab_size=90 --bos_id=-1 --eos_id=0 --unk_id=1 --model_type=unigram --minloglevel=2");
  ASSERT_TRUE(status.ok()) << status.ToString();
  options_.source_model = prefix + ".model";
  run();
  Dataset const data = Dataset::open(options_.directory / "train.h5");
  EXPECT_EQ(data.source_tokenizer().special_ids(), (SpecialIds{.begin = 90, .end = 0, .unknown = 1, .padding = 90}));
  sentencepiece::SentencePieceProcessor theirs;
  ASSERT_TRUE(theirs.Load(prefix + ".model").ok());
  auto const english = read_lines(options_.source.front());
  for (std::int64_t pair = 0; pair < data.size(); ++pair) {
    EXPECT_EQ(data.source(pair), theirs.EncodeAsIds(english[static_cast<std::size_t>(pair)]));
  }
}

class PrepareFieldsTest : public PrepareTest {
 protected:
  PrepareFieldsTest() {
    options_.source = {inputs_.write("a.en", "twenty-one  hundred\nsix\n\nseven hundred\n")};
    options_.target = {inputs_.write("a.de", "hundert einundzwanzig\nsechs\nneun\nsiebenhundert\n")};
    options_.vocabulary_size = 44;
  }
  Dataset prepared() {
    run();
    return Dataset::open(options_.directory / "train.h5");
  }
  static Sample pair(Dataset const& dataset, int64_t index) {
    Sample pair{0, dataset.source(index), dataset.target(index)};
    dataset.read_fields(index, dataset.fields(), pair);
    return pair;
  }
};

TEST_F(PrepareFieldsTest, LinksOfWordsBecomeThoseOfTheirTokens) {
  options_.alignments = {inputs_.write("links", "1-0 0-1 0-1\n0-0\n\n\n")};
  Dataset const dataset = prepared();
  ASSERT_EQ(dataset.size(), 3) << "a pair with an empty side is left out, with its links";
  EXPECT_EQ(dataset.fields(), SampleFields{SampleField::alignment});
  Sample const first = pair(dataset, 0);
  // Each token of a word with each of the other's.
  auto const count = [](Tokenizer const& tokenizer, std::string const& text) {
    return static_cast<std::int32_t>(tokenizer.encode(text).size());
  };
  std::int32_t const split = count(dataset.source_tokenizer(), "twenty-one");
  std::int32_t const target_split = count(dataset.target_tokenizer(), "hundert");
  std::vector<TokenLink> expected;
  for (std::int32_t source = 0; source < std::ssize(first.source.tokens); ++source) {
    for (std::int32_t target = 0; target < std::ssize(first.target.tokens); ++target) {
      if ((source < split) != (target < target_split)) {
        expected.push_back({source, target});
      }
    }
  }
  ASSERT_GT(split, 1);
  EXPECT_EQ(first.alignment, expected);
  Sample const second = pair(dataset, 1);
  EXPECT_EQ(second.alignment.size(), second.source.tokens.size() * second.target.tokens.size());
  EXPECT_TRUE(pair(dataset, 2).alignment.empty());
  EXPECT_TRUE(Dataset::open(options_.directory / "valid.h5").fields().empty());
}

TEST_F(PrepareFieldsTest, WeightsOfSentencesAndWordsAreMultiplied) {
  options_.sentence_weights = {inputs_.write("sentences", "2\n0.5\n1\n3\n")};
  {
    Dataset const dataset = prepared();
    EXPECT_EQ(dataset.fields(), SampleFields{SampleField::weights});
    EXPECT_EQ(pair(dataset, 2).target.weights, std::vector<float>{3});
  }
  options_.word_weights = {inputs_.write("words", "0.25 1\n4\n1\n0\n")};
  options_.overwrite = true;
  Dataset const dataset = prepared();
  Sample const first = pair(dataset, 0);
  std::vector<float> expected(first.target.tokens.size() + 1, 2);
  std::fill_n(expected.begin(), dataset.target_tokenizer().encode("hundert").size(), 0.5F);
  EXPECT_EQ(first.target.weights, expected);
  std::vector<float> const last = pair(dataset, 2).target.weights;
  EXPECT_EQ(last.front(), 0);
  EXPECT_EQ(last.back(), 3) << "the end token";
}

TEST_F(PrepareFieldsTest, RefusesLinesThatDoNotFit) {
  auto const refusal = [&](PrepareOptions::Paths PrepareOptions::*paths, std::string const& text) {
    (options_.*paths) = {inputs_.write("given", text)};
    std::string const message = failure();
    (options_.*paths).clear();
    return message;
  };
  auto const alignments = &PrepareOptions::alignments;
  expect_contains(refusal(alignments, "2-0\n\n\n\n"),
                  "given, line 1: \"2-0\" is not a link SOURCE-TARGET of the lines' 2 and 2 words");
  for (std::string const link : {"0:0", "0-", "-0", "0-0-0", "0--1", "x-0", "1-2"}) {
    expect_contains(refusal(alignments, link + "\n\n\n\n"), "is not a link");
  }
  expect_contains(refusal(alignments, "0-0\n0-0\n\n"), "given ends after line 3, before the text does");
  expect_contains(refusal(alignments, "\n\n\n\n0-0\n"), "given has lines after 4, where the text ends");
  expect_contains(refusal(&PrepareOptions::sentence_weights, "1\n-1\n1\n1\n"),
                  "line 2: \"-1\" is not a weight, a number of at least 0");
  expect_contains(refusal(&PrepareOptions::word_weights, "1\n1\n1\n1\n"),
                  "line 1: 1 weights; expected 2, one for each word of the target");
  options_.alignments = {"links"};
  options_.only_vocabulary = true;
  options_.valid_source.clear();
  options_.valid_target.clear();
  expect_contains(failure(), "are for a training text of pairs");
}

}  // namespace
}  // namespace heddle
