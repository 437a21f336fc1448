#include "training/run_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/layers/low_rank.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/core/training/optimizer.hpp>
#include <heddle/dist/planning/available_memory.hpp>
#include <utility>

#include "run/checkpoints/base.hpp"
#include "run/checkpoints/checkpoint.hpp"
#include "run/checkpoints/checkpoint_room.hpp"

namespace heddle {

namespace {

/// Throws ConfigError where a host has not the memory of the plan.
TrainingEngine::Setup checked_setup(TrainerSetup const& setup, VocabularySizes const& vocabulary,
                                    MemoryPlan const& plan) {
  Config const& config = setup.config;
  if (config.train.reserve_memory && kernel_memory_space() == MemorySpace::host) {
    require_memory(setup.parallel.world, plan, available_memory());
  }
  return {.config = config,
          .registries = setup.registries,
          .parallel = setup.parallel,
          .execution = setup.execution,
          .vocabulary = vocabulary,
          .dtype = dtype_of(config.train.precision),
          .observer = &setup.times};
}

}  // namespace

RunModel::RunModel(TrainerSetup const& setup, VocabularySizes const& vocabulary, MemoryPlan const& plan)
    : config_(setup.config),
      parallel_(setup.parallel),
      engine_(checked_setup(setup, vocabulary, plan)),
      whole_(WholeModel::gather(parallel_, engine_.parameters())) {
  if (config_.train.reserve_memory) {
    engine_.pipeline().reserve(plan.pipeline);
  }
  std::vector<std::string> const names = whole_.names();
  require_patterns_match(config_.optimizer, names);
  require_targets_match(config_.model.adapter, names);
  require_some_trained(config_.optimizer, names);
}

std::string RunModel::describe() const {
  std::int64_t frozen = 0;
  whole_.for_each_parameter([&](ParameterDescription const& parameter) {
    UpdateRule const rule = update_rule(config_.optimizer, parameter.name);
    frozen += rule.frozen || rule.frozen_until > 0 ? parameter.placement.global_shape.size() : 0;
  });
  return fmt::format("{} parameters{}", readable_count(whole_.elements()),
                     frozen > 0 ? fmt::format(" ({} of them frozen)", readable_count(frozen)) : "");
}

void RunModel::initialize(Initialization const* from) {
  engine_.parameters().initialize(config_.train.seed);
  if (from != nullptr) {
    from->apply(engine_.parameters());
    origin_ = from->contents().origin;
    base_ = config_.model.adapter.rank > 0 ? from->base() : CheckpointBase();
  }
}

std::vector<std::string> RunModel::load(Checkpoint const& checkpoint) {
  std::vector<std::string> messages = new_state(checkpoint, stream().tensors());
  load_training_state(checkpoint, whole_, engine_.parameters(), engine_.optimizer());
  origin_ = checkpoint.contents().origin;
  base_ = checkpoint.contents().base;
  std::erase_if(base_.names, [&](auto const& name) { return !checkpoint.in_base(name.first); });
  return messages;
}

std::string RunModel::unfreeze(std::int64_t updates) {
  std::int64_t const before = std::exchange(unfrozen_, updates);
  auto const changes = [&](std::int64_t at) { return (at <= updates) != (at <= before); };
  if (std::ranges::none_of(config_.optimizer.groups,
                           [&](ParameterGroup const& group) { return changes(group.rule.frozen_until); })) {
    return "";
  }
  engine_.optimizer().unfreeze(updates);
  whole_ = WholeModel::gather(parallel_, engine_.parameters());
  DistributedOptimizer::StateBegins begins = engine_.optimizer().state_begins();
  std::int64_t elements = 0;
  whole_.for_each_parameter([&](ParameterDescription const& parameter) {
    std::int64_t const at = update_rule(config_.optimizer, parameter.name).frozen_until;
    if (changes(at) && at <= updates) {
      begins[parameter.name] = updates;
      elements += parameter.placement.global_shape.size();
    }
  });
  engine_.optimizer().set_state_begins(std::move(begins));
  return fmt::format("from step {} on, {} parameters are trained that were frozen before", readable_count(updates + 1),
                     readable_count(elements));
}

std::set<std::string> RunModel::left_out() const {
  return config_.model.adapter.save_base ? std::set<std::string>() : left_to_base(base_, whole_);
}

ModelStream RunModel::stream() const {
  return {parallel_, whole_, engine_.parameters(), engine_.optimizer(), left_out()};
}

std::vector<StreamedTensor> RunModel::largest_tensors() const {
  return heddle::largest_tensors(whole_, config_, engine_.kernels(), left_out());
}

void RunModel::describe_in(CheckpointContents& contents) const {
  contents.state_begins = engine_.optimizer().state_begins();
  contents.origin = origin_;
  contents.base = base_;
  std::set<std::string> const left = left_out();
  std::erase_if(contents.base.names, [&](auto const& name) { return !left.contains(name.first); });
}

}  // namespace heddle
