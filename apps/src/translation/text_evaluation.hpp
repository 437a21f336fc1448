#pragma once

#include <string>

#include "trained_model.hpp"

namespace heddle {

/// Measures a model of one stack on a text, one document or sentence a line, joined into sequences and masked as in
/// validation, and prints the perplexity and, of an encoder, the masked accuracy. Throws ConfigError for a model of two
/// stacks, DataError for a text without tokens.
void evaluate_text(TrainedModelOptions const& options, std::string const& text);

}  // namespace heddle
