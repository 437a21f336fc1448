#pragma once

#include <heddle/io/text/text.hpp>
#include <string>

#include "trained_model.hpp"

namespace heddle {

/// Measures a model of one stack on a text, one document or sentence a line, joined into sequences and masked as in
/// validation, and prints the perplexity and, of an encoder, the masked accuracy. Throws ConfigError for a model of two
/// stacks, DataError for a text without tokens. A text of more than 16 million tokens or a million lines is read in
/// parts of that size, and no sequence is joined across their ends.
void evaluate_text(TrainedModelOptions const& options, std::string const& text, InvalidUtf8 invalid_utf8);

}  // namespace heddle
