// In place of dist/src/mpi/combining.cpp: the sum of a reduction takes the time of its memory traffic.
#include "clock.hpp"
#include "combining.hpp"

namespace heddle {

void combine_parts(Combination const& how, std::vector<void const*> const& parts, void* result, std::int64_t count) {
  static_cast<void>(result);
  auto const elements = static_cast<double>(count) * static_cast<double>(parts.size() + 1);
  clock::charge({0, elements * static_cast<double>(size_of(how.dtype))});
}

}  // namespace heddle
