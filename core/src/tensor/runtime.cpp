#include <heddle/core/tensor/runtime.hpp>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <heddle/core/tensor/execution.hpp>

#include "memory/system_memory.hpp"

namespace heddle {

struct Runtime::Guard {
  Guard() {
#if defined(__SSE__)
    // Sets flush-to-zero and denormals-are-zero: vanishing gradients must not make a step a hundred times slower.
    // Threads inherit this from the thread that starts them, so it comes before Kokkos starts its own.
    _mm_setcsr(_mm_getcsr() | 0x8040U);
#endif
#if KOKKOS_VERSION >= 30700
    Kokkos::initialize(Kokkos::InitializationSettings());
#else
    Kokkos::initialize(Kokkos::InitArguments());
#endif
    start_kernel_memory();
  }
  ~Guard() {
    end_kernel_memory();
    Kokkos::finalize();
  }
};

Runtime::Runtime()
    : guard_(std::make_unique<Guard>()),
      scratch_(std::make_unique<Arena>()),
      execution_(std::make_unique<Execution>(Execution{Kokkos::DefaultExecutionSpace(), *scratch_})) {}

Runtime::~Runtime() = default;

std::string Runtime::execution_space() {
  return Kokkos::DefaultExecutionSpace::name();
}

}  // namespace heddle
