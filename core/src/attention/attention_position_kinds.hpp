#pragma once

#include <array>
#include <heddle/core/attention/attention_positions.hpp>

namespace heddle {

std::shared_ptr<AttentionPositions> make_rotary_positions(AttentionPositionsSpec const& spec);
std::shared_ptr<AttentionPositions> make_relative_positions(AttentionPositionsSpec const& spec);
std::shared_ptr<AttentionPositions> make_bucket_positions(AttentionPositionsSpec const& spec);
std::shared_ptr<AttentionPositions> make_alibi_positions(AttentionPositionsSpec const& spec);

/// Throws ConfigError, naming the layer and the key, unless a layer's heads are as many as its stack's, to which the
/// stack's positions give a bias each.
void require_heads_of_stack(LayerSpec const& layer, std::int64_t heads, std::int64_t of_stack);

struct AttentionPositionKind {
  Positions name;
  std::shared_ptr<AttentionPositions> (*make)(AttentionPositionsSpec const& spec);
};

/// The kinds of positions that act in attention. A new one is a file with its class, a line here and a name in
/// config.hpp.
inline constexpr std::array attention_position_kinds{
    AttentionPositionKind{Positions::rotary, make_rotary_positions},
    AttentionPositionKind{Positions::relative, make_relative_positions},
    AttentionPositionKind{Positions::relative_buckets, make_bucket_positions},
    AttentionPositionKind{Positions::alibi, make_alibi_positions}};

}  // namespace heddle
