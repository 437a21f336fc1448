#pragma once

#include <functional>
#include <heddle/dist/training/training_engine.hpp>

namespace heddle {

/// Runs steps so that none with a loss or norm that is not finite counts. Such a step has changed nothing, so it is run
/// again: a flipped bit does not come twice. If it repeats, its batch is to be skipped. The decisions depend only on
/// the results, which are the same on every rank.
class FiniteSteps {
 public:
  /// The number of batches skipped in a row after which a run is to end.
  static constexpr int max_skipped = 3;

  struct Outcome {
    StepResult result;
    bool repeated = false;  ///< it was run twice
    bool skipped = false;   ///< and was not finite in the second run, either
  };

  /// `step` is called once or twice with the same batch. Collective as `step` is.
  Outcome run(std::function<StepResult()> const& step);
  /// True after max_skipped batches in a row were skipped.
  bool too_many_skipped() const { return skipped_in_a_row_ >= max_skipped; }

 private:
  int skipped_in_a_row_ = 0;
};

}  // namespace heddle
