#pragma once

#include <array>
#include <cstdint>
#include <heddle/core/layers/registries.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// A row of the table of attention variants in docs/kernels-and-plugins.md.
struct VariantResult {
  std::string name;
  double output_error = 0;    ///< of the layer in float32 with the kernels that `auto` takes, against float64 with
  double gradient_error = 0;  ///< `reference`: the largest |actual - expected| / (1 + |expected|)
  std::vector<std::string> layouts = {};  ///< "yes", or "no" where the layer refuses it: one for each of layout_names
  /// Forward and backward beside the first variant, for each of timed_lengths; empty: not timed.
  std::vector<double> times = {};
};

inline constexpr std::array<std::string_view, 6> layout_names{"tensor",  "sequence", "ring",
                                                              "ulysses", "pipeline", "decode"};
inline constexpr std::array<std::int64_t, 3> timed_lengths{128, 1024, 8192};

/// Computes all rows: causal self-attention of a decoder. `timed`: also measures, which takes minutes.
std::vector<VariantResult> attention_variants(Registries const& registries, Execution& execution, bool timed);

/// The table as Markdown.
std::string to_markdown(std::vector<VariantResult> const& results);

}  // namespace heddle
