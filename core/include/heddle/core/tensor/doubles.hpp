#pragma once

#include <heddle/core/tensor/tensor.hpp>
#include <vector>

namespace heddle {

// A tensor's elements as float64 on the host, of any dtype: for checks, tests and constants, not for steps.

/// The elements, row major; rows may be strided.
std::vector<double> to_doubles(Tensor const& tensor);
/// Gives a tensor's elements these values, rounded to its dtype; rows may be strided.
void copy_from_doubles(Tensor const& tensor, std::vector<double> const& values);
/// A new contiguous tensor with these values, rounded to the dtype.
Tensor from_doubles(std::vector<double> const& values, DType dtype, Shape const& shape);

}  // namespace heddle
