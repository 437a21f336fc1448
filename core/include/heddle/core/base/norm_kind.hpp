#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace heddle {

/// The normalization of a row before weight and bias is known by its name, a value of model.norm_kind: any that an
/// implementation of ResidualNorm supports. These are the built-in kinds.
struct NormKind {
  static constexpr std::string_view layer = "layer";  ///< (x - mean(x)) / sqrt(var(x) + epsilon): Ba et al. 2016
  static constexpr std::string_view rms = "rms";      ///< x / sqrt(mean(x²) + epsilon): Zhang & Sennrich 2019
};

struct NormTraits {
  std::string_view name;
  bool centred = true;  ///< the row's mean is subtracted
  bool bias = true;     ///< a bias stands beside the weight
};

/// The built-in kinds. A new one is a line here; arithmetic that no other kind has is in NormRule
/// (operations/norm_rule.hpp), of which the portable kernels are made.
inline constexpr std::array norm_kinds{NormTraits{.name = NormKind::layer, .centred = true, .bias = true},
                                       NormTraits{.name = NormKind::rms, .centred = false, .bias = false}};

/// Null for a kind that is not built in.
constexpr NormTraits const* built_in_norm(std::string_view kind) {
  auto const* const found = std::ranges::find(norm_kinds, kind, &NormTraits::name);
  return found == norm_kinds.end() ? nullptr : found;
}

}  // namespace heddle
