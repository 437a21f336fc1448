#pragma once

#include <array>
#include <cstdint>
#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

struct Execution;

/// A row of one of the tables of variants in docs/reference/kernels.md.
struct VariantResult {
  std::string name;
  double output_error = 0;    ///< in float32 with the chosen kernels, against float64 with `reference`: the largest
  double gradient_error = 0;  ///< |actual - expected| / (1 + |expected|)
  std::string refusal = {};   ///< not empty: the chosen kernels do not support the variant, so there are no errors
  std::vector<std::string> layouts = {};  ///< "yes", or "no" where a layer refuses it: one for each of layout_names
  /// Forward and backward beside the first variant, for each of timed_lengths; 0: refused. Empty: not timed.
  std::vector<double> times = {};
};

inline constexpr std::array<std::string_view, 6> layout_names{"tensor",  "sequence", "ring",
                                                              "ulysses", "pipeline", "decode"};
inline constexpr std::array<std::int64_t, 3> timed_lengths{128, 1024, 8192};

/// The kernels that variants are computed with.
struct VariantsRequest {
  Registries const& registries;
  KernelChoices const& choices;  ///< for float32; the float64 beside it takes `reference`
  Execution& execution;
};

/// Causal self-attention of a decoder, as a layer. `timed`: also measures, which takes minutes.
std::vector<VariantResult> decoder_attention_variants(VariantsRequest const& request, bool timed);

/// Self-attention of an encoder and cross-attention, as layers.
std::vector<VariantResult> other_attention_variants(VariantsRequest const& request);

/// Kinds of models, of positions, norms, feed-forward layers, outputs and recomputation, in whole models: the output
/// is the logits, the gradients are those of all parameters.
std::vector<VariantResult> model_variants(VariantsRequest const& request);

/// A table as Markdown: one that is empty has no times. Refusals are notes below it.
std::string to_markdown(std::vector<VariantResult> const& results);

}  // namespace heddle
