#pragma once

#include <heddle/io/tokenizers/line_sample.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <sstream>
#include <string>

namespace heddle {

/// A vocabulary that is learnt from the lines of a text.
inline Tokenizer learn_tokenizer(std::string const& text, TokenizerTraining const& training,
                                 std::int64_t sample_bytes = std::int64_t{64} << 20) {
  LineSample sample(sample_bytes);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    sample.add(0, line);
  }
  return Tokenizer::train(training, sample);
}

}  // namespace heddle
