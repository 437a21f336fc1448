#pragma once

#include <heddle/io/checkpoint/checkpoint.hpp>

#include "synthetic_model.hpp"

namespace heddle {

/// Loads the model's own parts from a checkpoint.
inline void load_state(SyntheticModel& model, Checkpoint const& checkpoint) {
  for (Parameter const& parameter : model.parameters.all()) {
    int const axis = parameter.spec.shard.axis;
    std::int64_t const count = axis < 0 ? 0 : parameter.local_shape[axis];
    auto const read = [&](TensorPart of, std::optional<IndexRange> elements = {}) {
      return checkpoint.read(TensorSlice{parameter.spec.name, of, axis, parameter.shard_begin, count, elements});
    };
    copy_from_host(parameter.value, read(TensorPart::value).data());
    for (IndexRange const& kept : model.optimizer.kept_moments(parameter)) {
      model.optimizer.set_moments(parameter, kept, read(TensorPart::first_moment, kept),
                                  read(TensorPart::second_moment, kept));
    }
  }
}

}  // namespace heddle
