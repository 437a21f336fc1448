#pragma once

#include <array>
#include <string_view>

/// The only list of Heddle's operations, in the order in which they are shown. `EACH(name)` is expanded for each. An
/// operation `name` has core/operations/name.hpp (its interface, problem, cost), a key of `[kernels]` in the
/// configuration, and in kernels/src/name `add_name_kernels(KernelRegistries&)`, in reference.cpp, and where there is a
/// kokkos.cpp `add_portable_name_kernels` in it. Plug-ins add operations that are not in this list.
#define HEDDLE_OPERATIONS(EACH) \
  EACH(gemm)                    \
  EACH(attention)               \
  EACH(residual_norm)           \
  EACH(activation)              \
  EACH(softmax_cross_entropy)   \
  EACH(embedding)               \
  EACH(token_ranking)           \
  EACH(adam)                    \
  EACH(tensor_ops)

namespace heddle {

#define HEDDLE_OPERATION_NAME(name) #name,
inline constexpr auto operation_names = std::to_array<std::string_view>({HEDDLE_OPERATIONS(HEDDLE_OPERATION_NAME)});
#undef HEDDLE_OPERATION_NAME

}  // namespace heddle
