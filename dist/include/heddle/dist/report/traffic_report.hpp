#pragma once

#include <array>
#include <functional>
#include <heddle/core/parallel/communicator.hpp>
#include <string>

namespace heddle {

/// A rank's traffic by group: those of ParallelState, in its order. All zero for one rank alone.
inline constexpr std::size_t traffic_groups = 6;
using TrafficByGroup = std::array<Ledger, traffic_groups>;

/// This rank's so far.
TrafficByGroup traffic_of(ParallelState const& parallel);
/// The traffic between the two.
TrafficByGroup operator-(TrafficByGroup const& later, TrafficByGroup const& earlier);
/// The sum over all ranks, on every rank. Collective over `world`, whose own part in it is not in `own`.
TrafficByGroup sum_over_ranks(Communicator const& world, TrafficByGroup const& own);

/// Calls visit("tensor.all_reduce", traffic) for each group and verb with an operation.
void for_each_traffic(TrafficByGroup const& traffic,
                      std::function<void(std::string const& name, Traffic const& traffic)> const& visit);

/// A table for people: operations and bytes of one rank, named `rank`, and of all together. A message counts where it
/// is sent and where it is received.
std::string describe_traffic(std::string const& rank, TrafficByGroup const& own, TrafficByGroup const& all);

}  // namespace heddle
