#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "inference/chunk_generator.hpp"

namespace heddle {

/// The commands for a model of one stack, as the end of a message: "; `heddle evaluate --text` measures such a model";
/// "" for others.
std::string commands_for(ModelDescription const& model);

/// Throws ConfigError unless the model continues text.
void require_continuation(ModelDescription const& model);

/// A sentence to translate, between the tokens of the model's frame, and what its translation starts with. Where one of
/// them is too long for the model it loses its end; a sentence with only white space has no tokens.
EncodedLine encode_source(TrainedModel const& model, std::string const& text, std::string const& prefix = {});
/// A prompt to continue, with the end token after it if `end`. One that leaves too little room for a continuation
/// loses its start.
EncodedLine encode_prompt(TrainedModel const& model, std::string const& text, bool end);

/// The translations of a line, the best first; of a line without tokens one empty translation with score 0.
std::vector<Translation> translations_of(TrainedModel const& model, GeneratedLine const& line);
/// The continuations of a prompt, the best first, `end` as in encode_prompt. A text starts with a space where a new
/// word starts.
std::vector<Translation> continuations_of(TrainedModel const& model, GeneratedLine const& line, bool end);
/// The number, from 0, of the word of a translation's text that each of its tokens is a part of.
std::vector<std::int64_t> words_of(Tokenizer const& tokenizer, Translation const& translation);
/// Tokens by their pieces, separated by spaces on one line, and back. A piece that has a space or a line break, as only
/// vocabularies of other systems have them, is not read back: parse_pieces throws DataError for one not among `ids`.
std::string join_pieces(Tokenizer const& tokenizer, std::vector<std::int32_t> const& tokens);
std::vector<std::int32_t> parse_pieces(std::string_view text, std::unordered_map<std::string, std::int32_t> const& ids);

}  // namespace heddle
