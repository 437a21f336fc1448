#pragma once

#include <cstdint>
#include <functional>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <string_view>
#include <vector>

namespace heddle {

/// The bytes of a text where its words (see split_words) end.
std::vector<std::size_t> word_ends(std::string_view text);
/// The number, from 0, of the word of a text, as it is given, that each of its first `tokens` tokens is a part of.
/// White space belongs to the word after it.
std::vector<std::int64_t> words_of(Tokenizer const& tokenizer, std::string_view text, std::size_t tokens);
/// The number of a text's tokens.
using CountTokens = std::function<std::size_t(std::string_view)>;
/// The same. What is counted is O(n log n) in the part of the text that has these tokens.
std::vector<std::int64_t> words_of(CountTokens const& count, std::string_view text, std::size_t tokens);

}  // namespace heddle
