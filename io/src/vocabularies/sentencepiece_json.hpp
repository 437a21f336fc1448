#pragma once

#include <boost/json/object.hpp>
#include <string_view>

namespace heddle {

/// A SentencePiece model as Hugging Face's `tokenizers` have it in tokenizer.json, without a post-processor. Texts are
/// segmented as by the model, except for combining marks that follow a character which the normalizer replaces
/// (`tokenizers` loses them), and for the texts of special pieces, which are read as these.
boost::json::object sentencepiece_as_json(std::string_view bytes);

/// An entry of "added_tokens" in a tokenizer.json.
boost::json::object token_entry(boost::json::value const& id, std::string_view text, bool normalized, bool special);

}  // namespace heddle
