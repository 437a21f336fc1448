#pragma once

#include <cstdint>

namespace heddle {

struct Execution;

/// Waits until the device has finished the work given to `execution` or, if it is null, to every execution. Returns at
/// once where kernels are finished when their calls return.
void fence(Execution const* execution);

/// How often the host has waited for kernels, by fences and copies.
std::uint64_t waits_for_kernels();

}  // namespace heddle
