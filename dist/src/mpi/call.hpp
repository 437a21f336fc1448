#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <heddle/core/tensor/tensor.hpp>

namespace heddle {

/// Throws Error with the collective and MPI's own message if `code` is not MPI_SUCCESS. Checks the result of every MPI
/// call.
void check_mpi(int code, char const* collective);

/// True between MPI's initialisation and its finalisation, so that handles can be freed.
bool mpi_is_running() noexcept;

MPI_Datatype mpi_type(DType dtype);

std::byte* address(Tensor const& tensor, std::int64_t element);

/// Calls `move(begin, count)` for [0, elements) in pieces of at most `elements_per_call`, which one MPI call can move.
template <class Move>
void for_each_piece(std::int64_t elements, std::int64_t elements_per_call, Move const& move) {
  for (std::int64_t begin = 0; begin < elements; begin += elements_per_call) {
    move(begin, static_cast<int>(std::min(elements_per_call, elements - begin)));
  }
}

}  // namespace heddle
