#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/seconds.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/optimizer/gradient_reducer.hpp>
#include <heddle/dist/planning/network.hpp>
#include <set>

namespace heddle {

namespace {

/// The groups along adjacent axes, or `size` neighbours of such a group.
GroupTopology place_of(MeshShape const& shape, MeshAxes const& axes, Machines const& machines, int size) {
  if (size == 1) {
    return {};
  }
  int const stride = shape.rank_at(axes, 1, 0);  // from one rank of a group to the next
  bool const inside = machines.ranks_per_node % (stride * size) == 0 || machines.ranks() <= machines.ranks_per_node;
  GroupTopology place{size, inside, 1};
  if (!inside) {
    // The node's ranks that are not in one group with each other send through the same network.
    int const members = std::max(1, machines.ranks_per_node / stride);
    place.sharers = std::max(1, machines.ranks_per_node / std::min(members, size));
  }
  return place;
}

double collective_steps(int ranks) {
  return static_cast<double>(std::bit_width(static_cast<unsigned>(ranks - 1)));
}

}  // namespace

NetworkModel NetworkModel::uniform(double latency, double seconds_per_byte, std::string source) {
  Links links;
  links.fill({latency, seconds_per_byte});
  return {links, links, std::move(source)};
}

NetworkModel NetworkModel::assumed() {
  NetworkModel network = uniform(2e-6, 1.0 / 4e9, "assumed, not measured");
  network.between_nodes.fill({5e-6, 1.0 / 10e9});
  return network;
}

std::array<GroupTopology, traffic_groups> group_places(LayoutChoice const& layout, Machines const& machines) {
  auto const place = [&](MeshAxes const& axes) {
    return place_of(layout.shape, axes, machines, layout.shape.size(axes));
  };
  MeshAxes all;
  std::ranges::transform(layout.shape.axes(), std::back_inserter(all), &MeshShape::Axis::axis);
  // The encoder's groups are spread over all ranks that share its layers.
  auto const of_encoder = [&](MeshAxes const& axes) {
    int const size = layout.shape.has_grids() ? layout.shape.size(axes) : 1;
    GroupTopology spread =
        place({MeshAxis::context, MeshAxis::encoder_tensor, MeshAxis::decoder_tensor, MeshAxis::tensor});
    spread.ranks = size;
    return size == 1 ? GroupTopology{} : spread;
  };
  return {place(all),
          place({MeshAxis::pipeline}),
          place({MeshAxis::data}),
          place(MeshShape::context_axes(Grid::decoder)),
          place(MeshShape::tensor_axes(Grid::decoder)),
          place(replica_axes()),
          place_of(layout.shape, replica_axes(), machines, layout.expert),
          place_of(layout.shape, replica_axes(), machines, std::max(1, layout.shard_ranks)),
          place(replica_axes()),
          of_encoder(MeshShape::context_axes(Grid::encoder)),
          of_encoder(MeshShape::tensor_axes(Grid::encoder))};
}

double seconds_of(NetworkModel const& network, GroupTopology const& place, CollectiveOp collective,
                  Traffic const& traffic, SumKind sums) {
  if (place.ranks == 1 || traffic.operations == 0) {
    return 0;
  }
  NetworkModel::Links const& links = place.inside_node ? network.inside_node : network.between_nodes;
  auto const operations = static_cast<double>(traffic.operations);
  auto const bytes = static_cast<double>(traffic.bytes) * place.sharers;
  auto const others = static_cast<double>(place.ranks - 1);
  double const steps = collective_steps(place.ranks);
  auto const seconds = [&](NetworkModel::Link link, double latencies, double share) {
    return operations * latencies * links[link].latency + bytes * share * links[link].seconds_per_byte;
  };
  // Sums of gradients have their own link.
  auto const sum = [&](NetworkModel::Link float32, NetworkModel::Link bfloat16) {
    return sums == SumKind::gradients ? NetworkModel::reduction : sums == SumKind::bfloat16 ? bfloat16 : float32;
  };
  switch (collective) {
    case CollectiveOp::all_reduce:
      return seconds(sum(NetworkModel::all_reduce, NetworkModel::bfloat16_all_reduce), steps,
                     2 * (others / place.ranks));
    case CollectiveOp::reduce_scatter:
      return seconds(sum(NetworkModel::reduce_scatter, NetworkModel::bfloat16_reduce_scatter), steps,
                     others / place.ranks);
    case CollectiveOp::all_gather:
    case CollectiveOp::broadcast:
      return seconds(NetworkModel::all_gather, steps, others / place.ranks);
    case CollectiveOp::all_to_all:
      return seconds(NetworkModel::all_to_all, others, others / place.ranks);
    case CollectiveOp::send:
      return 0;  // counted at the receiver
    case CollectiveOp::receive:
      return seconds(NetworkModel::message, 1, 1);
    case CollectiveOp::barrier:
    case CollectiveOp::split:
      return seconds(NetworkModel::message, steps, 0);
  }
  return 0;
}

namespace {

constexpr std::array<std::int64_t, 6> element_counts{16, 1 << 10, 1 << 14, 1 << 17, 1 << 19, 1 << 21};
constexpr int repetitions = 7;

/// The median seconds of `work` on the slowest rank, each time after `prepare`. Collective over the group.
double median_seconds(Communicator const& group, std::function<void()> const& prepare,
                      std::function<void()> const& work) {
  std::vector<double> seconds;
  for (int repetition = 0; repetition <= repetitions; ++repetition) {
    prepare();
    group.barrier();
    auto const begin = SteadyClock::now();
    work();
    seconds.push_back(max_of(group, seconds_since(begin)));
  }
  seconds.erase(seconds.begin());  // the first takes memory and connects
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

/// A collective to measure: its latencies, the share of its bytes that moves, as NetworkModel says, and the elements'
/// type.
struct MeasuredVerb {
  double steps = 1;
  double share = 1;
  DType dtype = DType::float32;
};

/// A collective that reads a tensor and writes one of the same size, or parts of them.
using Call = std::function<void(Tensor const& tensor, Tensor const& received)>;

/// Measures `call` with tensors of several sizes.
LinkModel measured(Communicator const& group, MeasuredVerb const& collective, Call const& call) {
  std::vector<TimedMessage> messages;
  for (std::int64_t const count : element_counts) {
    std::int64_t const elements = count * group.size();  // equal parts
    Tensor const tensor = Tensor::allocate(collective.dtype, {elements});
    Tensor const received = Tensor::allocate(collective.dtype, {elements});
    // The tensor is written again each time, as kernels do: otherwise a rank could read what its core still holds.
    std::vector<std::byte> const zeros(static_cast<std::size_t>(tensor.bytes()));
    double const seconds = median_seconds(
        group, [&] { copy_from_host(tensor, zeros.data()); }, [&] { call(tensor, received); });
    messages.push_back({collective.steps, collective.share * static_cast<double>(tensor.bytes()), seconds});
  }
  return fit_link(messages);
}

/// There and back between the first two ranks.
LinkModel measured_message(Communicator const& group) {
  return measured(group, {2, 2}, [&](Tensor const& tensor, Tensor const& received) {
    if (group.rank() == 0) {
      group.send(tensor, 1);
      group.receive(received, 1);
    } else if (group.rank() == 1) {
      group.receive(received, 0);
      group.send(tensor, 0);
    }
  });
}

/// Buckets as in a backward pass: some under way at a time.
void reduce_in_buckets(Communicator const& group, Tensor const& tensor) {
  constexpr std::size_t max_under_way = 4;
  std::vector<Transfer> under_way;
  std::int64_t const bucket = GradientReducer::bucket_for(group.size());
  for (std::int64_t begin = 0; begin < tensor.size(); begin += bucket) {
    std::int64_t const count = std::min(bucket, tensor.size() - begin);
    under_way.push_back(group.start_all_reduce(tensor.rows(begin, count)));
    while (under_way.size() >= max_under_way) {
      std::erase_if(under_way, [](Transfer& transfer) { return transfer.progress(); });
    }
  }
  std::ranges::for_each(under_way, &Transfer::wait);
}

NetworkModel::Links measured_links(Communicator const& group) {
  auto const ranks = static_cast<double>(group.size());
  double const steps = collective_steps(group.size());
  double const others = (ranks - 1) / ranks;
  NetworkModel::Links links;
  links[NetworkModel::message] = measured_message(group);
  auto const own_part = [&](Tensor const& tensor) {
    std::int64_t const part = tensor.size() / group.size();
    return tensor.rows(part * group.rank(), part);
  };
  Call const all_reduce = [&](Tensor const& tensor, Tensor const&) { group.all_reduce(tensor); };
  // The forms that layers use.
  auto const equal_rows = [&](Tensor const& tensor) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(group.size()), tensor.size() / group.size());
  };
  Call const reduce_scatter = [&](Tensor const& tensor, Tensor const& received) {
    group.reduce_scatter_rows(tensor, own_part(received), equal_rows(tensor));
  };
  links[NetworkModel::all_reduce] = measured(group, {steps, 2 * others}, all_reduce);
  links[NetworkModel::reduce_scatter] = measured(group, {steps, others}, reduce_scatter);
  links[NetworkModel::bfloat16_all_reduce] = measured(group, {steps, 2 * others, DType::bfloat16}, all_reduce);
  links[NetworkModel::bfloat16_reduce_scatter] = measured(group, {steps, others, DType::bfloat16}, reduce_scatter);
  links[NetworkModel::all_gather] = measured(group, {steps, others}, [&](Tensor const& tensor, Tensor const& received) {
    group.all_gather(own_part(tensor), received);
  });
  links[NetworkModel::all_to_all] =
      measured(group, {ranks - 1, others}, [&](Tensor const& tensor, Tensor const& received) {
        group.all_to_all_rows(tensor, equal_rows(tensor), received, equal_rows(tensor));
      });
  links[NetworkModel::reduction] = measured(
      group, {steps, 2 * others}, [&](Tensor const& tensor, Tensor const&) { reduce_in_buckets(group, tensor); });
  return links;
}

}  // namespace

LinkModel fit_link(std::span<TimedMessage const> messages) {
  // Normal equations of Σ ((α steps + β bytes) / seconds - 1)².
  double aa = 0;
  double ab = 0;
  double bb = 0;
  double a = 0;
  double b = 0;
  for (auto const& [steps, bytes, seconds] : messages) {
    double const x = steps / seconds;
    double const y = bytes / seconds;
    aa += x * x;
    ab += x * y;
    bb += y * y;
    a += x;
    b += y;
  }
  double const determinant = aa * bb - ab * ab;
  LinkModel link;
  if (determinant > 1e-12 * aa * bb) {
    link = {(a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant};
  }
  if (link.latency <= 0 && link.seconds_per_byte <= 0) {
    return {aa > 0 ? a / aa : 0, 0};
  }
  if (link.latency < 0) {
    link = {0, b / bb};
  } else if (link.seconds_per_byte < 0) {
    link = {a / aa, 0};
  }
  return link;
}

NetworkModel measure_network(Communicator const& world) {
  std::vector<std::string> const hosts = gather_texts(world, host_name());
  std::set<std::string> const names(hosts.begin(), hosts.end());
  std::string const& own_host = hosts[static_cast<std::size_t>(world.rank())];
  auto const host = static_cast<int>(std::distance(names.begin(), names.find(own_host)));
  int const before = static_cast<int>(std::count(hosts.begin(), hosts.begin() + world.rank(), own_host));
  auto const largest =
      *std::ranges::max_element(names, {}, [&](std::string const& name) { return std::ranges::count(hosts, name); });
  Communicator const node = world.split(host, world.rank(), "node");
  Communicator const between = world.split(before, world.rank(), "one rank of each node");
  NetworkModel network = NetworkModel::assumed();
  // One group at a time: first inside the largest node, then between the nodes.
  if (own_host == largest && node.size() > 1) {
    network.inside_node = measured_links(node);
  }
  world.barrier();
  if (before == 0 && between.size() > 1) {
    network.between_nodes = measured_links(between);
  }
  world.barrier();
  int const speaker = static_cast<int>(std::ranges::find(hosts, largest) - hosts.begin());
  network.inside_node = broadcast_value(world, network.inside_node, speaker);
  network.between_nodes = broadcast_value(world, network.between_nodes, 0);
  auto const max = std::ranges::count(hosts, largest);
  network.source = fmt::format("inside a node {}, between nodes {}",
                               max > 1 ? fmt::format("measured with {} ranks", max) : "assumed",
                               names.size() > 1 ? fmt::format("measured with {} nodes", names.size()) : "assumed");
  return network;
}

}  // namespace heddle
