#pragma once

#include <filesystem>
#include <heddle/core/parallel/communicator.hpp>
#include <string>
#include <vector>

#include "examination.hpp"

namespace heddle {

struct ClusterExamination {
  std::string ranks;  ///< a line for each rank
  std::vector<Finding> findings;
};

/// Examines the hosts of a job, and what is between them, in some seconds: where ranks may run, messages between
/// neighbours, `directory` as each host sees it, clocks, and what differs. Writes files named .heddle-doctor-… in
/// `directory`, and removes them. Collective over `world`; the same on every rank.
ClusterExamination examine_cluster(Communicator const& world, std::filesystem::path const& directory);

}  // namespace heddle
