#include <bit>
#include <heddle/dist/planning/network_model.hpp>

namespace heddle {

namespace {

/// A group whose ranks are `stride` apart, in blocks of `stride * size` ranks.
GroupPlace place_of(int size, int stride, Machines const& machines) {
  int const block = stride * size;
  bool const inside = size == 1 || machines.ranks_per_node % block == 0 || machines.ranks() <= machines.ranks_per_node;
  GroupPlace place{size, inside, 1};
  if (!inside) {
    // The node's ranks that are not in one group with each other send through the same network.
    int const members = std::max(1, machines.ranks_per_node / stride);
    place.sharers = std::max(1, machines.ranks_per_node / std::min(members, size));
  }
  return place;
}

constexpr std::array link_names{NamedLink{"message", &NetworkModel::Links::message},
                                NamedLink{"all_reduce", &NetworkModel::Links::all_reduce},
                                NamedLink{"reduce_scatter", &NetworkModel::Links::reduce_scatter},
                                NamedLink{"bfloat16_all_reduce", &NetworkModel::Links::bfloat16_all_reduce},
                                NamedLink{"bfloat16_reduce_scatter", &NetworkModel::Links::bfloat16_reduce_scatter},
                                NamedLink{"all_gather", &NetworkModel::Links::all_gather},
                                NamedLink{"all_to_all", &NetworkModel::Links::all_to_all},
                                NamedLink{"reduction", &NetworkModel::Links::reduction}};

LinkModel const& all_reduce_link(NetworkModel::Links const& links, SumKind sums) {
  return sums == SumKind::gradients  ? links.reduction
         : sums == SumKind::bfloat16 ? links.bfloat16_all_reduce
                                     : links.all_reduce;
}

LinkModel const& reduce_scatter_link(NetworkModel::Links const& links, SumKind sums) {
  return sums == SumKind::gradients  ? links.reduction
         : sums == SumKind::bfloat16 ? links.bfloat16_reduce_scatter
                                     : links.reduce_scatter;
}

}  // namespace

std::span<NamedLink const> named_links() {
  return link_names;
}

double collective_steps(int ranks) {
  return static_cast<double>(std::bit_width(static_cast<unsigned>(ranks - 1)));
}

NetworkModel NetworkModel::uniform(double latency, double seconds_per_byte, std::string source) {
  Links const links = Links::uniform({latency, seconds_per_byte});
  return {links, links, std::move(source)};
}

NetworkModel NetworkModel::assumed() {
  NetworkModel network = uniform(2e-6, 1.0 / 4e9, "assumed, not measured");
  network.between_nodes = Links::uniform({5e-6, 1.0 / 10e9});
  return network;
}

std::array<GroupPlace, traffic_groups> group_places(LayoutChoice const& layout, Machines const& machines) {
  int const tensor = layout.size(MeshAxis::tensor);
  int const context = layout.size(MeshAxis::context);
  int const data = layout.size(MeshAxis::data);
  int const pipeline = layout.size(MeshAxis::pipeline);
  return {place_of(layout.ranks(), 1, machines),
          place_of(pipeline, data * context * tensor, machines),
          place_of(data, context * tensor, machines),
          place_of(context, tensor, machines),
          place_of(tensor, 1, machines),
          place_of(data * context, tensor, machines)};
}

double seconds_of(NetworkModel const& network, GroupPlace const& place, Verb verb, Traffic const& traffic,
                  SumKind sums) {
  if (place.ranks == 1 || traffic.operations == 0) {
    return 0;
  }
  NetworkModel::Links const& links = place.inside_node ? network.inside_node : network.between_nodes;
  auto const operations = static_cast<double>(traffic.operations);
  auto const bytes = static_cast<double>(traffic.bytes) * place.sharers;
  double const others = static_cast<double>(place.ranks - 1) / place.ranks;
  auto const collective = [&](LinkModel const& link, double share) {
    return operations * collective_steps(place.ranks) * link.latency + bytes * share * link.seconds_per_byte;
  };
  switch (verb) {
    case Verb::all_reduce:
      return collective(all_reduce_link(links, sums), 2 * others);
    case Verb::reduce_scatter:
      return collective(reduce_scatter_link(links, sums), others);
    case Verb::all_gather:
    case Verb::broadcast:
      return collective(links.all_gather, others);
    case Verb::all_to_all:
      return operations * (place.ranks - 1) * links.all_to_all.latency +
             bytes * others * links.all_to_all.seconds_per_byte;
    case Verb::send:
      return 0;  // counted at the receiver
    case Verb::receive:
      return operations * links.message.latency + bytes * links.message.seconds_per_byte;
    case Verb::barrier:
    case Verb::split:
      return operations * collective_steps(place.ranks) * links.message.latency;
  }
  return 0;
}

}  // namespace heddle
