#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/model/description.hpp>
#include <heddle/core/model/model_chunk.hpp>
#include <heddle/core/parallel/mesh.hpp>
#include <heddle/core/tasks/task.hpp>

namespace heddle {

/// The reason why this model cannot be spread over a mesh of this shape; empty
/// if it can. Includes a layer that does not declare an axis that is split; the reason names it. `model` describes
/// config.model. `longest_sequence` counts tokens with the end token: model.max_length, or the longest of the
/// data.
std::string layout_problem(Config const& config, ModelDescription const& model, MeshShape const& shape,
                           std::int64_t longest_sequence);

/// Whether the model has a layer whose experts parallel.expert can divide.
bool has_experts(ModelDescription const& model);

/// The sizes of [parallel]; data is 0 where it is open.
MeshShape shape_of(ParallelConfig const& parallel);
void set_shape(ParallelConfig& parallel, MeshShape const& shape);

/// The mesh of [parallel], seen by rank `rank` of `ranks`; `data = "auto"` takes the ranks that the other axes leave.
/// Throws ConfigError, with the reason and the nearest layouts that would work, if there is none.
Mesh make_mesh(Config const& config, ModelDescription const& model, int rank, int ranks);

/// Throws as make_mesh does if the data's longest sequence is too short for the mesh.
void require_long_enough(Config const& config, ModelDescription const& model, Mesh const& mesh, int ranks,
                         std::int64_t longest_sequence);

/// A sentence for each key that is set but has no effect: of [parallel] on this mesh, of a stack that the model does
/// not have, of another task than the configuration's, and of frozen groups of parameters.
std::vector<std::string> keys_without_effect(Config const& config, Mesh const& mesh, Task const& task);

/// Names the tables that model.tie_embeddings ties if the two vocabularies, or the stacks' embeddings, are separate; ""
/// if it ties all or none, or a stack's input embeds no tokens.
std::string tied_tables(ModelDescription const& model, VocabularySizes const& vocabulary);

}  // namespace heddle
