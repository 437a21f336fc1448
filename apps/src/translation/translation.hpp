#pragma once

#include <boost/program_options.hpp>
#include <heddle/core/generation/generation.hpp>
#include <iosfwd>
#include <string>
#include <vector>

#include "line_window.hpp"
#include "trained_model.hpp"

namespace heddle {

/// The options --beam, --length-penalty, --max-length, --batch-tokens. `generate` checks their values.
void add_generation_options(boost::program_options::options_description& description, GenerationOptions& options);

struct Translation {
  std::string text;
  double score = 0;
};

/// The translations of each line, the best first; a line with only white space gives one empty translation with score
/// 0. A line that is too long for the model loses its end, and `notes` gets a line about it.
std::vector<std::vector<Translation>> translate(TrainedModel& model, std::vector<SourceLine> const& lines,
                                                GenerationOptions const& options, std::ostream& notes);

}  // namespace heddle
