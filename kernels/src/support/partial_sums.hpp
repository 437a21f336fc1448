#pragma once

#include <heddle/core/operations/row_lanes.hpp>

namespace heddle::kernels {

/// The rows that one partial sum of a column has: enough of them for many threads, few enough partial sums to add.
constexpr std::int64_t rows_per_partial = 32;

/// into[column] += Σ over blocks of partial[block * stride + column], in a fixed order; `into` is contiguous.
template <class Real>
void add_partial_sums(Execution& execution, Real const* partial, std::int64_t blocks, std::int64_t stride,
                      Tensor const& into) {
  Real* const total = into.data<Real>();
  for_each_row(
      execution, "partial sums", into.size(), blocks, KOKKOS_LAMBDA(std::int64_t column, RowLanes const& lanes) {
        auto const sum = lanes.template reduce<Sum<Real>>(blocks, [&](std::int64_t block, Sum<Real>& lane_sum) {
          lane_sum.value += partial[block * stride + column];
        });
        lanes.once([&] { total[column] += sum.value; });
      });
}

}  // namespace heddle::kernels
