#include "stop_signal.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <string_view>

namespace heddle {

namespace {

// These objects are static, because a signal handler can use nothing else.
volatile std::sig_atomic_t stop_requested = 0;  ///< the signal

/// The text of the notice: the handler, on any thread, reads one of the two while the other one is written.
std::array<std::string, 2> notices;
std::atomic<std::string const*> notice = nullptr;
static_assert(std::atomic<std::string const*>::is_always_lock_free);

std::string_view signal_name(int signal) {
  return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "SIGUSR1";
}

/// Prints the notice in one piece and without memory allocation, as a handler must.
void print_notice(int signal, std::string const& text) {
  std::string_view const name = signal_name(signal);
  auto const part = [](std::string_view piece) { return iovec{const_cast<char*>(piece.data()), piece.size()}; };
  std::array const parts{part("\nheddle: "), part(name), part(" "), part(text), part("\n")};
  static_cast<void>(!::writev(STDERR_FILENO, parts.data(), static_cast<int>(parts.size())));
}

void request_stop(int signal) {
  int const before = errno;
  stop_requested = signal;
  if (signal != SIGUSR1) {
    std::signal(signal, SIG_DFL);
  }
  if (std::string const* const text = notice.load(); text != nullptr) {
    print_notice(signal, *text);
  }
  errno = before;
}

/// Gives the handlers a stack of their own. oneDNN 2.6.3's products for AVX2 keep data below the stack pointer, farther
/// than the 128 bytes that a handler leaves alone: on the thread's stack it would overwrite them.
void set_signal_stack() {
  alignas(64) static std::array<char, 65536> memory;
  stack_t stack{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  if (sigaltstack(&stack, nullptr) != 0) {
    throw Error("the stack of signal handlers cannot be set");
  }
}

void handle(int signal) {
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  if (sigaction(signal, &action, nullptr) != 0) {
    throw Error(std::string(signal_name(signal)) + "'s handler cannot be set");
  }
}

}  // namespace

StopSignal::StopSignal() {
  stop_requested = 0;
  set_signal_stack();
  for (int const signal : {SIGUSR1, SIGTERM, SIGINT}) {
    handle(signal);
  }
}

StopSignal::~StopSignal() {
  notice.store(nullptr);
  // Ignored from here on: a late signal must not kill a process that is about to report its own end.
  std::signal(SIGUSR1, SIG_IGN);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
}

bool StopSignal::received() const {
  return stop_requested != 0;
}

std::string StopSignal::name() const {
  return std::string(signal_name(stop_requested));
}

void StopSignal::set_notice(std::string const& text) const {
  std::string& unused = notice.load() == notices.data() ? notices.back() : notices.front();
  unused = text;
  notice.store(text.empty() ? nullptr : &unused);
}

}  // namespace heddle
