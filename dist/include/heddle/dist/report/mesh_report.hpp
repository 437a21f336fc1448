#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/model/model_part.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Each rank's machine by name, in rank order. Collective over `world`.
std::vector<std::string> gather_hosts(Communicator const& world);

/// The mesh in text for people: the stages with their layers and shares of the cost, then a line for each rank with its
/// machine, its coordinates, its chunks of every sequence, its heads, columns and parts of the vocabularies; of more
/// than 64 ranks a line for neighbours on one machine and stage. Warns of tensor groups that span machines. `hosts` are
/// those of the mesh's ranks; one rank: a single line. Throws ConfigError for a layout that cannot be.
std::string describe_mesh(Config const& config, Mesh const& mesh, VocabularySizes const& vocabulary,
                          std::vector<std::string> const& hosts);

}  // namespace heddle
