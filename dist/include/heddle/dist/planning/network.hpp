#pragma once

#include <array>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/dist/planning/layout_choice.hpp>
#include <heddle/dist/report/traffic_report.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace heddle {

/// The α–β model of a message (Hockney 1994): n bytes take latency + n * seconds_per_byte.
struct LinkModel {
  double latency = 0;           ///< seconds
  double seconds_per_byte = 0;  ///< for one rank's traffic

  double seconds(double bytes) const { return latency + bytes * seconds_per_byte; }
  bool operator==(LinkModel const&) const = default;
};

/// The times of messages between ranks of one node, and between nodes. A collective of n ranks has
/// ⌈log₂ n⌉ latencies, as in a tree, an all-to-all n - 1, and moves a share of the bytes: of an all-reduce 2 (n - 1) /
/// n, of an all-gather or a reduce-scatter (n - 1) / n, which is what a ring sends (Patarasuk & Yuan 2009).
struct NetworkModel {
  /// The links that have times of their own. The times of collectives are per step, and per byte that moves.
  enum Link : std::size_t {
    message,  ///< point to point
    all_reduce,
    reduce_scatter,
    bfloat16_all_reduce,
    bfloat16_reduce_scatter,
    all_gather,  ///< also broadcast
    all_to_all,
    reduction,  ///< sums of gradients: non-blocking, in buckets; measured as an all-reduce
  };
  static constexpr std::array<std::string_view, 8> link_names{
      "message",    "all_reduce", "reduce_scatter", "bfloat16_all_reduce", "bfloat16_reduce_scatter",
      "all_gather", "all_to_all", "reduction"};
  using Links = std::array<LinkModel, link_names.size()>;

  Links inside_node{};
  Links between_nodes{};
  std::string source{};  ///< a description of where the numbers come from

  /// A network with one α and one β for every link and place.
  static NetworkModel uniform(double latency, double seconds_per_byte, std::string source);
  /// Guesses for a node's memory and a usual cluster network.
  static NetworkModel assumed();
};

/// The places of a network's links, by their names in files.
inline auto network_places(NetworkModel& network) {
  return std::array{std::pair{"inside_node", &network.inside_node}, std::pair{"between_nodes", &network.between_nodes}};
}

/// The sums of an all-reduce or a reduce-scatter; other collectives take the same time for each.
enum class SumKind {
  float32,
  bfloat16,
  gradients,  ///< by the non-blocking collectives
};

/// A group of ranks as a network sees it.
struct GroupTopology {
  int ranks = 1;
  bool inside_node = true;
  int sharers = 1;  ///< groups that use a node's network at the same time

  bool operator==(GroupTopology const&) const = default;
};

/// The places of a layout's groups, in the order of ParallelState (traffic_report.hpp).
std::array<GroupTopology, traffic_groups> group_places(LayoutChoice const& layout, Machines const& machines);

/// Seconds that this traffic of one collective takes on each of the group's ranks.
double seconds_of(NetworkModel const& network, GroupTopology const& place, CollectiveOp collective,
                  Traffic const& traffic, SumKind sums = SumKind::float32);

/// A measured message or collective: `steps` latencies and `bytes` that move took this long.
struct TimedMessage {
  double steps = 1;
  double bytes = 0;
  double seconds = 0;
};

/// The α and β, neither below 0, with the smallest relative errors (least squares). At least one message.
LinkModel fit_link(std::span<TimedMessage const> messages);

/// Measures each link between the ranks of `world`: inside the node with the most ranks, and between nodes by
/// one rank of each. Links for which there is only one rank are `assumed`. Takes some seconds; collective over `world`,
/// and the result is the same on every rank.
NetworkModel measure_network(Communicator const& world);

}  // namespace heddle
