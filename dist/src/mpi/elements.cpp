#include "elements.hpp"

#include <algorithm>

namespace heddle {

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

std::vector<Piece> pieces(std::int64_t elements, std::int64_t elements_per_call) {
  std::vector<Piece> result;
  for (std::int64_t begin = 0; begin < elements; begin += elements_per_call) {
    result.push_back({begin, static_cast<int>(std::min(elements_per_call, elements - begin))});
  }
  return result;
}

std::vector<Piece> message_pieces(std::int64_t elements, std::int64_t elements_per_call) {
  return elements == 0 ? std::vector<Piece>{{0, 0}} : pieces(elements, elements_per_call);
}

}  // namespace heddle
