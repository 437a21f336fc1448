#pragma once

#include <heddle/core/parallel/communicator.hpp>

namespace heddle {

/// Waits for a transfer, but sleeps between calls of `progress`: for waits that may be long and whose end is not
/// urgent, while other processes need the core.
void wait_with_backoff(Transfer& transfer);

/// Lets other threads and processes use the core, between two calls of `progress` where the wait's end is urgent.
void yield_core();

}  // namespace heddle
