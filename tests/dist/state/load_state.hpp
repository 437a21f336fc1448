#pragma once

#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/checkpoint/store.hpp>

#include "synthetic_model.hpp"

namespace heddle {

/// Loads the model's own parts from a checkpoint.
inline void load_state(SyntheticModel& model, Checkpoint const& checkpoint) {
  for (Parameter const& parameter : model.parameters.all()) {
    auto const read = [&](std::string const& key, std::optional<IndexRange> elements = {}) {
      bool const whole = parameter.whole_state.contains(key);
      return checkpoint.read(TensorSlice{parameter.spec.name, key,
                                         whole ? std::vector<IndexRange>() : parameter.slice.ranges(), elements});
    };
    copy_from_host(parameter.value, read(value_key).data());
    for (std::string const& key : parameter.state) {
      for (IndexRange const& kept : model.optimizer.kept_state(parameter, key)) {
        model.optimizer.set_state(parameter, key, kept, read(key, kept));
      }
    }
  }
}

/// A test whose ranks share a directory, into which models write checkpoints.
class CheckpointTest : public DistTest {
 protected:
  CheckpointTest() {
    if (world_.rank() == 0) {
      made_.emplace();
    }
    directory_ = broadcast_text(world_, made_ ? made_->path().string() : "");
  }
  ~CheckpointTest() override { world_.barrier(); }

  /// Writes the model's state. Collective over the model's world.
  std::filesystem::path commit(SyntheticModel& model, std::string const& store, std::int64_t writers,
                               std::int64_t step = 1) const {
    ModelStream tensors(model.parallel, model.model, model.parameters, model.optimizer);
    CheckpointContents contents;
    contents.state.step = step;
    contents.config = "a = 1";
    return CheckpointStore(directory_ / store, 9).commit(model.parallel.world, contents, tensors, writers).directory;
  }

  std::optional<TemporaryDirectory> made_;  ///< rank 0's
  std::filesystem::path directory_;
};

}  // namespace heddle
