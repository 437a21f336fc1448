#pragma once

#include <cstdint>
#include <heddle/model.hpp>
#include <vector>

namespace heddle {

struct Execution;

/// The pieces that a probe has, by their ids in a model; empty: all, by their ids.
struct ProbePieces {
  std::vector<std::int32_t> source = {}, target = {};
};

/// The logits of a model for a few sequences of random tokens, the same for all models of one vocabulary:
/// [tokens to predict, vocabulary], computed in float32 whatever precision the model was trained in. Logits of tokens
/// that are never generated are 0. With `pieces` the tokens are these, and the logits theirs, less their mean: models
/// with the same probabilities have the same numbers. The model is in memory during the call. Throws as
/// TrainedModel::open does. For one rank.
std::vector<float> probe_logits(Execution& execution, TrainedModelOptions const& options,
                                ProbePieces const& pieces = {});

}  // namespace heddle
