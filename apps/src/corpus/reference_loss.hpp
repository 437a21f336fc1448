#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "inference/chunk_generator.hpp"

namespace heddle {

/// The sums of ReferenceLoss over lines that belong together: of their first references given their sources, computed
/// in packs of pairs of similar length. Of a text's first lines also the other direction is computed.
std::vector<double> reference_loss_sums(TrainedModel& model, std::vector<GeneratedLine> const& lines);

/// The loss of a text's references given their sources.
class ReferenceLoss {
 public:
  static constexpr std::size_t sums_count = 8;

  /// Keeps a reference to the sums of reference_loss_sums, added up over all lines.
  explicit ReferenceLoss(std::span<double const, sums_count> sums) : sums_(sums) {}

  LossSums loss() const;
  /// A message about pairs that the model does not take, if there are any; else "".
  std::string left_out_message() const;
  /// A message where sources and references seem to be swapped; else "".
  std::string advice() const;

 private:
  std::span<double const, sums_count> sums_;
};

}  // namespace heddle
