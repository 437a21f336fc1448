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

/// What is selected from now on is timed and counted, call by call, in `breakdown` and `recording`, which must outlive
/// it. A product with `vocabulary` as an extent counts as one of the logits.
void time_kernels(KernelRegistries& registries, std::int64_t vocabulary, Breakdown& breakdown,
                  GemmRecording& recording);

}  // namespace heddle
