#pragma once

#include <heddle/io/checkpoint/checkpoint.hpp>

#include "synthetic_model.hpp"

namespace heddle {

/// Loads the model's own parts from a checkpoint.
inline void load_state(SyntheticModel& model, Checkpoint const& checkpoint) {
  for (Parameter const& parameter : model.parameters.all()) {
    int const axis = parameter.spec.shard.axis;
    std::int64_t const count = axis < 0 ? 0 : parameter.local_shape[axis];
    auto const part = [&](TensorPart of) {
      return checkpoint.read(parameter.spec.name, of, axis, parameter.shard_begin, count);
    };
    copy_from_host(parameter.value, part(TensorPart::value).data());
    model.optimizer.set_moments(parameter, part(TensorPart::first_moment), part(TensorPart::second_moment));
  }
}

}  // namespace heddle
