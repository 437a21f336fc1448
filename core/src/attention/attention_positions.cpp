#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/attention/attention_positions.hpp>
#include <heddle/core/base/error.hpp>

#include "attention_position_kinds.hpp"

namespace heddle {

namespace {

AttentionPositionKind const* find(Positions name) {
  auto const* const end = attention_position_kinds.end();
  auto const* const found = std::find_if(attention_position_kinds.begin(), end,
                                         [&](AttentionPositionKind const& kind) { return kind.name == name; });
  return found == end ? nullptr : found;
}

}  // namespace

void AttentionPositions::rotate(LayerContext& context, Tensor const& matrix, std::int64_t head_dim,
                                Tensor const& position) const {
  static_cast<void>(context);
  static_cast<void>(matrix);
  static_cast<void>(head_dim);
  static_cast<void>(position);
}

void AttentionPositions::rotate_back(LayerContext& context, Tensor const& gradient, std::int64_t head_dim,
                                     Tensor const& position) const {
  static_cast<void>(context);
  static_cast<void>(gradient);
  static_cast<void>(head_dim);
  static_cast<void>(position);
}

Tensor AttentionPositions::bias(LayerContext& context) const {
  static_cast<void>(context);
  return {};
}

Tensor AttentionPositions::bias_gradient(LayerContext& context) const {
  static_cast<void>(context);
  return {};
}

void AttentionPositions::bias_gradient_done(LayerContext& context, Tensor const& gradient) const {
  static_cast<void>(context);
  static_cast<void>(gradient);
}

void require_heads_of_stack(LayerSpec const& layer, std::int64_t heads, std::int64_t of_stack) {
  if (heads != of_stack) {
    throw ConfigError(
        fmt::format("{} = {}: model.positions = \"{}\" is a bias for each head that all layers of a stack share, so {} "
                    "must have as "
                    "many heads as the stack's first layer with positions: {}",
                    layer.model.place("heads"), heads, name_of(layer.model.positions), layer.name, of_stack));
  }
}

bool act_in_attention(Positions kind) {
  return find(kind) != nullptr;
}

std::shared_ptr<AttentionPositions> make_attention_positions(AttentionPositionsSpec const& spec) {
  AttentionPositionKind const* const kind = find(spec.stack.model.positions);
  return kind == nullptr ? nullptr : kind->make(spec);
}

}  // namespace heddle
