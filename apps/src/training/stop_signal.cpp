#include "stop_signal.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <string_view>

namespace heddle {

namespace {

// The handler's objects are static, because a signal handler can use nothing else.
volatile std::sig_atomic_t stop_requested = 0;  ///< the signal

struct Notice {
  std::atomic<bool> armed = false;
  std::atomic<std::int64_t> computing = 0;
  std::atomic<std::int64_t> saved = -1;
  std::atomic<std::int64_t> in_memory = -1;
  std::array<char, 1024> checkpoints{};
};
Notice notice;
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

std::string_view signal_name(int signal) {
  return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "SIGUSR1";
}

/// A line that is built without memory allocation, as a handler must.
class Line {
 public:
  Line& add(std::string_view text) {
    std::size_t const count = std::min(text.size(), text_.size() - size_);
    std::copy_n(text.begin(), count, text_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += count;
    return *this;
  }
  /// As readable_count, which allocates memory.
  Line& add(std::int64_t number) {
    std::array<char, 26> digits{};
    std::size_t begin = digits.size();
    for (int written = 0; written == 0 || number > 0; ++written) {
      if (written > 0 && written % 3 == 0) {
        digits[--begin] = ',';
      }
      digits[--begin] = static_cast<char>('0' + number % 10);
      number /= 10;
    }
    return add({digits.data() + begin, digits.size() - begin});
  }
  void write_to(int descriptor) const { static_cast<void>(!::write(descriptor, text_.data(), size_)); }

 private:
  std::array<char, 2048> text_{};
  std::size_t size_ = 0;
};

void print_notice(int signal) {
  Line line;
  line.add("\nheddle: ").add(signal_name(signal)).add(" in step ").add(notice.computing.load());
  line.add(": a checkpoint is written after this step if there is time; ");
  std::int64_t const saved = notice.saved.load();
  std::int64_t const in_memory = notice.in_memory.load();
  if (saved >= 0 || in_memory >= 0) {
    bool const memory = in_memory > saved;
    line.add("the newest one until then is of step ").add(memory ? in_memory : saved).add(" in ");
    line.add(memory ? "memory" : notice.checkpoints.data());
    line.add("; the next start goes on from there\n");
  } else {
    line.add("until then there is none, and the next start begins anew\n");
  }
  line.write_to(STDERR_FILENO);
}

void request_stop(int signal) {
  int const before = errno;
  stop_requested = signal;
  if (signal != SIGUSR1) {
    std::signal(signal, SIG_DFL);
  }
  if (notice.armed.load()) {
    print_notice(signal);
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

StopNotice::StopNotice(std::filesystem::path const& checkpoints) {
  std::string const text = checkpoints.string();
  notice.checkpoints = {};
  std::copy_n(text.begin(), std::min(text.size(), notice.checkpoints.size() - 1), notice.checkpoints.begin());
}

StopNotice::~StopNotice() {
  notice.armed.store(false);
}

void StopNotice::set_steps(Steps const& steps) {
  notice.computing.store(steps.computing);
  notice.saved.store(steps.saved);
  notice.in_memory.store(steps.in_memory);
  notice.armed.store(true);
}

}  // namespace heddle
