#include <algorithm>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <map>

// The places of a set's parameters in its buffers.

namespace heddle {

namespace {

/// The number of elements that every rank reserves: the size of the largest shard.
std::int64_t reserved_elements(Parameter const& parameter, Mesh const& mesh) {
  std::int64_t elements = 1;
  for (int axis = 0; axis < parameter.global_shape().rank(); ++axis) {
    int const shards = parameter.placement().shards_along(axis, mesh.shape());
    elements *= (parameter.global_shape()[axis] + shards - 1) / shards;
  }
  return elements;
}

}  // namespace

void ParameterSet::arrange() {
  std::vector<Group> groups;
  for (Parameter& parameter : parameters_) {
    if (!parameter.shared) {
      parameter.follows ? groups.back().push_back(&parameter) : groups.push_back({&parameter});
    }
  }
  auto const is_rounded = [](Group const& group) { return group.front()->spec.rounded; };
  auto const is_frozen = [&](Group const& group) {
    return is_rounded(group) || std::ranges::all_of(group, [](Parameter const* each) { return each->rule.frozen; });
  };
  auto const frozen = std::ranges::stable_partition(groups, std::not_fn(is_frozen));
  auto const rounded = std::ranges::stable_partition(frozen, std::not_fn(is_rounded));
  size_ = 0;
  sections_.clear();
  std::ranges::for_each(units_, [](ParameterUnit& unit) { unit.sections.clear(); });
  std::ranges::for_each(parameters_, [](Parameter& parameter) { parameter.gathered = false; });
  place_all({groups.begin(), frozen.begin()});
  size_ = gradient_size_ = rounded_up(size_, divisible());
  place_all({frozen.begin(), rounded.begin()});
  value_size_ = size_;
  place_all({rounded.begin(), rounded.end()});
}

void ParameterSet::place_all(Groups groups) {
  std::map<Parameter const*, int> units_of;
  for (ParameterUnit const& unit : units_) {
    std::ranges::for_each(unit.members, [&](Parameter const* member) { ++units_of[member]; });
  }
  std::vector<std::pair<ParameterUnit*, Groups>> divided;
  auto const experts =
      std::ranges::stable_partition(groups, [this](Group const& group) { return !divides_experts(group); });
  auto left = experts.begin();
  for (ParameterUnit& unit : units_) {
    // Parameters of several units, such as positions of a stack's layers, stay whole, also on a stage with one of the
    // layers: all stages divide a parameter in the same way.
    auto const is_matrix_of = [&](Group const& group) {
      Parameter const* const first = group.front();
      return first->global_shape().rank() > 1 && std::ranges::count(unit.members, first) > 0 && units_of[first] == 1 &&
             (unit.members.size() == 1 || !first->placement().on_several_stages());
    };
    auto const own = std::stable_partition(groups.begin(), left, std::not_fn(is_matrix_of));
    if (divides({own, left})) {
      divided.emplace_back(&unit, Groups(own, left));
      left = own;
    }
  }
  // The groups of units that stay whole are moved back among the others.
  std::ranges::stable_sort(Groups(groups.begin(), left), {}, [](Group const& group) { return group.front()->id; });
  std::for_each(groups.begin(), left, [this](Group const& group) { place(group); });
  std::ranges::stable_partition(divided, [&](auto const& each) { return !used_once(each.second); });
  for (auto const& [unit, own] : divided) {
    place_section(*unit, own);
  }
  std::ranges::for_each(experts, [this](Group const& group) { place_experts(*group.front()); });
}

bool ParameterSet::divides(Groups groups) const {
  if (!division_.min_elements || groups.empty()) {
    return false;
  }
  std::int64_t elements = 0;
  Parameter const* updated_whole = nullptr;
  for (Group const& group : groups) {
    for (Parameter const* const parameter : group) {
      elements += parameter->local_shape.size();
      updated_whole = parameter->updated_whole() ? parameter : updated_whole;
    }
  }
  bool const divided = elements >= *division_.min_elements;
  if (divided && updated_whole != nullptr) {
    throw ConfigError(
        "parallel.shard_parameters: the rule {} updates the whole matrix {}, which no rank would have; expected a rule "
        "that updates elements, such as adam, or parallel.shard_optimizer instead",
        updated_whole->rule.name, updated_whole->spec.name);
  }
  return divided;
}

bool ParameterSet::used_once(Groups groups) const {
  return std::ranges::all_of(groups, [this](Group const& group) {
    return std::ranges::all_of(group, [this](Parameter const* each) { return std::ranges::count(uses_, each) <= 1; });
  });
}

void ParameterSet::place_section(ParameterUnit& unit, Groups groups) {
  size_ = rounded_up(size_, divisible());
  DividedSection& section = sections_.emplace_back();
  section.range.begin = size_;
  for (Group const& group : groups) {
    for (Parameter* const parameter : group) {
      parameter->place = {size_, size_ + reserved_elements(*parameter, mesh_)};
      parameter->gathered = true;
      size_ = parameter->place.end;
    }
    size_ = group.back()->place.end = rounded_up(size_, line_elements);
  }
  section.range.end = size_ = rounded_up(size_, divisible());
  section.parts = division_.unit_ranks;
  std::int64_t const part = section.range.count() / section.parts;
  int const replica = mesh_.shape().place(replica_axes(), mesh_.rank()) % section.parts;
  section.own = {section.range.begin + replica * part, section.range.begin + (replica + 1) * part};
  Parameter const& first = *groups.front().front();
  section.rounded = first.spec.rounded;
  section.used_rounded = std::ranges::all_of(groups, [](Group const& group) {
    return std::ranges::all_of(group, [](Parameter const* each) { return each->spec.used_rounded; });
  });
  section.trained = !first.spec.rounded && std::ranges::any_of(groups, [](Group const& group) {
    return std::ranges::any_of(group, [](Parameter const* each) { return !each->rule.frozen; });
  });
  section.divides_gradient = section.trained && used_once(groups);
  unit.sections.push_back(&section);
}

void ParameterSet::place_experts(Parameter& parameter) {
  if (parameter.global_shape()[0] % division_.expert_ranks != 0 ||
      parameter.local_shape.size() != reserved_elements(parameter, mesh_)) {
    throw Error("parameter {} {}: its experts and their parts must be of equal number and size on all ranks",
                parameter.spec.name, parameter.global_shape().to_string());
  }
  if (parameter.updated_whole()) {
    throw ConfigError(
        "parallel.expert = {}: the rule {} updates the whole parameter {}, which no rank would have; expected a rule "
        "that "
        "updates elements, such as adam",
        division_.expert_ranks, parameter.rule.name, parameter.spec.name);
  }
  if (std::ranges::count(uses_, &parameter) > 1) {
    throw ConfigError("parallel.expert = {}: {} is used by several layers; expected layers that are not tied",
                      division_.expert_ranks, parameter.spec.name);
  }
  size_ = rounded_up(size_, divisible());
  DividedSection& section = sections_.emplace_back();
  section.range = parameter.place = {size_, size_ + parameter.local_shape.size()};
  section.parts = division_.expert_ranks;
  section.in_parts = true;
  std::int64_t const part = section.range.count() / section.parts;
  int const replica = mesh_.shape().place(replica_axes(), mesh_.rank()) % section.parts;
  section.own = {section.range.begin + replica * part, section.range.begin + (replica + 1) * part};
  section.rounded = parameter.spec.rounded;
  section.trained = section.divides_gradient = !parameter.spec.rounded && !parameter.rule.frozen;
  auto const unit = std::ranges::find_if(
      units_, [&](ParameterUnit const& each) { return std::ranges::count(each.members, &parameter) > 0; });
  if (unit != units_.end()) {
    unit->sections.push_back(&section);
  }
  size_ = rounded_up(section.range.end, divisible());
}

std::int64_t ParameterSet::divisible() const {
  return line_elements * mesh_.shape().size(replica_axes());
}

void ParameterSet::place(Group const& group) {
  bool const alone = std::ranges::any_of(
      group, [](Parameter const* each) { return each->placement().on_several_stages() || each->updated_whole(); });
  if (alone) {
    size_ = rounded_up(size_, divisible());
  }
  for (Parameter* const parameter : group) {
    std::int64_t const end = size_ + reserved_elements(*parameter, mesh_);
    parameter->place = {size_, parameter == group.back() ? rounded_up(end, line_elements) : end};
    size_ = parameter->place.end;
  }
  if (alone) {
    size_ = rounded_up(size_, divisible());
  }
}

}  // namespace heddle
