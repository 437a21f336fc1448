#pragma once

#include <heddle/core/generation/generation.hpp>
#include <heddle/model.hpp>
#include <string>

namespace heddle {

/// The user's choice of tokens that may be generated.
struct TokenChoices {
  std::string forbid = {};     ///< a text for forbidden_tokens; "": none
  std::string shortlist = {};  ///< "FILE[:FIRST:BEST]", a lexicon for Lexicon::shortlist; "": none
  bool allow_unknown = false;  ///< GenerationOptions::allow_unknown
};

/// Sets the options that it chooses. Throws UsageError for numbers that are not possible and DataError for a file
/// that cannot be read.
void apply(TokenChoices const& choices, Vocabulary const& vocabulary, GenerationOptions& options);

/// The digest of a model and of the choices in these options.
std::string generation_digest(TrainedModel const& model, GenerationOptions const& options);

}  // namespace heddle
