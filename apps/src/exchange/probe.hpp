#pragma once

#include <vector>

#include "inference/trained_model.hpp"

namespace heddle {

struct Execution;

/// The logits of a model for a few sequences of random tokens, the same for all models of one vocabulary:
/// [tokens to predict, vocabulary], computed in float32 whatever precision the model was trained in. Logits of tokens
/// that are never generated are 0. The model is in memory during the call. Throws as TrainedModel::open does. For one
/// rank.
std::vector<float> probe_logits(Execution& execution, TrainedModelOptions const& options);

}  // namespace heddle
