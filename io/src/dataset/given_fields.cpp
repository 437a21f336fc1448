#include "given_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/io/tokenizers/token_words.hpp>

#include "given_texts.hpp"

namespace heddle {

namespace {

/// The places in a side's tokens of those of each word of its line.
std::vector<std::vector<std::int32_t>> tokens_of_words(EncodedSide const& side) {
  std::vector<std::vector<std::int32_t>> tokens(split_words(side.line).size());
  auto const words = words_of(side.tokenizer, side.line, side.ids.size() - side.frame);
  for (std::size_t token = 0; token < words.size(); ++token) {
    tokens.at(static_cast<std::size_t>(words[token])).push_back(static_cast<std::int32_t>(side.frame + token));
  }
  return tokens;
}

}  // namespace

std::optional<GivenFields::File> GivenFields::open(PrepareOptions::Paths const& paths) {
  if (paths.empty()) {
    return std::nullopt;
  }
  TextFiles const parts(paths.begin(), paths.end());
  return File{TextFilesReader(parts), describe_files(parts)};
}

GivenFields::GivenFields(PrepareOptions const& options)
    : alignments_(open(options.alignments)),
      sentence_weights_(open(options.sentence_weights)),
      word_weights_(open(options.word_weights)) {}

SampleFields GivenFields::fields() const {
  SampleFields fields;
  if (alignments_) {
    fields.insert(SampleField::alignment);
  }
  if (sentence_weights_ || word_weights_) {
    fields.insert(SampleField::weights);
  }
  return fields;
}

std::vector<GivenFields::File*> GivenFields::files() {
  std::vector<File*> files;
  for (std::optional<File>* const file : {&alignments_, &sentence_weights_, &word_weights_}) {
    if (*file) {
      files.push_back(&**file);
    }
  }
  return files;
}

void GivenFields::next() {
  for (File* const file : files()) {
    if (!file->reader.next(file->line)) {
      throw DataError("{} ends after line {}, before the text does", file->name, file->reader.line_number());
    }
  }
}

void GivenFields::require_all_read() {
  for (File* const file : files()) {
    if (file->reader.next(file->line)) {
      throw DataError("{} has lines after {}, where the text ends", file->name, file->reader.line_number() - 1);
    }
  }
}

void GivenFields::set(EncodedSide const& source, EncodedSide const& target, Sample& pair) const {
  if (alignments_) {
    set_alignment(source, target, pair);
  }
  set_weights(target, pair);
}

void GivenFields::set_alignment(EncodedSide const& source, EncodedSide const& target, Sample& pair) const {
  auto const sources = tokens_of_words(source);
  auto const targets = tokens_of_words(target);
  pair.alignment.clear();
  for (std::string_view const link : split_words(alignments_->line)) {
    std::size_t const dash = std::min(link.find('-'), link.size());
    auto const from = parse_number<std::size_t>(link.substr(0, dash));
    auto const to = parse_number<std::size_t>(link.substr(std::min(dash + 1, link.size())));
    if (!from || !to || *from >= sources.size() || *to >= targets.size()) {
      throw DataError(
          "{}, line {}: \"{}\" is not a link SOURCE-TARGET of the lines' {} and {} words, which are counted from 0",
          alignments_->name, alignments_->reader.line_number(), link, sources.size(), targets.size());
    }
    for (std::int32_t const source_token : sources[*from]) {
      for (std::int32_t const target_token : targets[*to]) {
        pair.alignment.push_back({source_token, target_token});
      }
    }
  }
  std::ranges::sort(pair.alignment);
  pair.alignment.erase(std::unique(pair.alignment.begin(), pair.alignment.end()), pair.alignment.end());
}

void GivenFields::set_weights(EncodedSide const& target, Sample& pair) const {
  auto const read = [](File const& file, std::size_t count, char const* what) {
    std::vector<float> weights;
    for (std::string_view const word : split_words(file.line)) {
      auto const weight = parse_number<float>(word);
      if (!weight || !(*weight >= 0) || !std::isfinite(*weight)) {
        throw DataError("{}, line {}: \"{}\" is not a weight, a number of at least 0", file.name,
                        file.reader.line_number(), word);
      }
      weights.push_back(*weight);
    }
    if (weights.size() != count) {
      throw DataError("{}, line {}: {} weights; expected {}, one for {}", file.name, file.reader.line_number(),
                      weights.size(), count, what);
    }
    return weights;
  };
  pair.target.weights.clear();
  float const of_sentence = sentence_weights_ ? read(*sentence_weights_, 1, "the sentence").front() : 1;
  if (!word_weights_) {
    pair.target.weights.resize(sentence_weights_ ? 1 : 0, of_sentence);
    return;
  }
  pair.target.weights.assign(pair.target.tokens.size() + 1, of_sentence);
  auto const tokens = tokens_of_words(target);
  auto const of_words = read(*word_weights_, tokens.size(), "each word of the target");
  for (std::size_t word = 0; word < tokens.size(); ++word) {
    for (std::int32_t const token : tokens[word]) {
      pair.target.weights[static_cast<std::size_t>(token)] *= of_words[word];
    }
  }
}

}  // namespace heddle
