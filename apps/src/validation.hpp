#pragma once

#include <heddle/core/encoder_decoder.hpp>
#include <heddle/io/batches.hpp>

#include "training_log.hpp"

namespace heddle {

/// What a validation looks at.
struct ValidationSetup {
  Config const& config;
  Dataset const& dataset;
  EncoderDecoder const& model;
  ParallelState const& parallel;
  Execution& execution;
  Arena& arena;
};

/// Loss over the whole set and, where train.validate_bleu asks for it, the BLEU of its translations. The work is
/// split over the data group; the result is the same on every rank, and the same for any number of them. Collective
/// over it.
ValidationResult validate(ValidationSetup const& setup);

}  // namespace heddle
