#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/operations/update.hpp>
#include <heddle/core/parameters/update_rules.hpp>

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
        elements += parameter.shape.size();
      }
    });
    engine_->optimizer().set_state_begins(std::move(begins));
    log_.info(fmt::format("from step {} on, {} parameters are trained that were frozen before",
                          readable_count(updates + 1), readable_count(elements)));
  }
  unfrozen_ = updates;
}

std::vector<StreamedTensor> Trainer::largest_tensors() const {
  std::vector<StreamedTensor> tensors = stream().tensors();
  for (StreamedTensor& tensor : tensors) {
    UpdateRule const rule = update_rule(config_.optimizer, tensor.name);
    if (rule.unfreeze_at <= unfrozen_) {
      continue;
    }
    std::string const place = config_.optimizer.places.of("name");
    for (StateTensor const& state : rule_definition(setup_.registries.kernels, rule.name, place).state) {
      tensor.keys.push_back(state.key);
      if (state.shape != StateShape::parameter) {
        tensor.other_shapes[state.key] = shape_of(state.shape, Shape(tensor.shape)).to_vector();
      }
    }
  }
  return tensors;
}

}  // namespace heddle
