#pragma once

#include <heddle/dist/optimizer/distributed_optimizer.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Norms of the whole model by layer: the parameters whose names begin with "encoder.layers.0.self_attention" form one
/// layer; a parameter that belongs to no sublayer is a layer by itself.
struct LayerNorms {
  std::vector<std::string> layers;  ///< in the model's order
  std::vector<double> parameters;
  std::vector<double> gradients;  ///< norms of the last step's reduced gradient before clipping, 0 if frozen
};

/// Equal on every rank; each number counts once. Collective over the world.
LayerNorms layer_norms(ParallelState const& parallel, WholeModel const& model, ParameterSet const& parameters,
                       DistributedOptimizer const& optimizer, TensorOps& operations, Execution& execution);

/// "encoder.layers.0.self_attention" of "encoder.layers.0.self_attention.q.weight"; other names stay as they are.
std::string layer_of(std::string const& parameter);

}  // namespace heddle
