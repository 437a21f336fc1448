#pragma once

#include <heddle/core/kernel_registry.hpp>
#include <memory>
#include <vector>

#include "breakdown.hpp"

namespace heddle {

/// The matrix products of a step, kept to be done again by themselves.
struct GemmRecording {
  struct Product {
    std::shared_ptr<Gemm> kernel;
    GemmCall call;
  };

  bool on = false;
  std::vector<Product> products;
};

/// The same implementations under the same names and speeds, each call timed and counted. `breakdown` and `recording`
/// must outlive them. A product with `vocabulary` as an extent counts as one of the logits.
KernelRegistries timed(KernelRegistries const& registries, std::int64_t vocabulary, Breakdown& breakdown,
                       GemmRecording& recording);

}  // namespace heddle
