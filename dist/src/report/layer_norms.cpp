#include <cmath>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/optimizer/buffer_shards.hpp>
#include <heddle/dist/report/layer_norms.hpp>
#include <map>

namespace heddle {

std::string layer_of(std::string const& parameter) {
  std::size_t const layers = parameter.find(".layers.");
  if (layers == std::string::npos) {
    return parameter;
  }
  std::size_t const number = parameter.find('.', layers + 1) + 1;
  std::size_t const sublayer = parameter.find('.', number) + 1;
  return sublayer == 0 ? parameter : parameter.substr(0, parameter.find('.', sublayer));
}

LayerNorms layer_norms(ParallelState const& parallel, WholeModel const& model, ParameterSet const& parameters,
                       DistributedOptimizer const& optimizer, TensorOps& operations, Execution& execution) {
  LayerNorms norms;
  std::map<std::string, std::size_t> index;
  for (std::string const& name : model.names()) {
    std::string const layer = layer_of(name);
    if (index.try_emplace(layer, norms.layers.size()).second) {
      norms.layers.push_back(layer);
    }
  }
  std::size_t const count = norms.layers.size();
  Tensor const own_sums = Tensor::allocate(DType::float64, {2 * static_cast<std::int64_t>(count)});
  bool const sharded = optimizer.sharded();
  for (Parameter const& parameter : parameters.all()) {
    if (!parameters.counts(parameter)) {
      continue;
    }
    std::size_t const layer = index.at(layer_of(parameter.spec.name));
    IndexRange const elements = elements_of(parameter);
    auto const add_squares = [&](Tensor const& values, std::size_t place) {
      operations.add_sum_of_squares(execution, values, own_sums.rows(static_cast<std::int64_t>(place), 1));
    };
    IndexRange const held = parameters.held_places(parameter);
    if (held.count() > 0 &&
        (!sharded || parameters.section_of(parameter) != nullptr || parallel.replicas.rank() == 0)) {
      add_squares(parameters.values_in(held), layer);
    }
    if (!parameter.frozen()) {
      // Where the optimizer is sharded each replica has its part of the sum.
      for (IndexRange const& range : intersection({elements}, optimizer.local().parts())) {
        add_squares(parameters.gradients_in(range), count + layer);
      }
    }
  }
  auto sums = to_host<double>(own_sums);  // of squares: parameters, then gradients
  sum_over_model(parallel, sums);
  if (sharded) {
    all_reduce_values(parallel.replicas, std::span(sums));
  }
  for (double& sum : sums) {
    sum = std::sqrt(sum);
  }
  auto const middle = sums.begin() + static_cast<std::ptrdiff_t>(count);
  norms.parameters.assign(sums.begin(), middle);
  norms.gradients.assign(middle, sums.end());
  return norms;
}

}  // namespace heddle
