#pragma once

#include <string>
#include <vector>

namespace heddle {

/// The cores of a node in hwloc's order, in which neighbours share most.
struct NodeTopology {
  struct Core {
    std::vector<int> processors;  ///< its hardware threads, as Linux numbers them
    int cache = 0;                ///< the last-level cache that it shares
    int domain = 0;               ///< its NUMA domain: memory that is nearest to it
  };

  std::vector<Core> cores;

  int caches() const;
  int domains() const;
};

/// This machine's, as far as this process may use it. HWLOC_XMLFILE, written on a compute node by `lstopo FILE.xml`, or
/// HWLOC_SYNTHETIC names another node's. Throws Error if that cannot be read.
NodeTopology node_topology();

/// "128 cores in 8 NUMA domains".
std::string describe(NodeTopology const& node);

}  // namespace heddle
