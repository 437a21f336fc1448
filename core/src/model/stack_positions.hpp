#pragma once

#include <heddle/core/attention/attention_positions.hpp>
#include <heddle/core/model/description.hpp>
#include <heddle/core/model/pipeline_plan.hpp>

namespace heddle {

/// Makes what the layers `layers` of a stack (counted from the stack's first) share with the stack's other layers,
/// which may be on other stages of the plan. Null where they share nothing. `spec` is the stack's.
std::shared_ptr<AttentionPositions> stack_positions(LayerSpec const& spec, ModelDescription const& description,
                                                    std::size_t stack, PipelinePlan const& plan,
                                                    IndexRange const& layers);

}  // namespace heddle
