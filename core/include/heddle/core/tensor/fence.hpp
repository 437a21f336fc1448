#pragma once

namespace heddle {

struct Execution;

/// Waits until the device is done with what `execution` was given or, where it is null, with what every execution was
/// given. Returns at once where kernels are done when their calls return.
void fence(Execution const* execution);

}  // namespace heddle
