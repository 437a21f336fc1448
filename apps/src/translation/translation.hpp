#pragma once

#include <boost/program_options.hpp>
#include <heddle/core/generation/generation.hpp>
#include <iosfwd>
#include <string>
#include <vector>

#include "trained_model.hpp"

namespace heddle {

/// --beam, --length-penalty, --max-length, --batch-tokens. `generate` says what is wrong with a value.
void add_generation_options(boost::program_options::options_description& description, GenerationOptions& options);

/// A sentence to translate and where it came from.
struct SourceLine {
  std::string text;
  std::int64_t number = 0;  ///< from 1
};

struct Translation {
  std::string text;
  double score = 0;
};

/// The translations of each line, the best first; a line of white space alone gives one empty translation with score 0.
/// A line that is longer than the model takes loses its end, and `notes` gets a line about it.
std::vector<std::vector<Translation>> translate(TrainedModel& model, std::vector<SourceLine> const& lines,
                                                GenerationOptions const& options, std::ostream& notes);

}  // namespace heddle
