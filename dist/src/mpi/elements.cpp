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

Piece Pieces::Iterator::operator*() const {
  std::int64_t const begin = index_ * pieces_.elements_per_call_;
  return {begin, static_cast<int>(std::min(pieces_.elements_per_call_, pieces_.elements_ - begin))};
}

Pieces pieces(std::int64_t elements, std::int64_t elements_per_call) {
  return {elements, elements_per_call, (elements + elements_per_call - 1) / elements_per_call};
}

Pieces message_pieces(std::int64_t elements, std::int64_t elements_per_call) {
  return elements == 0 ? Pieces{0, elements_per_call, 1} : pieces(elements, elements_per_call);
}

}  // namespace heddle
