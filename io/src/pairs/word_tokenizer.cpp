#include "pairs/word_tokenizer.hpp"

#include <unicode/uchar.h>

#include <algorithm>
#include <heddle/io/pairs/text_pair.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/io/tokenizers/token_words.hpp>
#include <utility>

#include "tokenizer_steps/characters.hpp"

namespace heddle {

namespace {

/// Whether a text cannot change what is before it when it is normalized: it does not begin with a mark.
bool starts_word(std::string_view text) {
  if (text.empty() || static_cast<unsigned char>(text.front()) < 0x80) {
    return true;
  }
  auto const point = static_cast<UChar32>(decode_utf8(first_character(text)).front());
  return (U_GET_GC_MASK(point) & (U_GC_M_MASK | U_GC_CF_MASK)) == 0;
}

}  // namespace

template <class Take>
void WordTokenizer::for_each_part(std::string_view text, bool count, Take const& take) const {
  if (!splits_words_) {
    take(text, 0);
    return;
  }
  std::int64_t words = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find(' ', begin);
    while (end != text.npos && !starts_word(text.substr(end + 1))) {
      end = text.find(' ', end + 1);
    }
    std::string_view const part = text.substr(begin, end - begin);
    if (!part.empty()) {
      take(part, words);
      words += count ? count_words(part) : 0;
    }
    begin = end == text.npos ? text.size() : end + 1;
  }
}

WordTokenizer::Part& WordTokenizer::known(std::string_view part) {
  constexpr std::size_t max_bytes = 64;
  if (!splits_words_ || part.size() > max_bytes) {
    longer_ = {.tokens = tokenizer_.encode(part)};
    return longer_;
  }
  auto found = known_.find(part);
  if (found == known_.end()) {
    if (known_.size() == max_words) {
      known_.clear();
    }
    found = known_.emplace(std::string(part), Part{.tokens = tokenizer_.encode(part)}).first;
  }
  return found->second;
}

SubwordSampler& WordTokenizer::sampler() {
  if (!sampler_) {
    sampler_ = std::make_unique<SubwordSampler>(SentencePieceModel::parse(tokenizer_.model()));
  }
  return *sampler_;
}

void WordTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids, std::vector<std::int64_t>* words) {
  for_each_part(text, words != nullptr, [&](std::string_view part, std::int64_t before) {
    auto const& tokens = known(part).tokens;
    ids.insert(ids.end(), tokens.begin(), tokens.end());
    if (words != nullptr) {
      for (std::int64_t const word : words_of(tokenizer_, part, tokens.size())) {
        words->push_back(before + word);
      }
    }
  });
}

void WordTokenizer::sample(std::string_view text, double alpha, std::function<double()> const& draw,
                           std::vector<std::int32_t>& ids, std::vector<std::int64_t>* words) {
  for_each_part(text, words != nullptr, [&](std::string_view part, std::int64_t before) {
    std::size_t const first = ids.size();
    Part& entry = known(part);
    auto const is_normal = [&](std::int32_t id) { return sampler().is_normal(id); };
    if (!entry.looked_at && std::ranges::all_of(entry.tokens, is_normal)) {
      for (std::int32_t const id : entry.tokens) {
        entry.normalized += tokenizer_.piece(id);
      }
    }
    entry.looked_at = true;
    if (entry.normalized.empty()) {
      auto const tokens = tokenizer_.sample(part, alpha, draw);
      ids.insert(ids.end(), tokens.begin(), tokens.end());
    } else {
      sampler().sample(entry.normalized, alpha, draw, ids);
    }
    if (words != nullptr) {  // a part with several words, by white space other than spaces, counts as its first
      words->insert(words->end(), ids.size() - first, before);
    }
  });
}

}  // namespace heddle
