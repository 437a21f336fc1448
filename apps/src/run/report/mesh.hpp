#pragma once

#include <boost/json/object.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/model/model_chunk.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The mesh as report.json has it (docs/reference/run-directory.md): "layout", "stages", and in "ranks" the place and
/// the parts of each rank, without measurements. `hosts` are those of the mesh's ranks. Throws ConfigError for an
/// impossible layout.
boost::json::object mesh_to_json(Config const& config, ModelDescription const& model, Mesh const& mesh,
                                 VocabularySizes const& vocabulary, std::vector<std::string> const& hosts);

/// The mesh as text; lines end with a line break.
struct MeshText {
  std::string line;     ///< sizes, hosts and modes
  std::string table;    ///< stages with their layers and shares of the cost, then ranks; "" for one rank
  std::string warning;  ///< a warning of tensor groups that span hosts; "" where none does
};
/// Describes the result of mesh_to_json. Each rank has a line with its host, coordinates, chunks of every sequence,
/// heads, columns and parts of the vocabularies; with more than 64 ranks, adjacent ranks on one host and stage share
/// one.
MeshText describe_mesh(boost::json::object const& mesh);

}  // namespace heddle
