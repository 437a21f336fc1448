#pragma once

#include <cstdint>
#include <optional>

namespace heddle {

struct Execution;

/// Waits until the device has finished the work given to `execution` or, if it is null, to every execution. Returns at
/// once where kernels are finished when their calls return.
void fence(Execution const* execution);

/// How often the host has waited for kernels, by fences and copies.
std::uint64_t waits_for_kernels();

/// Counts of the requests to a device, for tests of what a step asks of it.
struct DeviceWork {
  std::int64_t kernels = 0;
  std::int64_t copies_to_device = 0;
  std::int64_t copies_to_host = 0;
  std::int64_t fences = 0;       ///< waits of the host, those of copies not counted
  std::int64_t allocations = 0;  ///< allocations of device memory
};

/// The requests since the last reset. Nothing unless the build emulates a device (HEDDLE_EMULATE_DEVICE).
std::optional<DeviceWork> device_work();
void reset_device_work();

}  // namespace heddle
