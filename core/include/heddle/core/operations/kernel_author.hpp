#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <heddle/core/base/exponential.hpp>
#include <heddle/core/operations/dropout_rule.hpp>
#include <heddle/core/operations/elements.hpp>
#include <heddle/core/operations/norm_rule.hpp>
#include <heddle/core/tensor/execution.hpp>

/// The header for authors of kernels, in Heddle and in plug-ins: elements and rows of tensors (elements.hpp), the
/// dropout rule (dropout_rule.hpp), kinds of norm (norm_rule.hpp), exponentials (exponential.hpp), and the loop over
/// work items.
namespace heddle::kernels {

/// The name of a parallel loop: a string that Kokkos would allocate, and that only a profiling tool reads.
inline char const* loop_name(char const* name) {
  return Kokkos::Tools::profileLibraryLoaded() ? name : "";
}

/// Whether kernels run in threads of the host.
#ifdef KOKKOS_ENABLE_SERIAL
using OneThread = Kokkos::Serial;
#else
struct OneThread {};
#endif
inline constexpr bool host_threads = std::is_same_v<Kokkos::DefaultExecutionSpace, Kokkos::DefaultHostExecutionSpace> &&
                                     !std::is_same_v<Kokkos::DefaultExecutionSpace, OneThread>;

/// Calls `body(index)` for 0 ≤ index < count, in parallel. Threads of the host copy `body` for each call: let it
/// capture pointers and numbers, not tensors, whose copies are counted.
template <class Body>
void for_each(Execution& execution, char const* name, std::int64_t count, Body const& body) {
  using Policy = Kokkos::RangePolicy<Kokkos::DefaultExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  if (count <= 0) {
    return;
  }
  Policy const policy(execution.space, 0, count);
  if constexpr (host_threads) {
    // Threads share Kokkos' copy of the body. With one of its own, whose captured values no store can change, a thread
    // keeps these in registers, and the compiler vectorises loops that use them.
    auto const with_own_copy = [body](std::int64_t index) {
      Body const own = body;
      own(index);
    };
    Kokkos::parallel_for(loop_name(name), policy, with_own_copy);
  } else {
    Kokkos::parallel_for(loop_name(name), policy, body);
  }
}

}  // namespace heddle::kernels
