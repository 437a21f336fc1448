#include "corpus/forked_workers.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <heddle/core/base/error.hpp>
#include <system_error>

#include "run/directory/warning.hpp"
#include "run/processes/forked_process.hpp"

namespace heddle {
namespace {

/// Before each message: its length, and the exit code of the error whose text it is; 0: none.
struct Header {
  std::int64_t bytes = 0;
  std::int64_t code = 0;
};

std::string message(std::string const& bytes, ExitCode code = ExitCode::done) {
  Header const header{std::ssize(bytes), static_cast<std::int64_t>(code)};
  return std::string(reinterpret_cast<char const*>(&header), sizeof header) + bytes;
}

[[noreturn]] void fail(char const* what) {
  throw Error("cannot {}: {}", what, std::generic_category().message(errno));
}

/// Reads all bytes, and returns true; false at the end of the stream.
bool read_whole(int socket, char* bytes, std::size_t count) {
  while (count > 0) {
    ssize_t const read = ::recv(socket, bytes, count, 0);
    if (read <= 0 && !(read < 0 && errno == EINTR)) {
      return false;
    }
    bytes += std::max<ssize_t>(read, 0);
    count -= static_cast<std::size_t>(std::max<ssize_t>(read, 0));
  }
  return true;
}

/// The main loop of a child: computes chunks until the parent closes the socket.
void compute_chunks(int socket, ComputeChunk const& compute) {
  Header header;
  while (read_whole(socket, reinterpret_cast<char*>(&header), sizeof header)) {
    std::string bytes(static_cast<std::size_t>(header.bytes), '\0');
    if (!read_whole(socket, bytes.data(), bytes.size())) {
      break;
    }
    try {
      send_to_parent(socket, message(to_bytes(compute(chunk_of(bytes), [] {}))));
    } catch (std::exception const& error) {
      auto const* const known = dynamic_cast<Error const*>(&error);
      send_to_parent(socket, message(describe(error), known == nullptr ? ExitCode::failure : known->code()));
      break;
    }
  }
}

}  // namespace

ForkedWorkers::ForkedWorkers(int count, ComputeChunk const& compute) {
  for (int number = 0; number < count; ++number) {
    try {
      start(compute);
    } catch (Error const&) {
      if (children_.empty()) {
        throw;
      }
      break;  // the system has no room for more
    }
  }
}

void ForkedWorkers::start(ComputeChunk const& compute) {
  ForkedProcess const started = fork_process([&](int socket) { compute_chunks(socket, compute); });
  children_.push_back({started.process, started.socket});
}

ForkedWorkers::~ForkedWorkers() {
  std::vector<pid_t> processes;
  for (Child const& child : children_) {
    ::close(child.socket);
    processes.push_back(child.process);
  }
  kill_processes(processes);
}

bool ForkedWorkers::wants_chunk() const {
  return std::ranges::any_of(children_, [](Child const& child) { return child.chunks < max_worker_chunks; });
}

void ForkedWorkers::give(Chunk chunk) {
  Child& child = *std::ranges::min_element(children_, {}, &Child::chunks);
  child.to_send += message(to_bytes(chunk));
  ++child.chunks;
  send_to(child);
}

ChunkResult ForkedWorkers::take(std::function<void()> const&) {
  while (true) {
    for (Child& child : children_) {
      Header header;
      if (child.received.size() < sizeof header) {
        continue;
      }
      std::memcpy(&header, child.received.data(), sizeof header);
      if (auto const bytes = static_cast<std::size_t>(header.bytes); child.received.size() >= sizeof header + bytes) {
        std::string const text = child.received.substr(sizeof header, bytes);
        child.received.erase(0, sizeof header + bytes);
        --child.chunks;
        if (header.code != 0) {
          throw Error(text, static_cast<ExitCode>(header.code));
        }
        return result_of(text);
      }
    }
    std::vector<pollfd> waiting;
    for (Child const& child : children_) {
      waiting.push_back({child.socket, static_cast<short>(child.to_send.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    }
    if (::poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) {
      fail("wait for processes");
    }
    for (std::size_t index = 0; index < children_.size(); ++index) {
      if ((waiting[index].revents & POLLOUT) != 0) {
        send_to(children_[index]);
      }
      if ((waiting[index].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        receive_from(children_[index]);
      }
    }
  }
}

void ForkedWorkers::send_to(Child& child) {
  ssize_t const sent = ::send(child.socket, child.to_send.data(), child.to_send.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) {
    child.to_send.clear();  // it has ended: what it said last is still to be received
  }
  child.to_send.erase(0, std::min(child.to_send.size(), static_cast<std::size_t>(std::max<ssize_t>(sent, 0))));
}

void ForkedWorkers::receive_from(Child& child) {
  std::array<char, std::size_t{1} << 16> bytes{};
  ssize_t const read = ::recv(child.socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (read == 0 || (read < 0 && errno != EAGAIN && errno != EINTR)) {
    report_end(child);
  }
  child.received.append(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(read, 0)));
}

void ForkedWorkers::report_end(Child& child) {
  std::string const how = wait_for_end(child.process);
  ::close(child.socket);
  children_.erase(children_.begin() + (&child - children_.data()));
  throw Error("a process that shared the work " + how + "; --threads 1 needs less memory");
}

}  // namespace heddle
