#pragma once

#include <functional>
#include <heddle/core/model/description.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <string_view>
#include <vector>

#include "variants.hpp"

namespace heddle {

/// The numbers of one computation of a variant.
struct VariantValues {
  std::vector<double> output, gradients;
};

/// Computes a variant with these kernels in this precision.
using ComputeVariant = std::function<VariantValues(KernelSource const& kernels, DType dtype)>;

/// The errors of `compute` with the requested kernels, and the layouts that the model accepts.
VariantResult variant_result(VariantsRequest const& request, std::string_view name, ModelDescription const& model,
                             ComputeVariant const& compute);

/// Allocates every parameter and gives it the numbers from [-0.5, 0.5) of its name.
void set_variant_parameters(ParameterSet& parameters, DType dtype);

/// As many sentence pairs as there are lengths of targets, which count the start token; prefixes are a third.
Pack variant_pack(std::vector<std::int32_t> const& source_lengths, std::vector<std::int32_t> const& target_lengths);

}  // namespace heddle
