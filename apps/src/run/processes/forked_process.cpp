#include "run/processes/forked_process.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/processors.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <iostream>
#include <system_error>
#include <thread>

namespace heddle {
namespace {

[[noreturn]] void throw_errno(char const* what) {
  throw Error("cannot {}: {}", what, std::generic_category().message(errno));
}

}  // namespace

bool kernels_have_threads() {
  char const* const of_kernels = std::getenv("OMP_NUM_THREADS");
  return Runtime::execution_space() != "Serial" || (of_kernels != nullptr && std::string_view(of_kernels) != "1");
}

int processes_for(int threads) {
  if (threads < 0) {
    throw UsageError("--threads {}: expected at least 1, or 0 for one for each core", threads);
  }
  return kernels_have_threads() ? 1 : threads > 0 ? threads : usable_processors();
}

ForkedProcess fork_process(std::function<void(int socket)> const& run) {
  std::cout << std::flush;
  std::cerr << std::flush;
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    throw_errno("connect processes");
  }
  pid_t const parent = ::getpid();
  pid_t const process = ::fork();
  if (process < 0) {
    ::close(sockets[0]);
    ::close(sockets[1]);
    throw_errno("start a process");
  }
  if (process == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Locks of files would else outlive the parent.
    auto const own = static_cast<unsigned>(sockets[1]);
    ::close_range(3, own - 1, 0);
    ::close_range(own + 1, ~0U, 0);
    if (::getppid() != parent) {
      ::_exit(1);  // the parent ended before it could be asked to end this process, too
    }
    run(sockets[1]);
    ::_exit(0);
  }
  ::close(sockets[1]);
  return {process, sockets[0]};
}

void send_to_parent(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t const written = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written < 0 && errno != EINTR) {
      ::_exit(1);
    }
    bytes.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
}

std::string wait_for_end(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                             : fmt::format("ended with {}", WEXITSTATUS(status));
}

void kill_processes(std::span<pid_t const> processes) {
  for (pid_t const process : processes) {
    ::kill(process, SIGKILL);
  }
  auto const end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (pid_t const process : processes) {
    while (::waitpid(process, nullptr, WNOHANG) == 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

}  // namespace heddle
