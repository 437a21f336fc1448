#include <fmt/format.h>

#include <condition_variable>
#include <cstdint>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/file_lease.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <mutex>
#include <random>
#include <sstream>
#include <stop_token>
#include <thread>

namespace heddle {

namespace {

struct Content {
  std::string owner;  ///< a random number
  std::int64_t count = 0;
  std::string description;

  bool operator==(Content const&) const = default;
};

/// Nothing if there is no file, or one without a lease. Throws DataError if it is not a regular file.
std::optional<Content> read(std::filesystem::path const& path) {
  constexpr std::int64_t max_bytes = 4096;
  std::istringstream file(read_regular(path, max_bytes).value_or(""));
  Content content;
  file >> content.owner >> content.count >> std::ws;
  if (!file) {
    return std::nullopt;
  }
  std::getline(file, content.description);
  return content;
}

void write(std::filesystem::path const& path, Content const& content) {
  replace_file(path, fmt::format("{} {}\n{}\n", content.owner, content.count, content.description));
}

/// Sleeps for N fiftieths of the renewal time, and calls `waiting` after each of them.
void pause(int fiftieths, FileLease::Times times, std::function<void()> const& waiting) {
  for (int count = 0; count < fiftieths; ++count) {
    std::this_thread::sleep_for(std::chrono::duration<double>(times.renewal) / 50);
    if (waiting) {
      waiting();
    }
  }
}

/// The content if it changes within the time of expiry: its writer is alive.
std::optional<Content> living(std::filesystem::path const& path, FileLease::Times times,
                              std::function<void()> const& waiting = {}) {
  auto const before = read(path);
  auto const until = std::chrono::steady_clock::now() + times.expiry;
  while (before && std::chrono::steady_clock::now() < until) {
    pause(5, times, waiting);
    auto const now = read(path);
    if (now && *now != *before) {
      return now;
    }
  }
  return std::nullopt;
}

}  // namespace

struct FileLease::State {
  State(std::filesystem::path place, Content first, Times times)
      : path(std::move(place)), content(std::move(first)), renewal(times.renewal) {
    write(path, content);
  }
  ~State() {
    if (!thread.joinable()) {
      return;
    }
    thread.request_stop();
    thread.join();
    if (ours()) {
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
    }
  }
  State(State const&) = delete;
  State& operator=(State const&) = delete;

  bool ours() const {
    std::error_code unknown;
    try {
      if (auto const now = read(path)) {
        return now->owner == content.owner;
      }
    } catch (DataError const&) {
      // Something else has its name, or it cannot be read now: the next line tells the two apart.
      auto const type = std::filesystem::symlink_status(path, unknown).type();
      return type == std::filesystem::file_type::regular || type == std::filesystem::file_type::none;
    }
    return std::filesystem::symlink_status(path, unknown).type() != std::filesystem::file_type::not_found;
  }
  void start() {
    thread = std::jthread([this](std::stop_token const& stop) { renew(stop); });
  }
  void renew(std::stop_token const& stop) {
    std::unique_lock guard(lock);
    while (!stopped.wait_for(guard, stop, renewal, [] { return false; }) && !stop.stop_requested() && ours()) {
      ++content.count;
      try {
        write(path, content);
      } catch (std::exception const&) {
        // A full disk or a lost server: the next renewal tries again, and `held` shows a file that is gone.
      }
    }
  }

  std::filesystem::path path;
  Content content;
  std::chrono::milliseconds renewal;
  std::mutex lock;
  std::condition_variable_any stopped;
  std::jthread thread;
};

FileLease::FileLease(std::unique_ptr<State> state) : state_(std::move(state)) {}
FileLease::~FileLease() = default;
FileLease::FileLease(FileLease&&) noexcept = default;
FileLease& FileLease::operator=(FileLease&&) noexcept = default;

std::optional<FileLease> FileLease::take(std::filesystem::path const& path, std::string const& description,
                                         std::string& holder, Times times, std::function<void()> const& waiting) {
  if (auto const alive = living(path, times, waiting)) {
    holder = alive->description;
    return std::nullopt;
  }
  std::random_device random;
  auto state =
      std::make_unique<State>(path, Content{fmt::format("{:08x}{:08x}", random(), random()), 0, description}, times);
  // If several processes take it at once, the last writer has it, and the others see that now.
  pause(10, times, waiting);
  if (!state->ours()) {
    auto const other = read(path);
    holder = other ? other->description : "another process";
    return std::nullopt;
  }
  state->start();
  return FileLease(std::move(state));
}

std::optional<std::string> FileLease::holder(std::filesystem::path const& path, Times times) {
  auto const alive = living(path, times);
  return alive ? std::optional(alive->description) : std::nullopt;
}

bool FileLease::held() const {
  return state_->ours();
}

}  // namespace heddle
