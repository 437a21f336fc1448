#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parameters/update_rules.hpp>

#include "run/checkpoints/checkpoint_room.hpp"
#include "trainer.hpp"

namespace heddle {

void Trainer::unfreeze(std::int64_t updates) {
  auto const changes = [&](std::int64_t at) { return (at <= updates) != (at <= unfrozen_); };
  bool const changed = std::ranges::any_of(
      config_.optimizer.groups, [&](ParameterGroup const& group) { return changes(group.rule.unfreeze_at); });
  if (changed) {
    engine_->optimizer().unfreeze(updates);
    whole_model_.emplace(WholeModel::gather(setup_.parallel, engine_->parameters()));
    DistributedOptimizer::StateBegins begins = engine_->optimizer().state_begins();
    std::int64_t elements = 0;
    whole_model_->for_each_parameter([&](ParameterDescription const& parameter) {
      std::int64_t const at = update_rule(config_.optimizer, parameter.name).unfreeze_at;
      if (changes(at) && at <= updates) {
        begins[parameter.name] = updates;
        elements += parameter.placement.global_shape.size();
      }
    });
    engine_->optimizer().set_state_begins(std::move(begins));
    log_.info(fmt::format("from step {} on, {} parameters are trained that were frozen before",
                          readable_count(updates + 1), readable_count(elements)));
  }
  unfrozen_ = updates;
}

std::vector<StreamedTensor> Trainer::largest_tensors() const {
  return heddle::largest_tensors(*whole_model_, config_, setup_.registries.kernels, left_out());
}

}  // namespace heddle
