#pragma once

#include <cstdint>
#include <heddle/model.hpp>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace heddle {

/// A source and a given target of it, without the tokens of the model's frame and their ends.
struct GivenTarget {
  std::vector<std::int32_t> source;
  std::vector<std::int32_t> target;
};

struct ForcedTarget {
  /// The negative log-likelihood of each of the target's tokens and its end; empty where the pair is too long for the
  /// model.
  std::vector<double> losses = {};
  std::vector<double> log_probabilities = {};  ///< of the whole target and its end, by each model of an ensemble
  /// [target tokens, source tokens and the source's end]: how much each token of the target attends to those of the
  /// source when it is predicted. Its rows' sums are below 1 where the source has a frame. Empty without alignments.
  std::vector<double> attention = {};
};

/// The cross-attention that alignments are read from.
struct AlignedAttention {
  /// Number among the layers with cross-attention, from 1; none: the last one with guided alignment, else the last but
  /// one, or the only one.
  std::optional<std::int64_t> layer = {};
  std::optional<std::int64_t> head = {};  ///< from 1; none: the guided one, else the mean over all heads
};

/// Predicts given targets (forced decoding).
class ForcedDecoding {
 public:
  /// Without alignments.
  ForcedDecoding() = default;
  /// With alignments: lets the attention of models that are opened with `model` from now on be recorded. Their results
  /// do not change.
  ForcedDecoding(AlignedAttention const& read, TrainedModelOptions& model);

  /// Collective over the model's group. Of an ensemble the attention is that of the first model. Throws, with
  /// alignments, UsageError for a layer or head that the model does not have, and ConfigError where it has no
  /// cross-attention, a plug-in's layer hides its attention, or kernels do not compute on the host.
  std::vector<ForcedTarget> decode(TrainedModel& model, std::span<GivenTarget const> given) const;

  class Recording;

 private:
  AlignedAttention read_;
  std::shared_ptr<Recording> recording_;
};

}  // namespace heddle
