#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

Tokenizer train_tokenizer(std::string (*in_words)(int64_t), int64_t size) {
  TemporaryDirectory const directory;
  std::string text;
  for (int64_t i = 0; i < 300; ++i) {
    text += in_words(i * 37) + "\n";
  }
  TokenizerTraining training;
  training.texts = {directory.write("text", text)};
  training.vocabulary_size = size;
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
  EXPECT_THAT(open_error([](Content& c) { c.version = 2; }), HasSubstr("version 2"));
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

TEST(SampleSource, AModelLearnsFromWhatItsStacksRead) {
  TemporaryDirectory const directory;
  auto const path = directory.path() / "data.h5";
  write_sentences(path, 5);
  Dataset const dataset = Dataset::open(path);
  ModelConfig model;
  auto const pairs = samples_for(model, dataset);
  EXPECT_EQ(pairs->cost(0, 2).source, 4);
  EXPECT_EQ(pairs->sample(0, 2, 7).source, sentence(2, 60));
  model.stacks = {"decoder"};
  auto const targets = samples_for(model, dataset);
  EXPECT_EQ(targets->size(0), 5);
  EXPECT_EQ(targets->cost(0, 2).longer(), 7);
  EXPECT_EQ(targets->cost(0, 2).source, 0);
  EXPECT_TRUE(targets->sample(0, 2, 7).source.empty());
  EXPECT_EQ(targets->sample(0, 2, 7).target, sentence(5, 50));
  model.stacks = {"encoder"};
  EXPECT_THAT(message_of<ConfigError>([&] { samples_for(model, dataset); }), HasSubstr("model.stacks = [\"encoder\"]"));
}

}  // namespace
}  // namespace heddle
