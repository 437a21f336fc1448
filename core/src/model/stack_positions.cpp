#include "stack_positions.hpp"

namespace heddle {

namespace {

bool take_positions(StackDescription const& stack, IndexRange const& layers) {
  for (std::int64_t index = layers.begin; index < layers.end; ++index) {
    if (stack.layers[static_cast<std::size_t>(index)].takes_positions()) {
      return true;
    }
  }
  return false;
}

/// The stages with layers of a stack that take positions; empty where there is one alone.
std::vector<int> stages_with_positions(ModelDescription const& description, std::size_t stack,
                                       PipelinePlan const& plan) {
  std::vector<int> stages;
  for (int stage = 0; stage < plan.stages(); ++stage) {
    bool takes = false;
    for (IndexRange const& part : plan.parts[static_cast<std::size_t>(stage)]) {
      takes = takes || take_positions(description.stacks[stack], description.range_in(stack, part));
    }
    if (takes) {
      stages.push_back(stage);
    }
  }
  return stages.size() > 1 ? stages : std::vector<int>();
}

}  // namespace

std::shared_ptr<AttentionPositions> stack_positions(LayerSpec const& spec, ModelDescription const& description,
                                                    std::size_t stack, PipelinePlan const& plan,
                                                    IndexRange const& layers) {
  StackDescription const& described = description.stacks[stack];
  if (!act_in_attention(spec.model.positions) || !take_positions(described, layers)) {
    return nullptr;
  }
  std::int64_t heads = 0;
  for (LayerDescription const& layer : described.layers) {
    if (layer.takes_positions()) {
      heads = layer.keys->heads;
      break;
    }
  }
  return make_attention_positions({spec, heads, stages_with_positions(description, stack, plan)});
}

}  // namespace heddle
