#include "child_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <thread>

namespace heddle {

namespace {

sigset_t supervised_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int const signal : {SIGCHLD, SIGUSR1, SIGTERM, SIGINT}) {
    sigaddset(&signals, signal);
  }
  if (!is_ignored(SIGHUP)) {
    sigaddset(&signals, SIGHUP);
  }
  return signals;
}

/// Handlers of this process write to memory that a child shares until it executes its command.
void drop_handlers() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) {
      action = {};
      action.sa_handler = SIG_DFL;
      sigaction(signal, &action, nullptr);
    }
  }
}

/// Executes the command in the child process, in which all signals are blocked until then, or writes errno to
/// `failure`. `blocked`: those that the command begins with.
[[noreturn]] void execute(std::vector<char*> const& words, int failure, ChildProcess::Output output,
                          sigset_t const& blocked) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  drop_handlers();
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
  int const null = ::open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  if (output == ChildProcess::Output::discarded) {
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    constexpr unsigned first = 3;
    close_range(first, ~0U, CLOSE_RANGE_CLOEXEC);  // locks of files would outlive this process
  }
  execvp(words.front(), words.data());
  int const problem = errno;
  static_cast<void>(!::write(failure, &problem, sizeof problem));
  _exit(127);
}

/// The process that executes the command. It shares the memory of this one until then, and this one waits: a copy would
/// take long where memory is large, and some networks cannot be used after one.
pid_t start(std::vector<char*> const& words, int failure, ChildProcess::Output output) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  sigset_t const signals = supervised_signals();
  sigset_t blocked = before;
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&signals, signal) == 1) {
      sigdelset(&blocked, signal);
    }
  }
  pid_t const process = ::vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
  if (process == 0) {
    execute(words, failure, output, blocked);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return process;
}

/// Whether the condition becomes true within five seconds.
bool becomes_true(std::function<bool()> const& condition) {
  constexpr int looks = 100;
  constexpr std::chrono::milliseconds between_looks(50);
  for (int look = 0; look < looks && !condition(); ++look) {
    std::this_thread::sleep_for(between_looks);
  }
  return condition();
}

}  // namespace

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

BlockedSignals::BlockedSignals() {
  sigset_t const signals = supervised_signals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
}

BlockedSignals::~BlockedSignals() {
  sigset_t const signals = supervised_signals();
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
}

std::optional<int> BlockedSignals::wait(std::chrono::milliseconds timeout) const {
  sigset_t const signals = supervised_signals();
  timespec const time{timeout.count() / 1000, timeout.count() % 1000 * 1'000'000};
  int const signal = sigtimedwait(&signals, nullptr, &time);
  return signal > 0 ? std::optional(signal) : std::nullopt;
}

ChildProcess::ChildProcess(Command const& command, Output output) {
  std::vector<std::string> copies = command;
  std::vector<char*> words;
  for (std::string& word : copies) {
    words.push_back(word.data());
  }
  words.push_back(nullptr);
  std::array<int, 2> failure{};
  if (::pipe2(failure.data(), O_CLOEXEC) != 0) {
    throw Error("{} cannot be started: {}", command.front(), std::strerror(errno));
  }
  process_ = start(words, failure[1], output);
  int problem = process_ < 0 ? errno : 0;
  ::close(failure[1]);
  if (process_ > 0 && ::read(failure[0], &problem, sizeof problem) > 0) {
    ::waitpid(process_, nullptr, 0);
  }
  ::close(failure[0]);
  if (problem != 0) {
    throw Error("{} cannot be started: {}", command.front(), std::strerror(problem));
  }
}

ChildProcess::~ChildProcess() {
  if (!ended()) {
    ::kill(process_, SIGTERM);
  }
  if (!becomes_true([&] { return ended().has_value(); })) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  // A script that does not `exec` its last command leaves processes running.
  if (::kill(-process_, SIGTERM) == 0 && !becomes_true([&] { return ::kill(-process_, 0) != 0; })) {
    ::kill(-process_, SIGKILL);
  }
}

void ChildProcess::send(int signal) const {
  if (!end_) {
    ::kill(process_, signal);
  }
}

std::optional<ProcessEnd> ChildProcess::ended() {
  int status = 0;
  if (!end_ && ::waitpid(process_, &status, WNOHANG) == process_) {
    end_ =
        WIFSIGNALED(status) ? ProcessEnd{128 + WTERMSIG(status), WTERMSIG(status)} : ProcessEnd{WEXITSTATUS(status), 0};
  }
  return end_;
}

}  // namespace heddle
