#pragma once

#include <functional>
#include <thread>

namespace heddle {

/// Starts a thread to which the system delivers no signals.
std::thread thread_without_signals(std::function<void()> action);

}  // namespace heddle
