#include "hosts.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <heddle/core/base/error.hpp>
#include <memory>
#include <sstream>
#include <utility>

namespace heddle {

namespace {

using Clock = std::chrono::steady_clock;

/// The begin of a connection to a host.
class Call {
 public:
  explicit Call(std::string const& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (int const problem = ::getaddrinfo(host.c_str(), "22", &hints, &found); problem != 0) {
      answered_ = problem == EAI_SYSTEM || problem == EAI_MEMORY;  // this machine's fault, not the host's
      return;
    }
    std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> const addresses(found, &::freeaddrinfo);
    socket_ = ::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket_ >= 0) {
      judge(::connect(socket_, found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno);
    } else {
      answered_ = true;  // too many open files here say nothing about the host
    }
  }
  Call(Call&& other) noexcept : socket_(std::exchange(other.socket_, -1)), answered_(other.answered_) {}
  Call& operator=(Call&&) = delete;
  ~Call() { close(); }

  bool answered() const { return answered_; }

  void wait_until(Clock::time_point end) {
    while (socket_ >= 0) {
      auto const left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
      pollfd request{socket_, POLLOUT, 0};
      int const ready = ::poll(&request, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
      if (ready > 0) {
        int problem = 0;
        socklen_t size = sizeof problem;
        ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &problem, &size);
        judge(problem);
        close();
      } else if (ready == 0 || errno != EINTR) {
        close();
      }
    }
  }

 private:
  void judge(int problem) {
    answered_ = problem == 0 || problem == ECONNREFUSED || problem == ECONNRESET;
    if (problem != EINPROGRESS) {
      close();
    }
  }
  void close() {
    if (socket_ >= 0) {
      ::close(std::exchange(socket_, -1));
    }
  }

  int socket_ = -1;
  bool answered_ = false;
};

}  // namespace

std::vector<Host> parse_hosts(std::string const& text) {
  std::vector<Host> hosts;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    auto const colon = word.find(':');
    Host host{word.substr(0, colon), 1};
    if (colon != std::string::npos) {
      char const* const end = word.data() + word.size();
      auto const [rest, problem] = std::from_chars(word.data() + colon + 1, end, host.slots);
      host.slots = problem == std::errc() && rest == end ? host.slots : 0;
    }
    if (host.name.empty() || host.slots < 1) {
      throw UsageError(fmt::format("run: --hosts \"{}\" is no list of hosts; expected for example n1:4,n2:4", text));
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

std::string to_string(std::vector<Host> const& hosts) {
  std::string text;
  for (Host const& host : hosts) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots);
  }
  return text;
}

int slots_of(std::vector<Host> const& hosts) {
  int slots = 0;
  for (Host const& host : hosts) {
    slots += host.slots;
  }
  return slots;
}

std::vector<Host> answering(std::vector<Host> const& hosts, std::chrono::milliseconds patience) {
  auto const end = Clock::now() + patience;
  std::vector<Call> calls;
  calls.reserve(hosts.size());
  for (Host const& host : hosts) {
    calls.emplace_back(host.name);
  }
  std::vector<Host> present;
  for (std::size_t number = 0; number < hosts.size(); ++number) {
    calls[number].wait_until(end);
    if (calls[number].answered()) {
      present.push_back(hosts[number]);
    }
  }
  return present.empty() ? hosts : present;
}

std::optional<std::vector<Host>> enough_for(std::vector<Host> const& hosts, int ranks) {
  std::vector<Host> chosen;
  for (Host const& host : hosts) {
    if (slots_of(chosen) < ranks) {
      chosen.push_back(host);
    }
  }
  return slots_of(chosen) < ranks ? std::nullopt : std::optional(chosen);
}

std::string missing_from(std::vector<Host> const& hosts, std::vector<Host> const& present) {
  std::string names;
  for (Host const& host : hosts) {
    if (std::ranges::none_of(present, [&](Host const& other) { return other.name == host.name; })) {
      names += (names.empty() ? "" : ", ") + host.name;
    }
  }
  return names;
}

}  // namespace heddle
