#pragma once

#include <heddle/core/layers/registries.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <heddle/dist/watch/watch.hpp>
#include <heddle/io/samples/batches.hpp>

#include "run_directory/training_log.hpp"

namespace heddle {

/// The parts of a run that a validation needs.
struct ValidationSetup {
  Config const& config;
  Registries const& registries;
  Dataset const& dataset;
  SampleSource const& samples;  ///< of the dataset
  TrainingEngine& engine;
  ParallelState const& parallel;
  Execution& execution;
  Watch& watch;
  WholeModel const& whole_model;
};

/// Computes the loss over the whole set, which has at least one usable sample, for a model that predicts masked tokens
/// also their accuracy, and, if train.validate_bleu is set, the BLEU of its translations and images of its attention.
/// The loss's micro-batches are divided among the data group, the sentences to translate among all replicas; the result
/// is the same on every rank, except for the images, and the same for any number of data ranks. Collective over the
/// world.
ValidationResult validate(ValidationSetup const& setup);

}  // namespace heddle
