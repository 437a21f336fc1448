#pragma once

#include <string>
#include <vector>

#include "inference/piece_generator.hpp"

namespace heddle {

/// A sentence to translate, between the tokens of the model's frame, and what its translation starts with. Where one of
/// them is too long for the model it loses its end; a sentence with only white space has no tokens.
EncodedLine encode_source(TrainedModel const& model, std::string const& text, std::string const& prefix = {});
/// A prompt to continue, with the end token after it if `end`. One that leaves too little room for a continuation
/// loses its start.
EncodedLine encode_prompt(TrainedModel const& model, std::string const& text, bool end);

struct Translation {
  std::string text;
  double score = 0;
  double log_probability = 0;
  std::vector<std::int32_t> tokens = {};  ///< with the prefix, which counts neither in the score nor in the probability
};
/// The translations of a line, the best first; of a line without tokens one empty translation with score 0.
std::vector<Translation> translations_of(TrainedModel const& model, GeneratedLine const& line);
/// The text that follows a prompt, which starts with a space where a new word starts.
std::string continuation_of(TrainedModel const& model, GeneratedLine const& line, bool end);

}  // namespace heddle
