#include "stop_signal.hpp"

#include <csignal>
#include <heddle/core/base/error.hpp>

namespace heddle {

namespace {

// The handler's object is static, because a signal handler can use nothing else.
volatile std::sig_atomic_t stop_requested = 0;

void request_stop(int) {
  stop_requested = 1;
}

void handle(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  if (sigaction(SIGUSR1, &action, nullptr) != 0) {
    throw Error("SIGUSR1's handler cannot be set");
  }
}

}  // namespace

StopSignal::StopSignal() {
  stop_requested = 0;
  handle(request_stop);
}

StopSignal::~StopSignal() {
  // Ignored from here on: a late signal must not kill a process that is about to report its own end.
  std::signal(SIGUSR1, SIG_IGN);
}

bool StopSignal::received() const {
  return stop_requested != 0;
}

}  // namespace heddle
