#pragma once

#include <cstdint>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The ways in which a word's or phrase's pieces can be put together from those of the vocabulary, the tokenizer's own
/// first: a model may write a word with other pieces than the tokenizer reads it with. At most 1,000 of them.
std::vector<std::vector<std::int32_t>> spellings(std::string const& word, Tokenizer const& tokenizer);

/// GenerationOptions::forbidden of a text of words and phrases, one a line; none for "". Throws DataError if the text
/// is not a file or cannot be read.
std::vector<std::vector<std::int32_t>> forbidden_tokens(std::string const& path, Tokenizer const& tokenizer);

}  // namespace heddle
