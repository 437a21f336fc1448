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

}  // namespace
}  // namespace heddle
