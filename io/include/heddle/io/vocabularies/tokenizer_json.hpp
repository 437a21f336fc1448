#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <map>
#include <string>
#include <string_view>

// Vocabularies of other systems for Heddle's Tokenizer, as Hugging Face's tokenizer.json describes them: unigram
// models, BPE of characters or of bytes, and WordPiece. A model's bytes are a tokenizer.json with one more member, its
// last: "heddle": {"begin", "end", "unknown", "padding", "mask": ids, "rows": N}. All these are special pieces, "begin"
// and "end" there must be; ids up to `rows` that the file does not name are special pieces, too.

namespace heddle {

/// The tokenizer.json of such a vocabulary, or of SentencePiece's, for a model that was trained here. As Heddle does,
/// it appends the end piece to a text for an encoder, and otherwise prepends the begin piece.
std::string tokenizer_json_of(Tokenizer const& vocabulary, bool encoder);

/// Whether a tokenizer's files are those of ByT5, whose ids follow from bytes.
bool is_of_bytes(std::map<std::string, std::string> const& files);

/// The model of a directory of transformers: its files by their names, tokenizer.json, vocab.json and merges.txt or
/// BERT's vocab.txt among them (ByT5 needs none), and its config.json. A decoder starts from decoder_start_token_id,
/// else from the begin token, and where there is none (Qwen) from the end token: it stands between the texts that such
/// models are trained with. Throws DataError for files that are not such a vocabulary.
std::string read_json_vocabulary(std::map<std::string, std::string> const& files, boost::json::object const& config);

}  // namespace heddle
