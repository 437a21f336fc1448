#pragma once

#include <heddle/io/preparation/prepare.hpp>
#include <iosfwd>
#include <optional>

#include "given_texts.hpp"

namespace heddle {

/// The existing vocabulary that the options name, if they do: with pieces for the start and the end of a text where a
/// SentencePiece model has none. Throws DataError for a file that is not a vocabulary.
std::optional<Vocabulary> given_vocabulary(PrepareOptions const& options, std::ostream& progress);

/// Reads the training text, whose lines it counts, and learns a vocabulary from a sample of it. Throws as
/// LineBlockReader and Tokenizer::train do.
Vocabulary learn_vocabulary(PrepareOptions const& options, int threads, GivenTexts& texts, std::ostream& progress);

}  // namespace heddle
