#pragma once

#include <heddle/core/tensor/runtime.hpp>
#include <vector>

#include "inference/trained_model.hpp"

namespace heddle {

/// The logits of a model for a few sequences of random tokens, the same for all models of one vocabulary:
/// [tokens to predict, vocabulary].
std::vector<float> probe_logits(Runtime& runtime, TrainedModelOptions const& options);

}  // namespace heddle
