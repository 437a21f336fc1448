#pragma once

#include <heddle/core/training/planned_packs.hpp>
#include <heddle/io/samples/batches.hpp>
#include <vector>

namespace heddle {

/// The micro-batches of a run that need the most memory, for plans. For a run with few samples all batches are listed
/// once, from the first one on, and the real micro-batches of each rank are known; for a longer run the bounds of
/// full_packs hold. Validation sets are listed in any case. A run that was resumed with another train.batch_tokens or
/// with other data has other batches than those listed, of about the same size.
class RunPacks {
 public:
  /// Samples of the batches that are listed at most.
  static constexpr std::int64_t max_listed = std::int64_t{1} << 18;
  /// Steps of a run, and tokens of a rank in all of them or in all validation sets, that are planned in order (see
  /// PlannedPacks::steps). Over more steps every arena meets micro-batches of the largest kind.
  static constexpr std::int64_t max_steps_in_order = 32;
  static constexpr std::int64_t max_tokens_in_order = std::int64_t{1} << 19;

  struct Setup {
    Config const& config;
    Mixture training;
    std::vector<SampleSource const*> validation = {};  ///< of each validation set; empty: nothing is validated
    bool prefixes = false;                             ///< see DataBounds
    bool sequences = false;  ///< samples are joined lines of text: their lengths differ by epoch
    bool listed = true;      ///< false: the bounds of full_packs, also for a short run
  };
  /// Keeps a reference to the validation samples. Throws as BatchPlanner does.
  explicit RunPacks(Setup const& setup);

  /// The micro-batches of the mesh's rank. `config` may differ from the setup's in [parallel] and
  /// train.micro_batch_tokens. Reads a few micro-batches.
  PlannedPacks largest(Config const& config, Mesh const& mesh) const;

 private:
  void list_batches(Config const& config, SampleTotals const& totals);
  PlannedPacks of_batches(TrainConfig const& train, Mesh const& mesh) const;
  std::vector<std::vector<Pack>> in_order(TrainConfig const& train, Mesh const& mesh) const;
  std::vector<Pack> of_validation(TrainConfig const& train, Mesh const& mesh, bool all) const;

  Mixture training_;
  std::vector<SampleSource const*> validation_;
  DataBounds bounds_;
  std::vector<GlobalBatch> batches_;    ///< of the whole run; empty: not listed
  std::vector<GlobalBatch> validated_;  ///< by validation set
  std::int64_t validated_tokens_ = 0;   ///< in all sets
};

}  // namespace heddle
