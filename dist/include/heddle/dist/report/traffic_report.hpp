#pragma once

#include <array>
#include <functional>
#include <heddle/core/parallel/communicator.hpp>
#include <string>
#include <string_view>

namespace heddle {

/// The groups by which traffic is reported: those of ParallelState, and those of the encoder's grid. Sums of gradients
/// over one of the axes that a group of a grid has count with that group.
struct TrafficGroup {
  enum Index : std::size_t {
    world,
    pipeline,
    data,
    context,
    tensor,
    replicas,
    experts,
    shards,
    copies,
    encoder_context,
    encoder_tensor
  };
};
inline constexpr std::size_t traffic_groups = 11;

/// A rank's traffic by group. All zero for a single rank.
using TrafficByGroup = std::array<Ledger, traffic_groups>;

/// "tensor": the name of a group, by its index.
std::string_view traffic_group_name(std::size_t group);

/// The name of the group with which the communicator of that name counts.
std::string traffic_group_of(std::string const& communicator);

TrafficByGroup traffic_of(ParallelState const& parallel);
TrafficByGroup operator-(TrafficByGroup const& later, TrafficByGroup const& earlier);
/// The sum over all ranks, on every rank. Collective over `world`; `own` does not include this call's traffic.
TrafficByGroup sum_over_ranks(Communicator const& world, TrafficByGroup const& own);

/// Passes name ("tensor.all_reduce") and traffic of each group and collective with an operation to `visit`.
void for_each_traffic(TrafficByGroup const& traffic,
                      std::function<void(std::string const& name, Traffic const& traffic)> const& visit);

/// A table in text: operations and bytes of one rank, named `rank`, and of all together. A message counts at its
/// sender and at its receiver.
std::string describe_traffic(std::string const& rank, TrafficByGroup const& own, TrafficByGroup const& all);

}  // namespace heddle
