#pragma once

#include <cstdint>

#include "tiles.hpp"

/// How the `amx` GEMM divides a product into blocks that fit in the caches.
namespace heddle::amx {

struct Extents {
  std::int64_t m, n, k;
};
/// `packed`: all of op(b) is packed already. `split`: both factors are.
Blocking blocking_of(Extents const& extents, bool packed, bool split);

/// The room that a product needs.
std::int64_t left_elements(Blocking const& by);
std::int64_t right_elements(Blocking const& by);
std::int64_t partial_elements(Blocking const& by, std::int64_t all_k);

/// c = or += op(a) op(b) + bias. The order of an element's sums depends on k only.
void multiply(Product const& product);

}  // namespace heddle::amx
