#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/model/model_part.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The name of each rank's machine, in rank order. Collective over `world`.
std::vector<std::string> gather_hosts(Communicator const& world);

/// The mesh as text: the stages with their layers and shares of the cost, then a line for each rank with its machine,
/// its coordinates, its chunks of every sequence, its heads, columns and parts of the vocabularies; with more than 64
/// ranks, a line for adjacent ranks on one machine and stage. Warns of tensor groups that span machines. `hosts` are
/// those of the mesh's ranks; one rank: a single line. Throws ConfigError for an impossible layout.
std::string describe_mesh(Config const& config, ModelDescription const& model, Mesh const& mesh,
                          VocabularySizes const& vocabulary, std::vector<std::string> const& hosts);

}  // namespace heddle
