#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/dataset/demo_data.hpp>
#include <heddle/io/dataset/sample_source.hpp>
#include <heddle/io/hdf5/hdf5.hpp>
#include <numeric>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

using test::message_of;
using test::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tokenizer train_tokenizer(std::string (*in_words)(int64_t), int64_t size, bool mask_token = false) {
  TemporaryDirectory const directory;
  std::string text;
  for (int64_t i = 0; i < 300; ++i) {
    text += in_words(i * 37) + "\n";
  }
  TokenizerTraining training;
  training.texts = {directory.write("text", text)};
  training.vocabulary_size = size;
  training.mask_token = mask_token;
  return Tokenizer::train(training);
}

/// One pair of small vocabularies for all tests here.
Vocabulary const& separate_vocabulary() {
  static Vocabulary const vocabulary{train_tokenizer(english_number, 60), train_tokenizer(german_number, 50)};
  return vocabulary;
}

/// Sentence i of a side: i % 7 + 1 tokens that differ by sentence and side.
std::vector<int32_t> sentence(int64_t index, int32_t vocabulary_size) {
  std::vector<int32_t> tokens(static_cast<std::size_t>(index % 7 + 1));
  std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(index * 13));
  for (int32_t& token : tokens) {
    token %= vocabulary_size;
  }
  return tokens;
}

void write_sentences(std::filesystem::path const& path, int64_t pairs) {
  DatasetWriter writer(path, separate_vocabulary());
  for (int64_t i = 0; i < pairs; ++i) {
    writer.add(sentence(i, 60), sentence(i + 3, 50));
  }
  EXPECT_EQ(writer.size(), pairs);
  writer.commit();
}

void expect_sentences(Dataset const& dataset, int64_t pairs) {
  ASSERT_EQ(dataset.size(), pairs);
  for (int64_t step = 0; step < pairs; ++step) {
    int64_t const i = step * 7919 % pairs;  // out of order
    EXPECT_EQ(dataset.source(i), sentence(i, 60));
    EXPECT_EQ(dataset.target(i), sentence(i + 3, 50));
    EXPECT_EQ(dataset.source_length(i), i % 7 + 1);
    EXPECT_EQ(dataset.target_length(i), (i + 3) % 7 + 1);
  }
}

TEST(Dataset, GivesBackWhatWasWritten) {
  TemporaryDirectory const directory;
  write_sentences(directory / "train.h5", 20011);
  EXPECT_THAT(directory.names(), ElementsAre("train.h5"));
  Dataset const dataset = Dataset::open(directory / "train.h5");
  expect_sentences(dataset, 20011);
  EXPECT_FALSE(dataset.joint());
  EXPECT_EQ(dataset.vocabulary_digest(), separate_vocabulary().digest());
  EXPECT_EQ(dataset.source_tokenizer().model(), separate_vocabulary().source.model());
  EXPECT_EQ(dataset.target_tokenizer().model(), separate_vocabulary().target.model());
  EXPECT_THROW(dataset.source(20011), Error);
  EXPECT_THROW(dataset.target_length(-1), Error);
}

TEST(Dataset, GivesTheSameFromAFileTooLargeToKeep) {
  TemporaryDirectory const directory;
  write_sentences(directory / "train.h5", 20011);
  constexpr int64_t one_block_a_side = 1;
  expect_sentences(Dataset::open(directory / "train.h5", one_block_a_side), 20011);
}

TEST(Dataset, KnowsAJointVocabulary) {
  TemporaryDirectory const directory;
  Tokenizer const& tokenizer = separate_vocabulary().source;
  DatasetWriter writer(directory / "joint.h5", {tokenizer, tokenizer});
  writer.add(std::vector<int32_t>{4}, std::vector<int32_t>{5, 6});
  writer.commit();
  EXPECT_TRUE(Dataset::open(directory / "joint.h5").joint());
}

TEST(DatasetWriter, LeavesNothingWithoutACommit) {
  TemporaryDirectory const directory;
  {
    DatasetWriter writer(directory / "train.h5", separate_vocabulary());
    writer.add(std::vector<int32_t>{4}, std::vector<int32_t>{5});
    EXPECT_FALSE(std::filesystem::exists(directory / "train.h5"));
    EXPECT_EQ(directory.names().size(), 1U);
    writer.finish();
    EXPECT_THROW(writer.add(std::vector<int32_t>{4}, std::vector<int32_t>{5}), Error);
  }
  EXPECT_TRUE(directory.names().empty());
}

TEST(DatasetWriter, RefusesWhatNoReaderWouldTake) {
  TemporaryDirectory const directory;
  DatasetWriter writer(directory / "train.h5", separate_vocabulary());
  EXPECT_THROW(writer.add({}, std::vector<int32_t>{5}), Error);
  EXPECT_THROW(writer.add(std::vector<int32_t>{5}, std::vector<int32_t>{50}), Error);
  EXPECT_THROW(writer.add(std::vector<int32_t>{-1}, std::vector<int32_t>{5}), Error);
  EXPECT_THROW(DatasetWriter(directory / "absent" / "train.h5", separate_vocabulary()), Error);
}

/// A dataset's content, each part of which a test may damage before it is written.
struct Content {
  std::string format = "heddle-dataset";
  int64_t version = 1;
  std::string digest = separate_vocabulary().digest();
  std::string source_model = separate_vocabulary().source.model();
  std::vector<int32_t> source_tokens = {4, 5, 6};
  std::vector<int64_t> source_offsets = {0, 1, 3};
  std::vector<int32_t> target_tokens = {7, 8};
  std::vector<int64_t> target_offsets = {0, 1, 2};
  bool tokens_as_floats = false;
};

template <typename T>
void write_array(hdf5::Group& group, char const* name, std::vector<T> const& values) {
  group.write_array<T>(name, {std::ssize(values)}, values);
}

/// The error message of opening the damaged dataset.
std::string open_error(std::function<void(Content&)> const& spoil) {
  TemporaryDirectory const directory;
  Content content;
  spoil(content);
  hdf5::File file = hdf5::File::create(directory / "x.h5");
  file.set_string_attribute("format", content.format);
  file.set_integer_attribute("format_version", content.version);
  file.set_string_attribute("vocabulary_digest", content.digest);
  file.set_integer_attribute("joint", 0);
  {
    hdf5::Group models = file.create_group("vocabulary");
    models.write_bytes("source_model", content.source_model);
    models.write_bytes("target_model", separate_vocabulary().target.model());
    hdf5::Group source = file.create_group("source");
    if (content.tokens_as_floats) {
      write_array<float>(source, "tokens", {4.0F, 5.0F, 6.0F});
    } else {
      write_array(source, "tokens", content.source_tokens);
    }
    write_array(source, "offsets", content.source_offsets);
    hdf5::Group target = file.create_group("target");
    write_array(target, "tokens", content.target_tokens);
    write_array(target, "offsets", content.target_offsets);
  }
  file.close();
  return message_of<DataError>([&] { Dataset::open(directory / "x.h5"); });
}

TEST(Dataset, ChecksAFileFromElsewhere) {
  EXPECT_EQ(open_error([](Content&) {}), "");
  EXPECT_THAT(open_error([](Content& c) { c.format = "heddle-checkpoint"; }), HasSubstr("not a dataset"));
  EXPECT_THAT(open_error([](Content& c) { c.version = 3; }), HasSubstr("version 3"));
  EXPECT_THAT(open_error([](Content& c) { c.digest[0] = 'x'; }), HasSubstr("not the one it was made with"));
  EXPECT_THAT(open_error([](Content& c) { c.source_model = separate_vocabulary().target.model(); }),
              HasSubstr("not the one it was made with"));
  EXPECT_THAT(open_error([](Content& c) { c.source_model = "nonsense"; }),
              AllOf(HasSubstr("source_model"), HasSubstr("SentencePiece")));
  EXPECT_THAT(open_error([](Content& c) { c.source_tokens[2] = 60; }),
              AllOf(HasSubstr("/source/tokens"), HasSubstr("token id 60"), HasSubstr("59")));
  EXPECT_THAT(open_error([](Content& c) { c.target_tokens[0] = -1; }), HasSubstr("/target/tokens"));
  EXPECT_THAT(open_error([](Content& c) { c.source_offsets = {1, 2, 3}; }), HasSubstr("/source/offsets"));
  EXPECT_THAT(open_error([](Content& c) { c.source_offsets = {0, 1, 4}; }), HasSubstr("runs from 0 to 4"));
  EXPECT_THAT(open_error([](Content& c) { c.source_offsets = {0, 5, 3}; }), HasSubstr("5 is followed by 3"));
  EXPECT_THAT(open_error([](Content& c) { c.source_offsets = {0, 0, 3}; }), HasSubstr("no tokens"));
  EXPECT_THAT(open_error([](Content& c) {
                c.source_offsets = {0, 3};
              }),
              HasSubstr("1 source sentences but 2 target sentences"));
  EXPECT_THAT(open_error([](Content& c) { c.source_offsets = {0}, c.source_tokens = {}; }), HasSubstr("no sentence"));
  EXPECT_THAT(open_error([](Content& c) { c.tokens_as_floats = true; }), HasSubstr("/source/tokens"));
}

TEST(Dataset, SaysWhatAForeignFileIsNot) {
  TemporaryDirectory const directory;
  EXPECT_THAT(message_of<DataError>([&] { Dataset::open(directory / "absent.h5"); }), HasSubstr("absent.h5"));
  auto const path = directory.write("text.h5", "no HDF5 at all");
  EXPECT_THAT(message_of<DataError>([&] { Dataset::open(path); }), HasSubstr("text.h5"));
}

TEST(Dataset, HoldsLinesOfOneText) {
  TemporaryDirectory const directory;
  auto const path = directory / "lines.h5";
  Tokenizer const& tokenizer = separate_vocabulary().source;
  DatasetWriter writer(path, tokenizer);
  for (int64_t i = 0; i < 20; ++i) {
    writer.add(sentence(i, 60));
  }
  EXPECT_THAT(message_of<Error>([&] { writer.add(sentence(1, 60), sentence(2, 60)); }),
              HasSubstr("cannot add a sample of 2 and 3 tokens: it has lines, with one side"));
  EXPECT_THAT(message_of<Error>([&] { writer.add(std::vector<int32_t>{}); }), HasSubstr("no side may be empty"));
  EXPECT_THROW(writer.add(std::vector<int32_t>{60}), Error);
  writer.commit();
  Dataset const dataset = Dataset::open(path);
  ASSERT_EQ(dataset.size(), 20);
  EXPECT_TRUE(dataset.has_lines());
  EXPECT_TRUE(dataset.joint());
  EXPECT_EQ(dataset.line(9), sentence(9, 60));
  EXPECT_EQ(dataset.line_length(9), 3);
  EXPECT_EQ(dataset.line(9, 1, 2), (std::vector<int32_t>{sentence(9, 60)[1], sentence(9, 60)[2]}));
  EXPECT_EQ(dataset.line(9, 3, 0), std::vector<int32_t>());
  EXPECT_THAT(message_of<Error>([&] { dataset.line(9, 1, 3); }),
              HasSubstr("has 3 tokens; tokens 1 to 4 are not in it"));
  EXPECT_EQ(dataset.vocabulary_digest(), (Vocabulary{tokenizer, tokenizer}.digest()));
  EXPECT_THAT(message_of<Error>([&] { dataset.source(0); }), HasSubstr("asked for pairs, but it holds lines"));
}

class SampleSourceTest : public testing::Test {
 protected:
  SampleSourceTest() {
    write_sentences(directory_ / "pairs.h5", 5);
    write_lines("lines.h5", separate_vocabulary().source);
  }

  void write_lines(char const* name, Tokenizer const& tokenizer) const {
    DatasetWriter writer(directory_ / name, tokenizer);
    writer.add(sentence(1, 50));
    writer.commit();
  }
  std::unique_ptr<SampleSource> samples(Dataset const& dataset, SampleUse const& use = {}) const {
    return samples_for(config_, dataset, use);
  }
  std::string refusal(char const* name) const {
    Dataset const dataset = Dataset::open(directory_ / name);
    return message_of<ConfigError>([&] { samples(dataset); });
  }

  TemporaryDirectory directory_;
  Config config_;
};

TEST_F(SampleSourceTest, AModelLearnsFromWhatItsStacksRead) {
  Dataset const dataset = Dataset::open(directory_ / "pairs.h5");
  auto const pairs = samples(dataset);
  EXPECT_EQ(pairs->cost(0, 2).source, 4);
  EXPECT_EQ(pairs->words(0), "5 sentence pairs");
  EXPECT_EQ(to_host<std::int32_t>(pairs->pack(0, std::array<std::int64_t, 1>{2}, 7, {}).source_rows.sample),
            (std::vector<int32_t>{7, 7, 7, 7}));
  config_.model.stacks = {"decoder"};
  auto const targets = samples(dataset);
  EXPECT_EQ(targets->size(0), 5);
  EXPECT_EQ(targets->cost(0, 2).longer(), 7);
  EXPECT_EQ(targets->cost(0, 2).source, 0);
  EXPECT_EQ(targets->pack(0, std::array<std::int64_t, 1>{2}, 7, {}).target_rows.tokens, 7);
  Dataset const text = Dataset::open(directory_ / "lines.h5");
  EXPECT_EQ(samples(text)->cost(0, 0).target, 3);
}

TEST_F(SampleSourceTest, SourcesArePrefixesOfTargets) {
  config_.model.stacks = {"decoder"};
  Dataset const separate = Dataset::open(directory_ / "pairs.h5");
  EXPECT_THAT(message_of<ConfigError>([&] { samples(separate, {.prefixes = true}); }),
              HasSubstr("pairs.h5 have vocabularies of their own; `heddle prepare` without --separate-vocab"));
  Tokenizer const& tokenizer = separate_vocabulary().source;
  DatasetWriter writer(directory_ / "joint.h5", {tokenizer, tokenizer});
  for (int64_t pair = 0; pair < 3; ++pair) {
    writer.add(sentence(pair, 50), sentence(pair + 3, 50));
  }
  writer.commit();
  Dataset const dataset = Dataset::open(directory_ / "joint.h5");
  SpecialIds const ids = dataset.vocabulary().special_ids().target;
  auto const prefixed = samples(dataset, {.prefixes = true});
  std::int64_t const index = 2;
  auto const source = dataset.source(index);
  auto const target = dataset.target(index);
  Pack const pack = prefixed->pack(0, {&index, 1}, 7, {});
  std::vector<int32_t> input{ids.begin};
  input.insert(input.end(), source.begin(), source.end());
  input.push_back(ids.end);
  std::vector<int32_t> output(input.size() - 1, -1);
  EXPECT_THAT(to_host<std::int32_t>(pack.target_rows.prefix_length), testing::ElementsAre(std::ssize(input)));
  input.insert(input.end(), target.begin(), target.end());
  output.insert(output.end(), target.begin(), target.end());
  output.push_back(ids.end);
  EXPECT_EQ(to_host<std::int32_t>(pack.target_input.id), input);
  EXPECT_EQ(to_host<std::int32_t>(pack.target_output.id), output);
  EXPECT_EQ(prefixed->cost(0, index).longer(), std::ssize(input));
  EXPECT_EQ(prefixed->predicted(0, index), std::ssize(target) + 1);
}

TEST_F(SampleSourceTest, AModelAndADatasetThatDoNotFitAreNamed) {
  EXPECT_THAT(refusal("lines.h5"),
              AllOf(HasSubstr("model.stacks = [\"encoder\", \"decoder\"] learns from sentence pairs, but "),
                    HasSubstr("lines.h5 has lines of text; make pairs with `heddle prepare --source")));
  config_.model.stacks = {"encoder"};
  EXPECT_THAT(refusal("pairs.h5"),
              AllOf(HasSubstr("model.stacks = [\"encoder\"] learns from lines of text, but "),
                    HasSubstr("pairs.h5 has sentence pairs; make lines with `heddle prepare --text")));
  EXPECT_THAT(refusal("lines.h5"), HasSubstr("lines.h5 has no piece <mask>; `heddle prepare --text"));
  write_lines("masks.h5", train_tokenizer(english_number, 61, true));
  Dataset const masks = Dataset::open(directory_ / "masks.h5");
  EXPECT_EQ(samples(masks)->cost(0, 0).source, 3);
  EXPECT_GT(masks.vocabulary().special_ids().source.mask, 0);
}

}  // namespace
}  // namespace heddle
