#pragma once

#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/dataset/demo_data.hpp>

#include "learnt_tokenizer.hpp"
#include "test.hpp"

/// Small vocabularies and datasets for tests.
namespace heddle {

inline Tokenizer train_tokenizer(std::string (*describe)(int64_t), int64_t size, bool mask_token = false) {
  std::string text;
  for (int64_t i = 0; i < 300; ++i) {
    text += describe(i * 37) + "\n";
  }
  TokenizerTraining training;
  training.vocabulary_size = size;
  training.mask_token = mask_token;
  return learn_tokenizer(text, training);
}

/// One pair of small vocabularies for all tests here.
inline Vocabulary const& separate_vocabulary() {
  static Vocabulary const vocabulary{train_tokenizer(english_number, 60), train_tokenizer(german_number, 50)};
  return vocabulary;
}

/// Sentence i of a side: i % 7 + 1 tokens that differ by sentence and side, none of them special.
inline std::vector<int32_t> sentence(int64_t index, int32_t vocabulary_size) {
  std::vector<int32_t> tokens(static_cast<std::size_t>(index % 7 + 1));
  std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(index * 13));
  for (int32_t& token : tokens) {
    token = 4 + token % (vocabulary_size - 4);
  }
  return tokens;
}

inline void write_sentences(std::filesystem::path const& path, int64_t pairs) {
  DatasetWriter writer(path, separate_vocabulary());
  for (int64_t i = 0; i < pairs; ++i) {
    writer.add(sentence(i, 60), sentence(i + 3, 50));
  }
  EXPECT_EQ(writer.size(), pairs);
  writer.commit();
}

/// The fields of the pairs that write_fields writes: pair i has i % 4 links, and i % 3 chooses no weight, one for all
/// or one for each token.
inline Sample pair_with_fields(int64_t index) {
  Sample pair{0, sentence(index, 60), sentence(index + 3, 50)};
  auto const sources = static_cast<int32_t>(pair.source.tokens.size());
  auto const targets = static_cast<int32_t>(pair.target.tokens.size());
  for (int32_t link = 0; link < index % 4; ++link) {
    pair.alignment.push_back({link % sources, (link + 1) % targets});
  }
  std::size_t const weights = index % 3 == 0 ? 0 : index % 3 == 1 ? 1 : pair.target.tokens.size() + 1;
  for (std::size_t weight = 0; weight < weights; ++weight) {
    pair.target.weights.push_back(0.25F * static_cast<float>(weight));
  }
  return pair;
}

inline void write_fields(std::filesystem::path const& path, int64_t pairs) {
  DatasetWriter writer(path, separate_vocabulary(), {SampleField::alignment, SampleField::weights});
  for (int64_t i = 0; i < pairs; ++i) {
    writer.add(pair_with_fields(i));
  }
  writer.commit();
}

/// Reads all samples, as training would.
inline void read_all(Dataset const& dataset) {
  for (int64_t pair = 0; pair < dataset.size(); ++pair) {
    dataset.source(pair);
    dataset.target(pair);
  }
}

}  // namespace heddle
