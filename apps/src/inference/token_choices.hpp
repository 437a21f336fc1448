#pragma once

#include <heddle/core/generation/generation.hpp>
#include <heddle/model.hpp>
#include <string>

namespace heddle {

/// The user's choice of tokens that may be generated.
struct TokenChoices {
  std::string forbid = {};     ///< a text of words and phrases, one a line; "": none
  std::string shortlist = {};  ///< "FILE[:FIRST:BEST]", a lexicon for Lexicon::shortlist; "": none
  bool allow_unknown = false;  ///< GenerationOptions::allow_unknown
};

/// GenerationOptions::forbidden of a text of words and phrases, one a line: for each at most 1,000 ways to put it
/// together from pieces, the tokenizer's own first. None for "". Throws DataError if the text is not a file or cannot
/// be read.
std::vector<std::vector<std::int32_t>> forbidden_tokens(std::string const& path, Tokenizer const& tokenizer);

/// Sets the options that it chooses. Throws UsageError for numbers that are not possible and DataError for a file
/// that cannot be read.
void apply(TokenChoices const& choices, Vocabulary const& vocabulary, GenerationOptions& options);

/// The digest of a model and of the choices in these options.
std::string generation_digest(TrainedModel const& model, GenerationOptions const& options);

}  // namespace heddle
