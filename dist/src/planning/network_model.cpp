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

}  // namespace

double collective_steps(int ranks) {
  return static_cast<double>(std::bit_width(static_cast<unsigned>(ranks - 1)));
}

NetworkModel NetworkModel::uniform(double latency, double seconds_per_byte, std::string source) {
  LinkModel const link{latency, seconds_per_byte};
  Links const links{link, link, link, link};
  return {links, links, std::move(source)};
}

NetworkModel NetworkModel::assumed() {
  NetworkModel network = uniform(2e-6, 1.0 / 4e9, "assumed, not measured");
  LinkModel const outside{5e-6, 1.0 / 10e9};
  network.between_nodes = {outside, outside, outside, outside};
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
                  bool gradients) {
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
      return collective(gradients ? links.reduction : links.all_reduce, 2 * others);
    case Verb::reduce_scatter:
      return collective(gradients ? links.reduction : links.all_gather, others);
    case Verb::all_gather:
    case Verb::broadcast:
      return collective(links.all_gather, others);
    case Verb::all_to_all:
      return operations * (place.ranks - 1) * links.message.latency + bytes * others * links.message.seconds_per_byte;
    case Verb::send:
      return 0;  // counted at the receiver
    case Verb::receive:
      return operations * links.message.latency + bytes * links.message.seconds_per_byte;
    case Verb::barrier:
      return operations * collective_steps(place.ranks) * links.message.latency;
  }
  return 0;
}

}  // namespace heddle
