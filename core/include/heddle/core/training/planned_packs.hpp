#pragma once

#include <array>
#include <cstdint>
#include <heddle/core/config/config.hpp>
#include <heddle/core/parallel/mesh.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <limits>
#include <vector>

namespace heddle {

/// The samples of an epoch, as far as they limit micro-batches. A sample counts its longer side.
struct SampleBounds {
  std::int64_t tokens = std::numeric_limits<std::int64_t>::max();  ///< tokens of all samples
  std::int64_t longest = 0;  ///< tokens of the longest sample; 0: model.max_length
  std::int64_t typical = 0;  ///< tokens of a usual sample; 0: model.max_length
};

struct DataBounds {
  SampleBounds training{};
  SampleBounds validation{};
  bool validates = true;  ///< where train.validate_every asks for it
  bool prefixes = false;  ///< samples have prefixes (ModelDescription::needs_prefixes)
};

/// The micro-batches that the memory of one rank is planned for.
struct PlannedPacks {
  std::vector<Pack> training{};  ///< the micro-batches that need the most memory: this context rank's rows
  std::vector<std::int64_t> micro_batches{1};  ///< numbers of a step's micro-batches on this data rank
  std::int64_t step_tokens = 0;                ///< maximum of a step on this data rank, counted as in SampleBounds
  std::vector<Pack> validation{};              ///< the largest micro-batches of validation; empty: nothing is validated
  /// Instead of `training`: the micro-batches of each step, in order, where it matters which of them are in flight
  /// together. `validation` then has all of its micro-batches, too.
  std::vector<std::vector<Pack>> steps{};
  double scale = 1;  ///< real micro-batches are larger by this factor: packs of a size that a dry run can hold
};

/// A micro-batch with `tokens` tokens on both sides, of all passes together, in sequences of `length` tokens; this
/// rank's part.
Pack full_pack(std::int64_t tokens, std::int64_t length, ContextSplit const& split = {}, bool prefixes = false,
               int passes = 1);

/// The largest micro-batches that any data within these bounds can give a rank: both sides full. A data rank's share
/// is whole samples, so it has at most batch_tokens / data tokens and one sample more. The same holds for the
/// micro-batches of about equal tokens into which a pipeline cuts it. Validation is not divided by batches: its
/// micro-batches have train.micro_batch_tokens tokens. With a context group the samples' usual length counts, because
/// ranks have unequal parts of short samples.
PlannedPacks full_packs(Config const& config, Mesh const& mesh, DataBounds const& bounds = {});

/// The rows of a micro-batch on a context rank, and its tokens on all of them.
struct PackSize {
  std::int64_t source = 0;
  std::int64_t target = 0;
  std::int64_t whole = 0;
};

/// Chooses, of many micro-batches, the ones that can need the most memory, which grows with the rows of either side:
/// the largest by one side, by the other, and by several weights of both.
class LargestPacks {
 public:
  /// `place`: the number by which the caller finds it again.
  void add(PackSize const& size, std::int64_t place);
  /// Each once, ascending.
  std::vector<std::int64_t> places() const;

 private:
  struct Largest {
    std::int64_t measure = -1;
    std::int64_t place = 0;
  };
  std::array<Largest, 8> largest_;
};

}  // namespace heddle
