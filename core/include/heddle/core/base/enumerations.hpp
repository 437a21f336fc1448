#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heddle {

/// The names of an enumeration's values in files and messages, in the order of the values.
template <class Enum>
inline constexpr int value_names = 0;

/// The value's name; "unknown" for a number that is not a value.
template <class Enum>
requires requires {
  value_names<Enum>.size();
}
constexpr std::string_view name_of(Enum value) {
  auto const index = static_cast<std::size_t>(value);
  return index < value_names<Enum>.size() ? value_names<Enum>[index] : "unknown";
}

/// The way in which a context group's ranks exchange keys and values.
enum class ContextMode : std::uint8_t { ring, ulysses };
template <>
inline constexpr std::array<std::string_view, 2> value_names<ContextMode>{"ring", "ulysses"};

/// The columns that make a pair: the sine and the cosine of one frequency, or the two numbers that a rotation turns.
enum class PairLayout : std::uint8_t {
  interleaved,  ///< 2i and 2i + 1: Vaswani et al. 2017, Su et al. 2021
  halves        ///< i and i + columns / 2: tensor2tensor, fairseq, Marian; rotations of GPT-NeoX and Llama
};
template <>
inline constexpr std::array<std::string_view, 2> value_names<PairLayout>{"interleaved", "halves"};

}  // namespace heddle
