#include <unistd.h>

#include <chrono>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/sample_source.hpp>
#include <iostream>

#include "dataset_fixture.hpp"

namespace heddle {
namespace {

void expect_sentences(Dataset const& dataset, int64_t pairs) {
  ASSERT_EQ(dataset.size(), pairs);
  for (int64_t step = 0; step < pairs; ++step) {
    int64_t const i = step * 7919 % pairs;  // out of order
    EXPECT_EQ(dataset.source(i), sentence(i, 60));
    EXPECT_EQ(dataset.target(i), sentence(i + 3, 50));
    EXPECT_EQ(dataset.length(SampleLength::source, i), i % 7 + 1);
    EXPECT_EQ(dataset.length(SampleLength::target, i), (i + 3) % 7 + 1);
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
  std::map<SampleLength, std::map<int64_t, int64_t>> expected;
  for (int64_t i = 0; i < 20011; ++i) {
    int64_t const source = i % 7 + 1;
    int64_t const target = (i + 3) % 7 + 1;
    ++expected[SampleLength::source][source];
    ++expected[SampleLength::target][target];
    ++expected[SampleLength::longer][std::max(source, target)];
    ++expected[SampleLength::both][source + target];
  }
  for (auto const& [of, counts] : expected) {
    std::map<int64_t, int64_t> found;
    for (auto const& [length, samples] : dataset.lengths(of)) {
      found[length] = samples;
    }
    EXPECT_EQ(found, counts);
  }
  EXPECT_THROW(dataset.lengths(SampleLength::line), Error);
  EXPECT_THROW(dataset.source(20011), Error);
  EXPECT_THROW(dataset.length(SampleLength::target, -1), Error);
}

TEST(Dataset, GivesTheSameFromAFileTooLargeToKeep) {
  TemporaryDirectory const directory;
  write_sentences(directory / "train.h5", 40011);  // two blocks of tokens and three of offsets on each side
  constexpr int64_t one_block = 1;
  Dataset const dataset = Dataset::open(directory / "train.h5", one_block);
  for (int64_t i : {0, 16382, 16383, 16384, 40010, 20000, 16383, 0}) {
    EXPECT_EQ(dataset.source(i), sentence(i, 60));
    EXPECT_EQ(dataset.target(i), sentence(i + 3, 50));
  }
  expect_sentences(Dataset::open(directory / "train.h5"), 40011);
}

TEST(Dataset, TakesSeveralFilesAsOne) {
  TemporaryDirectory const directory;
  write_sentences(directory / "whole.h5", 30);
  std::vector<std::string> paths;
  for (auto const& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{{0, 7}, {7, 8}, {8, 30}}) {
    paths.push_back((directory / fmt::format("part-{}.h5", begin)).string());
    DatasetWriter writer(paths.back(), separate_vocabulary());
    for (int64_t i = begin; i < end; ++i) {
      writer.add(sentence(i, 60), sentence(i + 3, 50));
    }
    writer.commit();
  }
  Dataset const dataset = Dataset::open(paths);
  expect_sentences(dataset, 30);
  Dataset const whole = Dataset::open(directory / "whole.h5");
  EXPECT_EQ(dataset.tokens(SampleLength::both), whole.tokens(SampleLength::both));
  EXPECT_EQ(dataset.lengths(SampleLength::longer).size(), whole.lengths(SampleLength::longer).size());
  expect_contains(dataset.name(), "part-0.h5 and 2 more files");
  std::swap(paths[0], paths[1]);
  EXPECT_NE(Dataset::open(paths).digest(), dataset.digest());
  DatasetWriter other(directory / "other.h5", {separate_vocabulary().source, separate_vocabulary().source});
  other.add(sentence(1, 60), sentence(2, 60));
  other.commit();
  paths.push_back((directory / "other.h5").string());
  expect_data_error([&] { Dataset::open(paths); }, {"other.h5", "not the one of the files before it"});
}

void expect_fields(Dataset const& dataset, int64_t index, SampleFields const& wanted, Sample const& expected) {
  Sample pair{0, dataset.source(index), dataset.target(index), {{9, 9}}};
  pair.target.weights = {7};
  dataset.read_fields(index, wanted, pair);
  EXPECT_EQ(pair.alignment, wanted.contains(SampleField::alignment) ? expected.alignment : decltype(pair.alignment)());
  EXPECT_EQ(pair.target.weights,
            wanted.contains(SampleField::weights) ? expected.target.weights : decltype(pair.target.weights)());
}

TEST(Dataset, SamplesHaveTheFieldsOfTheirFileThatAreWanted) {
  TemporaryDirectory const directory;
  constexpr int64_t pairs = 40011;  // more than one block of each array
  write_fields(directory / "rich.h5", pairs);
  write_sentences(directory / "plain.h5", 30);
  Dataset const rich = Dataset::open(directory / "rich.h5");
  expect_sentences(rich, pairs);
  EXPECT_EQ(rich.fields(), (SampleFields{SampleField::alignment, SampleField::weights}));
  EXPECT_NO_THROW(rich.verify());
  for (int64_t step = 0; step < pairs; step += 5) {
    int64_t const index = step * 7919 % pairs;
    expect_fields(rich, index, rich.fields(), pair_with_fields(index));
  }
  expect_fields(rich, 11, {SampleField::weights}, pair_with_fields(11));
  expect_fields(rich, 11, {}, pair_with_fields(11));
  std::vector<std::string> const paths{(directory / "plain.h5").string(), (directory / "rich.h5").string()};
  Dataset const both = Dataset::open(paths);
  EXPECT_EQ(both.fields(), rich.fields());
  expect_fields(both, 11, both.fields(), Sample());
  expect_fields(both, 30 + 11, both.fields(), pair_with_fields(11));
  write_fields(directory / "few.h5", 30);
  EXPECT_NE(Dataset::open(directory / "few.h5").digest(), Dataset::open(directory / "plain.h5").digest());
  EXPECT_TRUE(Dataset::open(directory / "plain.h5").fields().empty());
}

TEST(Dataset, ADigestStandsForItsContent) {
  TemporaryDirectory const directory;
  write_sentences(directory / "a.h5", 100);
  write_sentences(directory / "b.h5", 100);
  write_sentences(directory / "c.h5", 101);
  std::string const digest = Dataset::open(directory / "a.h5").digest();
  EXPECT_EQ(digest.size(), 64U);
  EXPECT_EQ(Dataset::open(directory / "b.h5").digest(), digest);
  EXPECT_NE(Dataset::open(directory / "c.h5").digest(), digest);
}

int64_t resident_bytes() {
  std::ifstream statistics("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  statistics >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Dataset, AMillionPairsOpenAndAreSoughtAtOnce) {
  constexpr int64_t pairs = 1'000'000;
  TemporaryDirectory const directory;
  {
    DatasetWriter writer(directory / "train.h5", separate_vocabulary());
    for (int64_t i = 0; i < pairs; ++i) {
      writer.add(sentence(i, 60), sentence(i + 3, 50));
    }
    writer.commit();
  }
  int64_t const memory = resident_bytes();
  auto const began = std::chrono::steady_clock::now();
  constexpr int64_t kept = int64_t{2} << 20;
  Dataset const dataset = Dataset::open(directory / "train.h5", kept);
  DatasetSamples const samples(dataset, PairForm::pairs, 3);
  BatchPlanner planner(samples, {.batch_tokens = 4096, .max_length = 6}, 3);
  planner.seek({.corpora = {{.epoch = 5, .position = (int64_t{6} << 32) + 1000}}});
  GlobalBatch const batch = planner.next();
  double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  int64_t const grown = resident_bytes() - memory;
#ifndef __SANITIZE_ADDRESS__  // which has time and memory of its own
  EXPECT_LT(seconds, 1.0);
  EXPECT_LT(grown, kept + (int64_t{10} << 20)) << "offsets alone have 16 MB";
#endif
  std::cout << fmt::format("opened and sought in {:.3f} s with {:.1f} MiB\n", seconds,
                           static_cast<double>(grown) / (1 << 20));
  int64_t usable = 0;
  for (int64_t i = 0; i < pairs; ++i) {
    usable += std::max(i % 7, (i + 3) % 7) + 2 <= 6 ? 1 : 0;
  }
  EXPECT_EQ(planner.totals().usable, usable);
  EXPECT_EQ(planner.totals().left_out, pairs - usable);
  EXPECT_EQ(planner.totals().longest, 6);
  BatchPlanner other(samples, {.batch_tokens = 4096, .max_length = 6}, 3);
  other.seek({.corpora = {{.epoch = 5, .position = (int64_t{6} << 32) + 900}}});
  auto const before = other.next().samples;
  other.seek({.corpora = {{.epoch = 5, .position = (int64_t{6} << 32) + 1000}}});
  EXPECT_EQ(other.next().samples, batch.samples);
  EXPECT_NE(before, batch.samples);
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
  for (int32_t const special : {0, 2, 3}) {
    expect_error(
        [&] {
          writer.add(std::vector<int32_t>{5, special}, std::vector<int32_t>{5});
        },
        fmt::format("token id {} is the vocabulary's", special));
  }
  expect_error([&] { writer.add(Sample{0, {5, 6}, {5}, {{1, 1}}}); }, "the link 1-1 is not between its 2 and 1 tokens");
  Sample weighted{0, {5, 6}, {5}};
  weighted.target.weights = {1, 1, 1};
  expect_error([&] { writer.add(weighted); }, "3 weights for 1 tokens and their end");
  for (float const weight : {-0.5F, std::numeric_limits<float>::infinity()}) {
    weighted.target.weights = {weight};
    expect_error([&] { writer.add(weighted); }, fmt::format("the weight {}; expected a finite number", weight));
  }
  EXPECT_EQ(writer.size(), 0);
  EXPECT_THROW(DatasetWriter(directory / "absent" / "train.h5", separate_vocabulary()), Error);
}

TEST(Dataset, HoldsLinesOfOneText) {
  TemporaryDirectory const directory;
  auto const path = directory / "lines.h5";
  Tokenizer const& tokenizer = separate_vocabulary().source;
  DatasetWriter writer(path, tokenizer);
  for (int64_t i = 0; i < 20; ++i) {
    writer.add(sentence(i, 60));
  }
  expect_error([&] { writer.add(sentence(1, 60), sentence(2, 60)); },
               "cannot add a sample of 2 and 3 tokens: it has lines, with one side");
  expect_error([&] { writer.add(std::vector<int32_t>{}); }, "no side may be empty");
  EXPECT_THROW(writer.add(std::vector<int32_t>{60}), Error);
  writer.commit();
  Dataset const dataset = Dataset::open(path);
  ASSERT_EQ(dataset.size(), 20);
  EXPECT_TRUE(dataset.has_lines());
  EXPECT_TRUE(dataset.joint());
  EXPECT_EQ(dataset.line(9), sentence(9, 60));
  EXPECT_EQ(dataset.length(SampleLength::line, 9), 3);
  EXPECT_EQ(dataset.line(9, 1, 2), (std::vector<int32_t>{sentence(9, 60)[1], sentence(9, 60)[2]}));
  EXPECT_EQ(dataset.line(9, 3, 0), std::vector<int32_t>());
  expect_error([&] { dataset.line(9, 1, 3); }, "line 9 has 3 tokens; tokens 1 to 4 are not in it");
  EXPECT_EQ(dataset.vocabulary_digest(), (Vocabulary{tokenizer, tokenizer}.digest()));
  expect_error([&] { dataset.source(0); }, "asked for pairs, but it holds lines");
}

}  // namespace
}  // namespace heddle
