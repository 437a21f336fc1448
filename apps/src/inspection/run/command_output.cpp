#include "command_output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

namespace heddle {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_bytes = std::size_t{1} << 20;

/// The two ends of a pipe; each is closed once.
class Pipe {
 public:
  Pipe() : open_(::pipe2(ends_.data(), O_CLOEXEC) == 0) {}
  ~Pipe() {
    close(0);
    close(1);
  }
  Pipe(Pipe const&) = delete;
  Pipe& operator=(Pipe const&) = delete;

  bool is_open() const { return open_; }
  int end(std::size_t which) const { return ends_[which]; }
  void close(std::size_t which) {
    if (ends_[which] >= 0) {
      ::close(std::exchange(ends_[which], -1));
    }
  }

 private:
  std::array<int, 2> ends_{-1, -1};
  bool open_;
};

/// A process in a group of its own, which is killed if it has not ended.
class Spawned {
 public:
  /// Its standard output is `output`. `problem()` is errno's value where it cannot be started.
  Spawned(std::vector<std::string> const& command, int output) {
    std::vector<std::string> copies = command;
    std::vector<char*> words;
    for (std::string& word : copies) {
      words.push_back(word.data());
    }
    words.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    problem_ = ::posix_spawnp(&process_, words.front(), &files, &attributes, words.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
  }
  ~Spawned() {
    if (problem_ == 0 && !ended()) {
      ::kill(-process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
  }
  Spawned(Spawned const&) = delete;
  Spawned& operator=(Spawned const&) = delete;

  int problem() const { return problem_; }
  /// The status of waitpid, if it has ended.
  std::optional<int> ended() {
    int status = 0;
    if (!status_ && ::waitpid(process_, &status, WNOHANG) == process_) {
      status_ = status;
    }
    return status_;
  }

 private:
  pid_t process_ = -1;
  int problem_ = 0;
  std::optional<int> status_;
};

/// Reads to the end of the file, at most `most_bytes`; stops at the deadline.
std::string read_until(int file, Clock::time_point deadline) {
  std::string text;
  std::array<char, 4096> bytes{};
  while (text.size() < most_bytes) {
    auto const left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{file, POLLIN, 0};
    int const ready = left > 0 ? ::poll(&waiting, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) {
      continue;
    }
    ssize_t const count = ready > 0 ? ::read(file, bytes.data(), bytes.size()) : 0;
    if (count <= 0) {
      break;
    }
    text.append(bytes.data(), static_cast<std::size_t>(count));
  }
  return text;
}

}  // namespace

CommandOutput output_of(std::vector<std::string> const& command, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds between_looks(5);
  std::string const& name = command.front();
  auto const deadline = Clock::now() + patience;
  Pipe pipe;
  if (!pipe.is_open()) {
    return {"", fmt::format("{} cannot be started: {}", name, std::strerror(errno))};
  }
  Spawned process(command, pipe.end(1));
  pipe.close(1);
  if (process.problem() == ENOENT) {
    return {"", fmt::format("{} is not in PATH", name)};
  }
  if (process.problem() != 0) {
    return {"", fmt::format("{} cannot be started: {}", name, std::strerror(process.problem()))};
  }
  std::string text = read_until(pipe.end(0), deadline);
  while (!process.ended() && Clock::now() < deadline) {
    std::this_thread::sleep_for(between_looks);
  }
  auto const status = process.ended();
  if (!status) {
    return {"", fmt::format("{} did not answer in {:g} s", name, std::chrono::duration<double>(patience).count())};
  }
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0) {
    return {"", fmt::format("{} failed", name)};
  }
  return {std::move(text), ""};
}

}  // namespace heddle
