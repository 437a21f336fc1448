#pragma once

#include <heddle/core/tensor/execution.hpp>

#include "avx512_blocks.hpp"

/// How threads share a product of the avx512 GEMM.
namespace heddle::avx512 {

/// The parts into which c is cut. A thread computes each as a product of its own, with its own room for packed blocks.
/// Each element's products are summed in the same order in any part that has it: results do not depend on the parts.
struct Parts {
  std::int64_t of_rows = 1, of_columns = 1;

  std::int64_t count() const { return of_rows * of_columns; }
};

/// At most `threads` parts, and only one if the product is too small to share.
Parts parts_of(GemmProblem const& problem, std::int64_t threads);

/// A product whose blocks are packed into `scratch`; `packed` is all of b, packed, or null.
Product product_in(Arena& scratch, GemmCall const& call, GemmProblem const& problem, Tiles const& tiles,
                   std::uint32_t* packed);

/// Computes a product in parts, one thread each.
void multiply_parts(Execution& execution, GemmCall const& call, Tiles const& tiles, Parts const& parts,
                    std::uint32_t* packed);

/// Packs all of op(b) with all threads.
void pack_weight(Execution& execution, GemmCall const& call, GemmProblem const& problem, Tiles const& tiles,
                 std::uint32_t* packed);

}  // namespace heddle::avx512
