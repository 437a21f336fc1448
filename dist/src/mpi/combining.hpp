#pragma once

#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <vector>

namespace heddle {

/// The arithmetic of a reduction.
struct Combination {
  DType dtype;
  ReduceOp op;
};

/// result = the parts combined in their order, element by element; of `count` elements each. In float32 if the dtype is
/// bfloat16. `result` may be one of the parts.
void combine_parts(Combination const& how, std::vector<void const*> const& parts, void* result, std::int64_t count);

}  // namespace heddle
