#pragma once

#include <heddle/core/model/description.hpp>
#include <heddle/core/parallel/mesh.hpp>

namespace heddle {

/// Why this model cannot be spread over a grid of these sizes (pipeline, data, context, tensor); empty where it can.
/// Also where a layer does not declare an axis that is split, which the reason names with the layer. `model` describes
/// config.model.
/// `longest_sequence` counts tokens with the end token: model.max_length, or what the data have.
std::string layout_problem(Config const& config, ModelDescription const& model, std::array<int, mesh_axes> const& sizes,
                           std::int64_t longest_sequence);

/// The grid that [parallel] asks for, `data = "auto"` taking what the others leave, as rank `rank` of `ranks` sees it.
/// Throws ConfigError, with the reason and the nearest layouts that would work, where there is none.
Mesh make_mesh(Config const& config, ModelDescription const& model, int rank, int ranks);

/// Throws as make_mesh does where the data's longest sequence is too short for the mesh.
void require_long_enough(Config const& config, ModelDescription const& model, Mesh const& mesh, int ranks,
                         std::int64_t longest_sequence);

/// A sentence for each key of [parallel] that is set to something but idle on this mesh.
std::vector<std::string> switches_without_effect(ParallelConfig const& parallel, Mesh const& mesh);

}  // namespace heddle
