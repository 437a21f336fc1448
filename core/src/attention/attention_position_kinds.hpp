#pragma once

#include <array>
#include <heddle/core/attention/attention_positions.hpp>

namespace heddle {

std::shared_ptr<AttentionPositions> make_rotary_positions(AttentionPositionsSpec const& spec);
std::shared_ptr<AttentionPositions> make_relative_positions(AttentionPositionsSpec const& spec);

struct AttentionPositionKind {
  Positions name;
  std::shared_ptr<AttentionPositions> (*make)(AttentionPositionsSpec const& spec);
};

/// The kinds of positions that act in attention. A new one is a file with its class, a line here and a name in
/// config.hpp.
inline constexpr std::array attention_position_kinds{
    AttentionPositionKind{Positions::rotary, make_rotary_positions},
    AttentionPositionKind{Positions::relative, make_relative_positions}};

}  // namespace heddle
