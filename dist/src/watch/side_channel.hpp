#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// Small messages between the ranks without MPI: UDP datagrams, because they need no connection to a rank that is
/// stopped or gone, and nothing except its addresses is kept for each rank. A message may be lost or arrive twice.
/// Datagrams without the job's random number are ignored.
class SideChannel {
 public:
  enum class Kind : std::uint32_t { question, status, report };
  struct Message {
    Kind kind;
    int sender;
    sockaddr_in address;  ///< from which it came
    std::vector<std::byte> content;
  };
  static constexpr std::size_t max_content = 60'000;

  /// Opens a socket and exchanges addresses. Collective over `world`. Throws Error if there is no socket.
  explicit SideChannel(Communicator const& world);
  ~SideChannel();
  SideChannel(SideChannel const&) = delete;
  SideChannel& operator=(SideChannel const&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  std::string const& host(int rank) const { return peers_[static_cast<std::size_t>(rank)].host; }

  /// Sends to all addresses of the rank; failures are not reported, as losses are not. Any thread.
  void send(int rank, Kind kind, std::span<std::byte const> content = {}) const;
  /// Sends to the address from which a message came: one answer to each of a question's copies.
  void answer(Message const& message, Kind kind, std::span<std::byte const> content) const;
  /// The next message, waiting for it at most this long. One thread.
  std::optional<Message> receive(std::chrono::milliseconds timeout);
  /// Ends a `receive` that waits in another thread; every later one returns at once.
  void wake() const;

 private:
  struct Peer {
    std::string host;
    std::vector<sockaddr_in> addresses;
  };

  void send_to(sockaddr_in const& address, Kind kind, std::span<std::byte const> content) const;

  int rank_;
  int socket_ = -1;
  int wakes_ = -1;  ///< an eventfd
  std::uint64_t job_ = 0;
  std::vector<Peer> peers_;
  std::vector<std::byte> datagram_;  ///< the last one that was received
};

}  // namespace heddle
