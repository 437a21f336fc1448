#include "call.hpp"

#include <array>
#include <heddle/core/base/error.hpp>
#include <string_view>

namespace heddle {

void check_mpi(int code, char const* collective) {
  if (code == MPI_SUCCESS) {
    return;
  }
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) {
    length = 0;
  }
  throw Error("{}: MPI error {}: {}", collective, code,
              std::string_view(text.data(), static_cast<std::size_t>(length)));
}

bool mpi_is_running() noexcept {
  int started = 0;
  int ended = 0;
  return MPI_Initialized(&started) == MPI_SUCCESS && MPI_Finalized(&ended) == MPI_SUCCESS && started != 0 && ended == 0;
}

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return MPI_FLOAT;
    case DType::bfloat16:
      return MPI_UINT16_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::float64:
      return MPI_DOUBLE;
  }
  return MPI_DATATYPE_NULL;
}

std::byte* address(Tensor const& tensor, std::int64_t element) {
  return static_cast<std::byte*>(tensor.raw()) + element * static_cast<std::int64_t>(size_of(tensor.dtype()));
}

}  // namespace heddle
