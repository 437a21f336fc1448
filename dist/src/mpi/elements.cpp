#include "elements.hpp"

#include <algorithm>

#include "call.hpp"

namespace heddle {

namespace {

float sum(float left, float right) {
  return left + right;
}
float larger(float left, float right) {
  return std::max(left, right);
}
float smaller(float left, float right) {
  return std::min(left, right);
}

template <float (*combine)(float, float)>
void combine_bfloat16(void* input, void* in_out, int* count, MPI_Datatype* /*type*/) {
  auto const* const from = static_cast<BFloat16 const*>(input);
  auto* const into = static_cast<BFloat16*>(in_out);
  for (int index = 0; index < *count; ++index) {
    into[index] = BFloat16(combine(static_cast<float>(from[index]), static_cast<float>(into[index])));
  }
}

}  // namespace

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

BFloat16Operations::BFloat16Operations() {
  constexpr std::array<MPI_User_function*, 3> functions{combine_bfloat16<sum>, combine_bfloat16<larger>,
                                                        combine_bfloat16<smaller>};
  for (std::size_t index = 0; index < functions.size(); ++index) {
    check_mpi(MPI_Op_create(functions[index], 1, &operations_[index]), "start");
  }
}

BFloat16Operations::~BFloat16Operations() {
  if (mpi_is_running()) {
    for (MPI_Op& operation : operations_) {
      MPI_Op_free(&operation);
    }
  }
}

}  // namespace heddle
