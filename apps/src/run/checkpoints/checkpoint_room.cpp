#include "checkpoint_room.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/operations/update.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/io/checkpoint/store.hpp>

namespace heddle {

std::vector<StreamedTensor> largest_tensors(WholeModel const& model, Config const& config,
                                            KernelRegistries const& kernels, std::set<std::string> const& left_out) {
  std::vector<StreamedTensor> tensors;
  model.for_each_parameter([&](ParameterDescription const& parameter) {
    if (left_out.contains(parameter.name)) {
      return;
    }
    StreamedTensor& tensor =
        tensors.emplace_back(StreamedTensor{parameter.name, parameter.placement.global_shape.to_vector()});
    tensor.dtype = parameter.rounded ? DType::bfloat16 : DType::float32;
    UpdateRule const rule = assigned_rule(config.optimizer, kernels, parameter.name, parameter.matrix);
    if (rule.frozen) {
      return;
    }
    RuleDefinition const definition = rule_definition(kernels, rule.name, config.optimizer.places.of("name"));
    ParameterState const state = state_of(rule, definition, parameter.placement.global_shape);
    std::ranges::copy(state.keys, std::back_inserter(tensor.keys));
    for (auto const& [key, shape] : state.whole) {
      tensor.other_shapes[key] = shape.to_vector();
    }
  });
  std::ranges::sort(tensors, {}, &StreamedTensor::name);
  return tensors;
}

CheckpointRoom::CheckpointRoom(std::filesystem::path const& run, std::int64_t keep, std::int64_t bytes)
    : run_(run), bytes_(bytes) {
  CheckpointStore const store(run / "checkpoints", keep);
  keep_ = store.keep();
  at_once_ = keep_ + 2;
  free_ = store.free_bytes();
  for (CheckpointEntry const& entry : store.list(CheckpointStore::Check::sizes)) {
    there_ += entry.bytes;
  }
}

std::string CheckpointRoom::describe() const {
  return fmt::format(
      "A checkpoint takes {} on the disk; with the newest {}, the best one and one that is written, {}: {} are "
      "free{}{}",
      readable_size(bytes_), keep_, readable_size(at_once_ * bytes_), readable_size(free_),
      there_ > 0 ? fmt::format(" beside {} of checkpoints", readable_size(there_)) : "",
      suffices() ? "" : ", which is too little");
}

CheckpointRoom checkpoint_room(std::filesystem::path const& run, Config const& config, WholeModel const& model,
                               Vocabulary const& vocabulary, KernelRegistries const& kernels,
                               std::int64_t origin_bytes) {
  std::set<std::string> left_out;
  model.for_each_parameter([&](ParameterDescription const& parameter) {
    if (!config.model.adapter.save_base && update_rule(config.optimizer, parameter.name).frozen) {
      left_out.insert(parameter.name);
    }
  });
  std::size_t const texts =
      to_toml(config).size() + vocabulary.source.model().size() + vocabulary.target.model().size();
  return {run, config.checkpoint.keep,
          CheckpointStore::planned_bytes(largest_tensors(model, config, kernels, left_out)) +
              static_cast<std::int64_t>(texts) + origin_bytes};
}

std::optional<CheckpointContents> newest_contents(std::filesystem::path const& run) {
  std::filesystem::path const checkpoints = run / "checkpoints";
  auto const step = CheckpointStore(checkpoints, 2).newest_step();
  try {
    return !step ? std::nullopt
                 : std::optional(Checkpoint::open(checkpoints / checkpoint_directory_name(*step), Communicator::self(),
                                                  {}, Verification::at_reading)
                                     .contents());
  } catch (Error const&) {
    return std::nullopt;
  }
}

void CheckpointRoom::require_one() const {
  if (free_ < bytes_) {
    throw ConfigError(
        "run.directory {}: the disk has no room for a checkpoint: it takes {}, and {} are free; make room "
        "(`heddle checkpoint prune`), or set another run.directory",
        run_.string(), readable_size(bytes_), readable_size(free_));
  }
}

}  // namespace heddle
