#pragma once

#include <heddle/dist/planning/network_model.hpp>
#include <span>

namespace heddle {

/// A measured message or collective: `steps` latencies and `bytes` that move took this long.
struct TimedMessage {
  double steps = 1;
  double bytes = 0;
  double seconds = 0;
};

/// The α and β, neither below 0, with the least relative errors (least squares). At least one message.
LinkModel fit_link(std::span<TimedMessage const> messages);

/// Measures each of named_links between the ranks of `world`: inside the node with most ranks, and between nodes by one
/// rank of each. What there is only one rank for is `assumed`. Takes some seconds; collective over `world`, and the
/// result is the same on every rank.
NetworkModel measure_network(Communicator const& world);

}  // namespace heddle
