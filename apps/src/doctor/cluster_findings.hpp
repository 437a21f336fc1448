#pragma once

#include <map>
#include <string>
#include <vector>

#include "examination.hpp"
#include "run/processes/binding.hpp"

// Findings about a job of several ranks, made of measured numbers alone.
namespace heddle {

/// "0-3,8": a list of ascending numbers.
std::string describe_cores(std::vector<int> const& cores);
/// A line for each rank, in their order: its host and cores. Adjacent ranks beyond the first 64 are left out.
std::string describe_ranks(std::vector<RankCores> const& ranks);

/// Fails where ranks of a host that share cores have fewer of them than there are ranks; warns where they share any, or
/// are scattered over the NUMA domains of hosts like `node`.
Finding binding_of(std::vector<RankCores> const& ranks, NodeTopology const& node);

/// Facts about a host by their names: "processor", "executable", "library libmpi.so.40".
using HostFacts = std::map<std::string, std::string>;
/// A finding for each fact that is not the same on all hosts: fails for those with which ranks do not compute the same,
/// or do not find each other. One finding if there is none. `facts` are by the host's name.
std::vector<Finding> differences_of(std::map<std::string, HostFacts> const& facts);

/// The failures and warnings among the findings of all hosts, equal ones together with the hosts' names.
std::vector<Finding> merged(std::map<std::string, std::vector<Finding>> const& findings);

/// Messages between two ranks.
struct PairTime {
  std::string pair;      ///< "n1 - n2"
  double latency = 0;    ///< seconds of a short message
  double bandwidth = 0;  ///< bytes per second of a long one
};
/// Warns of pairs with less than half of the median bandwidth, or three times its latency.
Finding network_of(std::string const& subject, std::vector<PairTime> const& pairs);

/// `ahead` has seconds by which a host's clock is ahead of the first one's, by the host's name.
Finding clocks_of(std::map<std::string, double> const& ahead);

/// A host's view of the directory of runs.
struct HostFiles {
  enum class Lock : int { excluded, taken, not_supported, unknown };

  std::string problem = {};              ///< why it could not write there; empty: it could
  double seconds = 0;                    ///< to write, sync and rename 16 MiB
  std::vector<std::string> unseen = {};  ///< hosts whose files there it does not see
  Lock lock = Lock::unknown;             ///< what it got while another process held the lock
};
std::vector<Finding> files_of(std::string const& directory, std::map<std::string, HostFiles> const& files);

}  // namespace heddle
