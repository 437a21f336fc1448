#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <vector>

namespace heddle {

MPI_Datatype mpi_type(DType dtype);

std::byte* address(Tensor const& tensor, std::int64_t element);

/// Consecutive elements that one MPI call moves.
struct Piece {
  std::int64_t begin;
  int count;
};

/// [0, elements) in pieces of at most `elements_per_call`; none where there are no elements.
std::vector<Piece> pieces(std::int64_t elements, std::int64_t elements_per_call);

/// As `pieces`, but at least one: between two ranks an empty message is one too.
std::vector<Piece> message_pieces(std::int64_t elements, std::int64_t elements_per_call);

/// MPI's sum, max and min of bfloat16 numbers, which MPI does not know: each pair is summed in float32 and rounded.
class BFloat16Operations {
 public:
  BFloat16Operations();
  ~BFloat16Operations();
  BFloat16Operations(BFloat16Operations const&) = delete;
  BFloat16Operations& operator=(BFloat16Operations const&) = delete;

  MPI_Op operator[](ReduceOp op) const { return operations_[static_cast<std::size_t>(op)]; }

 private:
  std::array<MPI_Op, 3> operations_{MPI_OP_NULL, MPI_OP_NULL, MPI_OP_NULL};
};

}  // namespace heddle
