#include "binding.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace heddle {

namespace {

/// The caches and NUMA domains of processors, by their numbers.
class Places {
 public:
  explicit Places(NodeTopology const& node) {
    for (NodeTopology::Core const& core : node.cores) {
      for (int const processor : core.processors) {
        cores_[processor] = &core;
      }
    }
  }

  /// Distinct values of a core's member over the processors that the node has.
  template <class Member>
  std::set<int> of(std::vector<int> const& processors, Member member) const {
    std::set<int> values;
    for (int const processor : processors) {
      if (auto const found = cores_.find(processor); found != cores_.end()) {
        values.insert(found->second->*member);
      }
    }
    return values;
  }
  /// The cores that have these processors, by the first processors of the cores.
  std::set<int> cores(std::vector<int> const& processors) const {
    std::set<int> firsts;
    for (int const processor : processors) {
      auto const found = cores_.find(processor);
      firsts.insert(found == cores_.end() ? processor : found->second->processors.front());
    }
    return firsts;
  }

 private:
  std::map<int, NodeTopology::Core const*> cores_;
};

/// Where the ranks of a group meet, at worst: "in one last-level cache"; "" if all of the node is as near.
std::string nearness_of_groups(std::vector<RankCores> const& ranks, NodeTopology const& node, Places const& places,
                               std::size_t group) {
  std::size_t caches = 0;
  std::size_t domains = 0;
  for (std::size_t begin = 0; begin + group <= ranks.size(); begin += group) {
    std::vector<int> processors;
    for (std::size_t rank = begin; rank < begin + group; ++rank) {
      if (ranks[rank].host != ranks[begin].host) {
        return "over several hosts";
      }
      processors.insert(processors.end(), ranks[rank].cores.begin(), ranks[rank].cores.end());
    }
    caches = std::max(caches, places.of(processors, &NodeTopology::Core::cache).size());
    domains = std::max(domains, places.of(processors, &NodeTopology::Core::domain).size());
  }
  if (caches <= 1) {
    return node.caches() > 1 ? "in one last-level cache" : "";
  }
  return domains > 1 ? fmt::format("over {} NUMA domains", domains) : "in one NUMA domain";
}

}  // namespace

std::vector<int> own_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

std::vector<RankCores> gather_rank_cores(Communicator const& world, std::vector<std::string> const& hosts) {
  std::vector<std::vector<int>> cores = gather_lists<int>(world, own_cores());
  std::vector<RankCores> ranks;
  for (std::size_t rank = 0; rank < cores.size(); ++rank) {
    ranks.push_back({hosts[rank], std::move(cores[rank])});
  }
  return ranks;
}

std::vector<SharedCores> shared_cores(std::vector<RankCores> const& ranks, NodeTopology const& node) {
  Places const places(node);
  struct Joined {
    std::size_t ranks = 0;
    std::set<int> cores;
  };
  std::map<std::string, std::vector<Joined>> by_host;
  for (RankCores const& rank : ranks) {
    std::vector<Joined>& joined = by_host[rank.host];
    Joined own{1, places.cores(rank.cores)};
    std::erase_if(joined, [&](Joined const& other) {
      bool const shares = std::ranges::any_of(own.cores, [&](int core) { return other.cores.contains(core); });
      if (shares) {
        own.ranks += other.ranks;
        own.cores.insert(other.cores.begin(), other.cores.end());
      }
      return shares;
    });
    joined.push_back(std::move(own));
  }
  std::vector<SharedCores> shared;
  for (auto const& [host, joined] : by_host) {
    for (Joined const& each : joined) {
      if (each.ranks > 1) {
        shared.push_back({host, each.ranks, {each.cores.begin(), each.cores.end()}});
      }
    }
  }
  return shared;
}

NeighbourGroups inner_groups(MeshShape const& shape) {
  int const tensor = shape.size({MeshAxis::encoder_tensor, MeshAxis::decoder_tensor, MeshAxis::tensor});
  return tensor > 1 ? NeighbourGroups{"tensor", tensor} : NeighbourGroups{"context", shape.size(MeshAxis::context)};
}

std::string describe_binding(std::vector<RankCores> const& ranks, NodeTopology const& node,
                             NeighbourGroups const& groups) {
  Places const places(node);
  std::vector<SharedCores> const shared = shared_cores(ranks, node);
  if (!shared.empty()) {
    auto const& worst = *std::ranges::max_element(shared, {}, &SharedCores::ranks);
    return fmt::format("{} ranks of {} share {}", worst.ranks, worst.host, counted(worst.cores.size(), "core"));
  }
  std::size_t fewest = places.cores(ranks.front().cores).size();
  std::size_t most = fewest;
  for (RankCores const& rank : ranks) {
    fewest = std::min(fewest, places.cores(rank.cores).size());
    most = std::max(most, places.cores(rank.cores).size());
  }
  std::string text =
      fmt::format("{}{} for each rank", fewest < most ? fmt::format("{} to ", fewest) : "", counted(most, "core"));
  std::string const near =
      groups.ranks > 1 ? nearness_of_groups(ranks, node, places, static_cast<std::size_t>(groups.ranks)) : "";
  return text + (near.empty() ? "" : fmt::format("; {} groups {}", groups.name, near));
}

std::string scattered_ranks(std::vector<RankCores> const& ranks, NodeTopology const& node) {
  Places const places(node);
  std::map<std::string, std::pair<int, std::set<int>>> seen;  // by host: the last rank's domain, and all
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    auto const& [host, cores] = ranks[rank];
    std::set<int> const domains = places.of(cores, &NodeTopology::Core::domain);
    if (domains.size() > 1) {
      return fmt::format("rank {} on {} may run in {} NUMA domains", rank, host, domains.size());
    }
    if (domains.empty()) {
      continue;
    }
    int const own = *domains.begin();
    auto& [last, of_host] = seen.try_emplace(host, own, std::set<int>()).first->second;
    if (own != last && of_host.contains(own)) {
      return fmt::format("neighbouring ranks on {}, as {} and {}, are in different NUMA domains", host, rank - 1, rank);
    }
    of_host.insert(own);
    last = own;
  }
  return "";
}

BindingProposal propose_binding(int ranks_per_node, NodeTopology const& node) {
  int const cores = static_cast<int>(node.cores.size());
  int const of_domain = cores / node.domains();
  // Ranks side by side span no two domains if their cores divide a domain's.
  int each = std::clamp(cores / ranks_per_node, 1, of_domain);
  while (of_domain % each != 0) {
    --each;
  }
  return {
      .cores_per_rank = each,
      .mpirun = fmt::format("--map-by ppr:{}:node:pe={} --bind-to core", ranks_per_node, each),
      .mpiexec = fmt::format("-ppn {} -bind-to core:{}", ranks_per_node, each),
      .srun = fmt::format(
          "--ntasks-per-node={} --cpus-per-task={} --threads-per-core=1 --cpu-bind=cores --distribution=block:block",
          ranks_per_node, each)};
}

std::vector<RankCores> ranks_side_by_side(int ranks, int ranks_per_node, NodeTopology const& node) {
  auto const each = static_cast<std::size_t>(propose_binding(ranks_per_node, node).cores_per_rank);
  std::vector<RankCores> placed;
  for (int rank = 0; rank < ranks; ++rank) {
    RankCores& own = placed.emplace_back(RankCores{std::to_string(rank / ranks_per_node), {}});
    std::size_t const begin = static_cast<std::size_t>(rank % ranks_per_node) * each;
    for (std::size_t core = begin; core < begin + each; ++core) {
      std::ranges::copy(node.cores[core].processors, std::back_inserter(own.cores));
    }
  }
  return placed;
}

}  // namespace heddle
