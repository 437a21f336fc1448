// In place of dist/src/mpi/combining.cpp: the sum of a reduction takes the time of its memory traffic.
#include "clock.hpp"
#include "rank_order_reduction.hpp"

namespace heddle {

void combine_parts(DType dtype, ReduceOp /*op*/, std::vector<void const*> const& parts, void* /*result*/,
                   std::int64_t count) {
  auto const elements = static_cast<double>(count) * static_cast<double>(parts.size() + 1);
  clock::charge({0, elements * static_cast<double>(size_of(dtype))});
}

}  // namespace heddle
