#include "crash_note.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>

namespace heddle {

namespace {

constexpr std::array fatal_signals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

// A handler can only use objects of static storage: the text of the CrashNote that lives, and the actions that it
// replaced.
std::atomic<char const*> current_text = nullptr;
std::array<struct sigaction, fatal_signals.size()> previous_actions;
/// The handler's own stack: endless recursion leaves none.
std::array<std::byte, 16384> handler_stack;

/// Calls only functions that a signal handler may call.
void write_note(int signal) {
  if (char const* const text = current_text.load()) {
    [[maybe_unused]] auto const written = ::write(STDERR_FILENO, text, std::strlen(text));
  }
  for (std::size_t i = 0; i < fatal_signals.size(); ++i) {
    ::sigaction(fatal_signals[i], &previous_actions[i], nullptr);
  }
  ::raise(signal);  // delivered, to the previous action, when this handler returns
}

}  // namespace

CrashNote::CrashNote() {
  struct sigaction action {};
  action.sa_handler = write_note;
  action.sa_flags = SA_ONSTACK;
  stack_t const own{.ss_sp = handler_stack.data(), .ss_flags = 0, .ss_size = handler_stack.size()};
  ::sigaltstack(&own, &previous_stack_);
  ::sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < fatal_signals.size(); ++i) {
    ::sigaction(fatal_signals[i], &action, &previous_actions[i]);
  }
}

CrashNote::~CrashNote() {
  current_text = nullptr;
  for (std::size_t i = 0; i < fatal_signals.size(); ++i) {
    ::sigaction(fatal_signals[i], &previous_actions[i], nullptr);
  }
  ::sigaltstack(&previous_stack_, nullptr);
}

void CrashNote::set(std::string const& text) {
  current_text = nullptr;
  text_ = fmt::format("\nheddle: {}\n", text);
  current_text = text_.c_str();
}

}  // namespace heddle
