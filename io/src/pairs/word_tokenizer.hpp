#pragma once

#include <cstdint>
#include <functional>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizers/subword_sampling.hpp"

namespace heddle {

/// Tokenizes texts as its tokenizer does, and remembers the tokens of words: a text of words that were there before
/// costs a tenth. For one thread.
class WordTokenizer {
 public:
  explicit WordTokenizer(Tokenizer tokenizer)
      : tokenizer_(std::move(tokenizer)), splits_words_(tokenizer_.splits_words()) {}

  Tokenizer const& tokenizer() const { return tokenizer_; }
  /// Appends the ids of a text. With `words`, appends the word of each token, too (see words_of).
  void encode(std::string_view text, std::vector<std::int32_t>& ids, std::vector<std::int64_t>* words = nullptr);
  /// The same, of a segmentation that is drawn (Tokenizer::sample).
  void sample(std::string_view text, double alpha, std::function<double()> const& draw, std::vector<std::int32_t>& ids,
              std::vector<std::int64_t>* words = nullptr);

 private:
  static constexpr std::size_t max_words = std::size_t{1} << 17;

  /// Passes the parts of a text that are tokenized by themselves, with the number of words before each.
  template <class Take>
  void for_each_part(std::string_view text, bool count, Take const& take) const;
  /// A part of a text.
  struct Part {
    std::vector<std::int32_t> tokens = {};
    /// Its normalized text, for samples; empty where it is not known yet, or has other than normal pieces.
    std::string normalized = {};
    bool looked_at = false;
  };
  Part& known(std::string_view part);
  SubwordSampler& sampler();

  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  Tokenizer tokenizer_;
  bool splits_words_;
  std::unordered_map<std::string, Part, Hash, std::equal_to<>> known_;
  Part longer_;  ///< a part that is not remembered
  std::unique_ptr<SubwordSampler> sampler_;
};

}  // namespace heddle
