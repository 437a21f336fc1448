#include "given_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/io/alignment/word_aligner.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/io/tokenizers/token_words.hpp>
#include <optional>
#include <utility>

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

GivenFields::GivenFields(PrepareOptions const& options) {
  for (auto const& [kind, paths] : {std::pair(Kind::alignments, &options.alignments),
                                    {Kind::sentence_weights, &options.sentence_weights},
                                    {Kind::word_weights, &options.word_weights}}) {
    if (!paths->empty()) {
      TextFiles const files(paths->begin(), paths->end());
      given_.push_back({kind, files, describe_files(files)});
    }
  }
}

SampleFields GivenFields::fields() const {
  SampleFields fields;
  for (Field const& field : given_) {
    fields.insert(field.kind == Kind::alignments ? SampleField::alignment : SampleField::weights);
  }
  return fields;
}

std::vector<TextFiles> GivenFields::files() const {
  std::vector<TextFiles> files;
  for (Field const& field : given_) {
    files.push_back(field.files);
  }
  return files;
}

void GivenFields::set(std::vector<std::string_view> const& lines, std::int64_t number, EncodedSide const& source,
                      EncodedSide const& target, Sample& pair) const {
  pair.target.weights.clear();
  for (std::size_t index = 0; index < given_.size(); ++index) {
    Line const line{given_[index].name, number, lines[index]};
    switch (given_[index].kind) {
      case Kind::alignments:
        set_alignment(line, source, target, pair);
        break;
      case Kind::sentence_weights:
        pair.target.weights = read_weights(line, 1, "the sentence");
        break;
      case Kind::word_weights:
        multiply(read_weights(line, split_words(target.line).size(), "each word of the target"), target, pair);
        break;
    }
  }
}

void GivenFields::set_alignment(Line const& line, EncodedSide const& source, EncodedSide const& target, Sample& pair) {
  auto const sources = tokens_of_words(source);
  auto const targets = tokens_of_words(target);
  pair.alignment.clear();
  LinkLine const given{line.text, line.name, line.number};
  for (auto const& [from, to] : given.links(std::ssize(sources), std::ssize(targets))) {
    for (std::int32_t const source_token : sources[static_cast<std::size_t>(from)]) {
      for (std::int32_t const target_token : targets[static_cast<std::size_t>(to)]) {
        pair.alignment.push_back({source_token, target_token});
      }
    }
  }
  std::ranges::sort(pair.alignment);
  pair.alignment.erase(std::unique(pair.alignment.begin(), pair.alignment.end()), pair.alignment.end());
}

std::vector<float> GivenFields::read_weights(Line const& line, std::size_t count, char const* what) {
  std::vector<float> weights;
  for (std::string_view const word : split_words(line.text)) {
    auto const weight = parse_number<float>(word);
    if (!weight || !(*weight >= 0) || !std::isfinite(*weight)) {
      throw DataError("{}, line {}: \"{}\" is not a weight, a number of at least 0", line.name, line.number, word);
    }
    weights.push_back(*weight);
  }
  if (weights.size() != count) {
    throw DataError("{}, line {}: {} weights; expected {}, one for {}", line.name, line.number, weights.size(), count,
                    what);
  }
  return weights;
}

/// Multiplies the weight of the sentence, if there is one, by those of each word, for the word's tokens.
void GivenFields::multiply(std::vector<float> const& of_words, EncodedSide const& target, Sample& pair) {
  float const of_sentence = pair.target.weights.empty() ? 1 : pair.target.weights.front();
  pair.target.weights.assign(target.ids.size() + 1, of_sentence);
  auto const tokens = tokens_of_words(target);
  for (std::size_t word = 0; word < tokens.size(); ++word) {
    for (std::int32_t const token : tokens[word]) {
      pair.target.weights[static_cast<std::size_t>(token)] *= of_words[word];
    }
  }
}

}  // namespace heddle
