#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heddle {

/// The columns that make a pair: the sine and the cosine of one frequency, or the two numbers that a rotation turns.
enum class PairLayout : std::uint8_t {
  interleaved,  ///< 2i and 2i + 1: Vaswani et al. 2017, Su et al. 2021
  halves        ///< i and i + columns / 2: tensor2tensor, fairseq, Marian; rotations of GPT-NeoX and Llama
};
/// Values of model.position_layout, in the order of PairLayout.
inline constexpr std::array<std::string_view, 2> pair_layout_names{"interleaved", "halves"};

constexpr std::string_view name_of(PairLayout layout) {
  return pair_layout_names[static_cast<std::size_t>(layout)];
}

}  // namespace heddle
