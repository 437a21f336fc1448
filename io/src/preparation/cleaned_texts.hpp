#pragma once

#include <heddle/io/preparation/prepare.hpp>
#include <iosfwd>
#include <vector>

#include "given_texts.hpp"

namespace heddle {

/// Asks the rules of options.clean about each line of the training text, in `threads` threads, and notes in the text
/// which lines its readers leave out: a bit for each line. `held_out` is the validation text, if there is one, for the
/// rule overlap. Writes the lines that are left out to options.dropped. Throws what Cleaner and reading the text throw.
CleaningReport clean_training_text(GivenTexts& training, GivenTexts const* held_out, PrepareOptions const& options,
                                   int threads, std::ostream& progress);

}  // namespace heddle
