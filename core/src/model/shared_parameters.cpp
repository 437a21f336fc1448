#include "shared_parameters.hpp"

#include <algorithm>
#include <cmath>

namespace heddle {

namespace {

/// The first of a stack's layers `layers` that takes positions; null if none does.
LayerDescription const* find_with_positions(StackDescription const& stack, IndexRange const& layers) {
  auto const end = stack.layers.begin() + layers.end;
  auto const found = std::find_if(stack.layers.begin() + layers.begin, end,
                                  [](LayerDescription const& layer) { return layer.takes_positions(); });
  return found == end ? nullptr : &*found;
}

/// The stages with a part for which `uses` is true; empty if there is only one.
template <class Uses>
std::vector<int> sharing_stages(PipelinePlan const& plan, Uses const& uses) {
  std::vector<int> stages;
  for (int stage = 0; stage < plan.stages(); ++stage) {
    if (std::ranges::any_of(plan.parts[static_cast<std::size_t>(stage)], uses)) {
      stages.push_back(stage);
    }
  }
  return stages.size() > 1 ? stages : std::vector<int>();
}

}  // namespace

SharedParameters::SharedParameters(LayerSpec const& spec, ModelDescription const& description,
                                   VocabularySizes const& vocabulary, PipelinePlan const& plan)
    : spec_(spec), description_(description), vocabulary_(vocabulary), plan_(plan) {}

SharedParameters::Table SharedParameters::table(std::size_t use) const {
  bool const is_output = use == description_.stacks.size();
  StackDescription const& stack = is_output ? description_.stacks.back() : description_.stacks[use];
  std::int64_t const size = stack.side == Side::source ? vocabulary_.source : vocabulary_.target;
  bool const tied = description_.keys.tie_embeddings;
  if (tied && vocabulary_.joint) {
    return {"embedding.weight", size};
  }
  return {is_output && !tied ? "output.weight" : stack.name + ".embedding.weight", size};
}

bool SharedParameters::uses_table(IndexRange const& part, std::string const& name) const {
  bool uses = part.end == description_.layers() && table(description_.stacks.size()).name == name;
  for (std::size_t stack = 0; stack < description_.stacks.size(); ++stack) {
    uses = uses || (description_.has_entry(stack, part) && table(stack).name == name);
  }
  return uses;
}

Parameter& SharedParameters::declared(Table const& table) const {
  if (Parameter* const present = spec_.parameters.find(table.name)) {
    return *present;
  }
  double const deviation = 1 / std::sqrt(static_cast<double>(spec_.model.d_model));
  return spec_.parameters.reserve(
      {.name = table.name,
       .shape = {table.size, spec_.model.d_model},
       .initializer = Initializer::normal(deviation),
       .shard = {0},
       .stages = sharing_stages(plan_, [&](IndexRange const& part) { return uses_table(part, table.name); })});
}

std::shared_ptr<AttentionPositions> SharedParameters::positions(LayerSpec const& stack_spec, std::size_t stack,
                                                                IndexRange const& layers) const {
  StackDescription const& described = description_.stacks[stack];
  if (!act_in_attention(stack_spec.model.positions) || find_with_positions(described, layers) == nullptr) {
    return nullptr;
  }
  std::int64_t const heads = find_with_positions(described, {0, described.count()})->keys->heads;
  return make_attention_positions({stack_spec, heads, sharing_stages(plan_, [&](IndexRange const& part) {
                                     return find_with_positions(described, description_.range_in(stack, part)) !=
                                            nullptr;
                                   })});
}

}  // namespace heddle
