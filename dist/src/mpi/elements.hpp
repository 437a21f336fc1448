#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
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

/// Cuts [0, elements) into pieces of at most `elements_per_call`; none if there are no elements.
std::vector<Piece> pieces(std::int64_t elements, std::int64_t elements_per_call);

/// As `pieces`, but at least one: an empty message between two ranks is also a message.
std::vector<Piece> message_pieces(std::int64_t elements, std::int64_t elements_per_call);

}  // namespace heddle
