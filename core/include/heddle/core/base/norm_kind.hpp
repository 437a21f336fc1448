#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heddle {

/// The normalization of a row before weight and bias.
enum class NormKind : std::uint8_t {
  layer,  ///< (x - mean(x)) / sqrt(var(x) + epsilon): Ba et al. 2016
  rms     ///< x / sqrt(mean(x²) + epsilon): Zhang & Sennrich 2019
};

/// The properties of a kind that the configuration, layers and messages depend on.
struct NormTraits {
  std::string_view name;  ///< a value of model.norm_kind
  bool centred = true;    ///< the row's mean is subtracted
  bool bias = true;       ///< a bias stands beside the weight
};

/// The kinds in the order of NormKind. A new kind is a line here; arithmetic that no other kind has is in NormRule
/// (operations/norm_rule.hpp), of which the portable kernels are made.
inline constexpr std::array norm_kinds{NormTraits{.name = "layer", .centred = true, .bias = true},
                                       NormTraits{.name = "rms", .centred = false, .bias = false}};

constexpr NormTraits const& traits_of(NormKind kind) {
  return norm_kinds[static_cast<std::size_t>(kind)];
}

constexpr std::string_view name_of(NormKind kind) {
  return traits_of(kind).name;
}

}  // namespace heddle
