#pragma once

#include <cstdint>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <map>
#include <string>
#include <vector>

// Vocabularies that grow after they were made.

namespace heddle {

/// Returns the vocabulary with new pieces appended after the last id. Each occurrence of a new piece becomes one token;
/// text without new pieces keeps its ids. In a SentencePiece model a space in a piece is its "▁"; in a vocabulary of
/// tokenizer.json the pieces are added tokens. Throws DataError for a piece that the vocabulary has, that is empty, or
/// that cannot occur because text is normalized.
Tokenizer with_pieces(Tokenizer const& vocabulary, std::vector<std::string> const& pieces);

/// Returns the vocabulary with new languages after the last id, for `--source-language` and `--target-language`:
/// control pieces or special added tokens, which no text is read as. Throws DataError where the vocabulary has no
/// languages, and for a name that it has or that has another form than the names of its languages ("eng_Latn",
/// "__en__", ">>eng<<").
Tokenizer with_languages(Tokenizer const& vocabulary, std::vector<std::string> const& languages);

/// The ids that the vocabulary has for a new piece. A space before it that is a piece of its own, and not a
/// part of the new one, is left out.
std::vector<std::int32_t> parts_of(Tokenizer const& vocabulary, std::string const& piece);

/// Adds the last `count` pieces of a vocabulary to another system's files of CheckpointContents::origin, as
/// transformers adds tokens: config.json has the new size, tokenizer_config.json and tokenizer.json have them as added
/// tokens with their ids, languages as special ones.
void add_pieces(std::map<std::string, std::string>& origin, Tokenizer const& vocabulary, std::int32_t count);

/// The way back: a SentencePiece model whose rows for the tokens that were added to it, by id, are their pieces. Rows
/// with another use stay as they are.
std::string with_added_tokens(std::string const& model, std::map<std::int64_t, std::string> const& tokens);

}  // namespace heddle
