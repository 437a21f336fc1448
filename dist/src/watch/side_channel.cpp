#include "side_channel.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <random>

namespace heddle {

namespace {

struct DatagramHeader {
  std::uint64_t job;
  SideChannel::Kind kind;
  std::int32_t sender;
};

/// A rank's port and the IPv4 addresses of its host in network order, 0 where there are fewer.
struct Endpoint {
  std::array<std::uint32_t, 4> addresses{};
  std::uint32_t port = 0;
};

Endpoint own_endpoint(int socket) {
  Endpoint endpoint;
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    throw Error("the watch's socket has no address: {}", std::strerror(errno));
  }
  endpoint.port = bound.sin_port;
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) {
    return endpoint;  // ranks on this host still reach it
  }
  std::size_t found = 0;
  for (ifaddrs const* each = interfaces; each != nullptr && found < endpoint.addresses.size(); each = each->ifa_next) {
    bool const up = (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_LOOPBACK) == 0;
    if (up && each->ifa_addr != nullptr && each->ifa_addr->sa_family == AF_INET) {
      endpoint.addresses[found++] = reinterpret_cast<sockaddr_in const*>(each->ifa_addr)->sin_addr.s_addr;
    }
  }
  ::freeifaddrs(interfaces);
  return endpoint;
}

sockaddr_in address_of(std::uint32_t address, std::uint32_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = static_cast<in_port_t>(port);
  result.sin_addr.s_addr = address;
  return result;
}

}  // namespace

SideChannel::SideChannel(Communicator const& world)
    : rank_(world.rank()), datagram_(sizeof(DatagramHeader) + max_content) {
  socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  wakes_ = ::eventfd(0, EFD_CLOEXEC);
  sockaddr_in const any = address_of(htonl(INADDR_ANY), 0);
  bool const open =
      socket_ >= 0 && wakes_ >= 0 && ::bind(socket_, reinterpret_cast<sockaddr const*>(&any), sizeof any) == 0;
  std::string const problem = open ? "" : std::strerror(errno);
  if (any_of(world, !open)) {
    throw Error("the watch cannot open a UDP socket{}: set train.hang_seconds = 0 to train without watch",
                open ? " on another rank" : ": " + problem);
  }
  std::random_device random;
  job_ = broadcast_value(world, (std::uint64_t{random()} << 32U) ^ random());
  auto const endpoints = gather_values(world, own_endpoint(socket_));
  auto const hosts = gather_texts(world, host_name());
  for (std::size_t rank = 0; rank < endpoints.size(); ++rank) {
    Peer& peer = peers_.emplace_back(Peer{hosts[rank], {}});
    if (hosts[rank] == hosts[static_cast<std::size_t>(rank_)]) {
      peer.addresses.push_back(address_of(htonl(INADDR_LOOPBACK), endpoints[rank].port));
    }
    for (std::uint32_t const address : endpoints[rank].addresses) {
      if (address != 0) {
        peer.addresses.push_back(address_of(address, endpoints[rank].port));
      }
    }
  }
}

SideChannel::~SideChannel() {
  ::close(socket_);
  ::close(wakes_);
}

void SideChannel::send_to(sockaddr_in const& address, Kind kind, std::span<std::byte const> content) const {
  DatagramHeader const header{job_, kind, rank_};
  std::vector<std::byte> datagram(sizeof header + std::min(content.size(), max_content));
  std::memcpy(datagram.data(), &header, sizeof header);
  std::copy_n(content.begin(), datagram.size() - sizeof header, datagram.begin() + sizeof header);
  static_cast<void>(::sendto(socket_, datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                             reinterpret_cast<sockaddr const*>(&address), sizeof address));
}

void SideChannel::send(int rank, Kind kind, std::span<std::byte const> content) const {
  for (sockaddr_in const& address : peers_[static_cast<std::size_t>(rank)].addresses) {
    send_to(address, kind, content);
  }
}

void SideChannel::answer(Message const& message, Kind kind, std::span<std::byte const> content) const {
  send_to(message.address, kind, content);
}

std::optional<SideChannel::Message> SideChannel::receive(std::chrono::milliseconds timeout) {
  std::array<pollfd, 2> ready{pollfd{socket_, POLLIN, 0}, pollfd{wakes_, POLLIN, 0}};
  if (::poll(ready.data(), ready.size(), static_cast<int>(timeout.count())) <= 0 || ready[0].revents == 0) {
    return std::nullopt;
  }
  sockaddr_in from{};
  socklen_t size = sizeof from;
  auto const bytes =
      ::recvfrom(socket_, datagram_.data(), datagram_.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &size);
  DatagramHeader header{};
  if (bytes < static_cast<ssize_t>(sizeof header)) {
    return std::nullopt;
  }
  std::memcpy(&header, datagram_.data(), sizeof header);
  if (header.job != job_ || header.sender < 0 || header.sender >= this->size()) {
    return std::nullopt;
  }
  return Message{header.kind, header.sender, from, {datagram_.begin() + sizeof header, datagram_.begin() + bytes}};
}

void SideChannel::wake() const {
  std::uint64_t const one = 1;
  static_cast<void>(::write(wakes_, &one, sizeof one));
}

}  // namespace heddle
