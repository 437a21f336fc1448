#pragma once

#include <functional>
#include <heddle/core/layers/registries.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <heddle/dist/watch/watch.hpp>
#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <vector>

#include "run/metrics/training_log.hpp"

namespace heddle {

/// The parts of a run that a validation needs.
struct ValidationSetup {
  Config const& config;
  Registries const& registries;
  std::vector<ValidationSet> const& sets;
  TrainingEngine& engine;
  ParallelState const& parallel;
  Execution& execution;
  Watch& watch;
  WholeModel const& whole_model;
  /// Called by all ranks together, several times in a second if micro-batches are not long. It may throw on all of them
  /// to end the validation.
  std::function<void()> check;
};

/// Computes all that `measures` lists: the loss over each whole set, which has at least one usable sample, for a model
/// that predicts masked tokens also their accuracy, and the metrics of its translations; for those that are programs,
/// only their input. Where there are some, samples and images of attention are those of the first set. The loss's
/// micro-batches are divided among the data group, the sentences to translate among all replicas; rank 0 computes the
/// metrics of the translations. The values are the same on every rank, and the same for any number of data ranks.
/// Collective over the world.
ValidationResult validate(ValidationSetup const& setup);

}  // namespace heddle
