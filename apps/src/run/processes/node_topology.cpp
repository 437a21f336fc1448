#include "node_topology.hpp"

#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <memory>
#include <set>
#include <string_view>
#include <type_traits>

namespace heddle {

namespace {

using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, decltype(&hwloc_topology_destroy)>;

Topology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    throw Error("hwloc cannot start: memory is exhausted");
  }
  Topology topology(raw, &hwloc_topology_destroy);
  bool loaded = hwloc_topology_load(raw) == 0;
  for (char const* const variable : {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC"}) {
    // hwloc takes this machine where it cannot read the other one.
    char const* const other = std::getenv(variable);
    if (other == nullptr || *other == '\0') {
      continue;
    }
    loaded = loaded && (hwloc_topology_is_thissystem(raw) == 0 || std::getenv("HWLOC_THISSYSTEM") != nullptr);
    if (!loaded) {
      throw Error("hwloc cannot read {} = {}: expected {}", variable, other,
                  variable == std::string_view("HWLOC_XMLFILE") ? "a file that `lstopo FILE.xml` wrote"
                                                                : "a description such as \"numa:2 core:8 pu:1\"");
    }
  }
  if (!loaded) {
    throw Error("hwloc cannot read the topology of this machine");
  }
  return topology;
}

/// The last-level cache of a core: of L3 and L2 the one that exists.
int cache_of(hwloc_topology_t topology, hwloc_obj_t core) {
  for (hwloc_obj_type_t const level : {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
    if (hwloc_obj_t const cache = hwloc_get_ancestor_obj_by_type(topology, level, core); cache != nullptr) {
      return static_cast<int>(cache->logical_index);
    }
  }
  return 0;
}

template <class Member>
int different(std::vector<NodeTopology::Core> const& cores, Member member) {
  std::set<int> values;
  std::ranges::transform(cores, std::inserter(values, values.end()), member);
  return static_cast<int>(values.size());
}

}  // namespace

int NodeTopology::caches() const {
  return different(cores, &Core::cache);
}

int NodeTopology::domains() const {
  return different(cores, &Core::domain);
}

NodeTopology node_topology() {
  Topology const topology = load_topology();
  NodeTopology node;
  // Where a virtual machine does not tell its cores, each processor is one.
  int const depth = hwloc_get_type_or_below_depth(topology.get(), HWLOC_OBJ_CORE);
  for (hwloc_obj_t core = hwloc_get_obj_by_depth(topology.get(), depth, 0); core != nullptr; core = core->next_cousin) {
    NodeTopology::Core found{{}, cache_of(topology.get(), core), std::max(0, hwloc_bitmap_first(core->nodeset))};
    for (int processor = hwloc_bitmap_first(core->cpuset); processor >= 0;
         processor = hwloc_bitmap_next(core->cpuset, processor)) {
      found.processors.push_back(processor);
    }
    node.cores.push_back(std::move(found));
  }
  return node;
}

std::string describe(NodeTopology const& node) {
  return fmt::format("{} in {}", counted(static_cast<std::int64_t>(node.cores.size()), "core"),
                     counted(node.domains(), "NUMA domain"));
}

}  // namespace heddle
