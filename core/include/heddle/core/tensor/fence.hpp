#pragma once

namespace heddle {

struct Execution;

/// Waits until the device has finished the work given to `execution` or, if it is null, to every execution. Returns at
/// once where kernels are finished when their calls return.
void fence(Execution const* execution);

}  // namespace heddle
