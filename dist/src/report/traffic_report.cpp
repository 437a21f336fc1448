#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/report/traffic_report.hpp>
#include <map>
#include <vector>

namespace heddle {

namespace {

constexpr std::array<std::string_view, traffic_groups> group_names{
    "world",   "pipeline", "data",   "context",         "tensor",        "replicas",
    "experts", "shards",   "copies", "encoder_context", "encoder_tensor"};

std::string amount(std::int64_t bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) {
    value /= 1024;
  }
  return fmt::format("{} {}", readable_decimal(value, unit == 0 ? 0 : 1), units[unit]);
}

/// Passes every group and collective to `visit`, as indices.
template <class Visit>
void for_each_entry(Visit const& visit) {
  for (std::size_t group = 0; group < traffic_groups; ++group) {
    for (std::size_t collective = 0; collective < collectives; ++collective) {
      visit(group, collective);
    }
  }
}

std::string name_of(std::size_t group, std::size_t collective) {
  return fmt::format("{}.{}", group_names[group], name_of(static_cast<CollectiveOp>(collective)));
}

}  // namespace

std::string_view traffic_group_name(std::size_t group) {
  return group_names[group];
}

std::string traffic_group_of(std::string const& communicator) {
  static std::map<std::string, std::string, std::less<>> const others{{"copies of experts", "copies"},
                                                                      {"copies of shards", "copies"},
                                                                      {"context axis", "context"},
                                                                      {"encoder_tensor axis", "context"},
                                                                      {"tensor axis", "tensor"},
                                                                      {"decoder_tensor axis", "encoder_context"},
                                                                      {"data × context × encoder_tensor", "replicas"}};
  auto const found = others.find(communicator);
  return found == others.end() ? communicator : found->second;
}

TrafficByGroup traffic_of(ParallelState const& parallel) {
  ParallelState const& encoder = parallel.of(Grid::encoder);
  bool const grids = parallel.encoder != nullptr;
  TrafficByGroup traffic{parallel.world.ledger(),
                         parallel.pipeline.ledger(),
                         parallel.data.ledger(),
                         parallel.context.ledger(),
                         parallel.tensor.ledger(),
                         parallel.replicas.ledger(),
                         parallel.experts.ledger(),
                         parallel.shards.ledger(),
                         parallel.expert_copies.ledger(),
                         grids ? encoder.context.ledger() : Ledger{},
                         grids ? encoder.tensor.ledger() : Ledger{}};
  auto const add = [&](TrafficGroup::Index group, Communicator const& more) {
    for (std::size_t collective = 0; collective < collectives; ++collective) {
      traffic[group][collective] += more.ledger()[collective];
    }
  };
  add(TrafficGroup::copies, parallel.shard_copies);
  if (grids) {
    add(TrafficGroup::context, parallel.group({MeshAxis::context}));
    add(TrafficGroup::context, parallel.group({MeshAxis::encoder_tensor}));
    add(TrafficGroup::tensor, parallel.group({MeshAxis::tensor}));
    add(TrafficGroup::encoder_context, parallel.group({MeshAxis::decoder_tensor}));
    add(TrafficGroup::replicas, parallel.loss_parts);
  }
  return traffic;
}

TrafficByGroup operator-(TrafficByGroup const& later, TrafficByGroup const& earlier) {
  TrafficByGroup difference = later;
  for_each_entry([&](std::size_t group, std::size_t collective) {
    difference[group][collective] += -1 * earlier[group][collective];
  });
  return difference;
}

TrafficByGroup sum_over_ranks(Communicator const& world, TrafficByGroup const& own) {
  auto numbers = std::bit_cast<std::array<std::int64_t, sizeof own / sizeof(std::int64_t)>>(own);
  std::ranges::copy(sums_of(world, std::vector(numbers.begin(), numbers.end())), numbers.begin());
  return std::bit_cast<TrafficByGroup>(numbers);
}

void for_each_traffic(TrafficByGroup const& traffic,
                      std::function<void(std::string const& name, Traffic const& traffic)> const& visit) {
  for_each_entry([&](std::size_t group, std::size_t collective) {
    if (traffic[group][collective].operations > 0) {
      visit(name_of(group, collective), traffic[group][collective]);
    }
  });
}

std::string describe_traffic(std::string const& rank, TrafficByGroup const& own, TrafficByGroup const& all) {
  std::string text = fmt::format("{:<24} {:>27} {:>27}\n{:<24} {:>14} {:>12} {:>14} {:>12}\n", "communication", rank,
                                 "all ranks", "", "operations", "payload", "operations", "payload");
  for_each_entry([&](std::size_t group, std::size_t collective) {
    Traffic const& one = own[group][collective];
    Traffic const& sum = all[group][collective];
    if (sum.operations > 0) {
      text += fmt::format("{:<24} {:>14} {:>12} {:>14} {:>12}\n", name_of(group, collective),
                          readable_count(one.operations), amount(one.bytes), readable_count(sum.operations),
                          amount(sum.bytes));
    }
  });
  return text;
}

}  // namespace heddle
