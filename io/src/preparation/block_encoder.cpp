#include "block_encoder.hpp"

#include <algorithm>

namespace heddle {

void EncodedBlock::clear() {
  samples.clear();
  std::ranges::for_each(tokens, [](auto& side) { side.clear(); });
  links.clear();
  weights.clear();
  empty = too_long = invalid = 0;
  unknown_characters.clear();
  failure = ExitCode::done;
  error.clear();
}

void EncodedBlock::require_valid() const {
  if (failure == ExitCode::bad_data) {
    throw DataError(error);
  }
  if (failure != ExitCode::done) {
    throw Error(error, failure);
  }
}

BlockEncoder::BlockEncoder(PrepareOptions const& options, Vocabulary const& vocabulary, GivenFields const& fields)
    : options_(options), fields_(fields) {
  if (options.lines()) {
    sides_.push_back({vocabulary.source, frame_.source});
  } else {
    frame_ = frame_of(vocabulary, options.languages);
    sides_.push_back({vocabulary.source, frame_.source});
    sides_.push_back({vocabulary.target, frame_.target});
  }
}

void BlockEncoder::encode(LineBlock const& lines, EncodedBlock& encoded) {
  encoded.clear();
  try {
    for (std::size_t index = 0; index < lines.size(); ++index) {
      encoded.invalid += lines.repaired[index] != 0 ? 1 : 0;
      if (!left_out(lines, index)) {
        encode_line(lines, index, encoded);
      }
    }
  } catch (Error const& error) {
    encoded.failure = error.code();
    encoded.error = error.what();
  } catch (std::exception const& error) {
    encoded.failure = ExitCode::failure;
    encoded.error = error.what();
  }
  encoded.unknown_characters = unknown_.take();
}

bool BlockEncoder::left_out(LineBlock const& lines, std::size_t index) const {
  return options_.invalid_utf8 == InvalidUtf8::skip && lines.repaired[index] != 0;
}

void BlockEncoder::encode_line(LineBlock const& lines, std::size_t index, EncodedBlock& encoded) {
  bool empty = false;
  bool too_long = false;
  for (std::size_t side = 0; side < sides_.size(); ++side) {
    auto& [tokenizer, prefix, line, ids] = sides_[side];
    line = lines.sides[side][index];
    ids = tokenizer.encode(line);
    empty = empty || ids.empty();
    ids.insert(ids.begin(), prefix.begin(), prefix.end());
    too_long = too_long || (sides_.size() > 1 && std::ssize(ids) > options_.max_length);
  }
  if (empty || too_long) {
    (empty ? encoded.empty : encoded.too_long) += 1;
  } else {
    add_sample(lines, index, encoded);
  }
}

void BlockEncoder::add_sample(LineBlock const& lines, std::size_t index, EncodedBlock& encoded) {
  EncodedSample& sample = encoded.samples.emplace_back();
  sample_.clear();
  for (std::size_t side = 0; side < sides_.size(); ++side) {
    auto const& [tokenizer, prefix, line, ids] = sides_[side];
    sample.tokens.at(side) = static_cast<std::int32_t>(ids.size());
    encoded.tokens.at(side).insert(encoded.tokens.at(side).end(), ids.begin(), ids.end());
    if (auto const unknown = std::ranges::count(ids, tokenizer.special_ids().unknown); unknown > 0) {
      sample.unknown += unknown;
      unknown_.add(side, line, tokenizer);
    }
    sample.control = sample.control != 0 || has_control_characters(line) ? 1 : 0;
    sample_ += line;
    sample_ += '\n';
  }
  sample.hash = hash_of_sample(sample_);
  if (!lines.fields.empty()) {
    std::vector<std::string_view> given;
    for (Lines const& field : lines.fields) {
      given.push_back(field[index]);
    }
    fields_.set(given, lines.numbers[index], sides_[0].encoded(), sides_[1].encoded(), pair_);
    sample.links = static_cast<std::int32_t>(pair_.alignment.size());
    sample.weights = static_cast<std::int32_t>(pair_.target.weights.size());
    encoded.links.insert(encoded.links.end(), pair_.alignment.begin(), pair_.alignment.end());
    encoded.weights.insert(encoded.weights.end(), pair_.target.weights.begin(), pair_.target.weights.end());
  }
}

}  // namespace heddle
