#pragma once

#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parallel/mesh.hpp>
#include <string>
#include <vector>

#include "node_topology.hpp"

// The cores on which ranks may run: at the start of a run, in a plan, and for the doctor.
namespace heddle {

/// A rank and the processors (hardware threads) on which it may run.
struct RankCores {
  std::string host;
  std::vector<int> cores;  ///< as Linux numbers them, ascending
};

/// The processors on which this process may run, ascending.
std::vector<int> own_cores();
/// The processors of all ranks, whose hosts are given. Collective over `world`.
std::vector<RankCores> gather_rank_cores(Communicator const& world, std::vector<std::string> const& hosts);

/// Ranks of a host that can run on cores of one another, and these cores.
struct SharedCores {
  std::string host;
  std::size_t ranks = 0;
  std::vector<int> cores;  ///< by their first processors, ascending
};
/// Processors of one core are that core; the hosts are like `node`.
std::vector<SharedCores> shared_cores(std::vector<RankCores> const& ranks, NodeTopology const& node);

/// A rank that may run in several NUMA domains, or ranks that are dealt to the domains in turn, so that neighbours
/// exchange through the slower memory between them; "" if there is neither. The hosts are like `node`.
std::string scattered_ranks(std::vector<RankCores> const& ranks, NodeTopology const& node);

/// Consecutive ranks that exchange the most, by the name of their mesh axis.
struct NeighbourGroups {
  std::string name;
  int ranks = 1;
};
/// The tensor groups (with two grids, the ranks along all axes that split heads of either), or the context groups where
/// those have one rank.
NeighbourGroups inner_groups(MeshShape const& shape);
/// "1 core for each rank; tensor groups in one NUMA domain", or that ranks share cores. The hosts are like `node`.
std::string describe_binding(std::vector<RankCores> const& ranks, NodeTopology const& node,
                             NeighbourGroups const& groups);

/// The options with which launchers place ranks side by side, with as many cores for each as there are for all, and
/// none in two NUMA domains.
struct BindingProposal {
  int cores_per_rank = 1;
  std::string mpirun;   ///< Open MPI's
  std::string mpiexec;  ///< Hydra's: MPICH, Intel MPI
  std::string srun;
};
/// Expects no more ranks than cores.
BindingProposal propose_binding(int ranks_per_node, NodeTopology const& node);
/// The first `ranks` of a job that is started so.
std::vector<RankCores> ranks_side_by_side(int ranks, int ranks_per_node, NodeTopology const& node);

}  // namespace heddle
