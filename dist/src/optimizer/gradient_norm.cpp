#include <cmath>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/optimizer/buffer_parts.hpp>
#include <heddle/dist/optimizer/gradient_norm.hpp>

namespace heddle {

namespace {

double summed_over(Communicator const& group, double value) {
  all_reduce_values(group, std::span(&value, 1));
  return value;
}

}  // namespace

bool counts_here(ParameterSpec const& spec, Mesh const& mesh) {
  bool const whole_on_each_tensor_rank = spec.shard.axis < 0 || spec.shard.mesh_axis != MeshAxis::tensor;
  if (whole_on_each_tensor_rank && mesh.coordinate(MeshAxis::tensor) != 0) {
    return false;
  }
  return spec.stages.empty() || spec.stages.front() == mesh.coordinate(MeshAxis::pipeline);
}

GradientNorm::GradientNorm(ParallelState const& parallel, ParameterSet const& parameters,
                           std::shared_ptr<TensorOps> operations, Execution& execution)
    : parallel_(parallel), parameters_(parameters), operations_(std::move(operations)), execution_(execution) {
  bool joins = false;
  for (Parameter const& parameter : parameters.all()) {
    bool const shared = parameter.spec.stages.size() > 1;
    if (!counts_here(parameter.spec, parallel.mesh) || parameter.rule.frozen) {
      joins = false;
      continue;
    }
    // A parameter of several stages is separate: the places of its neighbours depend on the number of replicas.
    if (joins && !shared) {
      counted_.back().end = parameter.place.end;
    } else {
      counted_.push_back(parameter.place);
    }
    joins = !shared;
  }
}

void GradientNorm::add(std::vector<IndexRange> const& ranges, Tensor const& sum) const {
  for (IndexRange const& range : intersection(counted_, ranges)) {
    operations_->add_sum_of_squares(execution_, parameters_.gradients().rows(range.begin, range.count()), sum);
  }
}

double GradientNorm::of(double own_sum_of_squares, bool scattered) const {
  double sum = own_sum_of_squares;
  if (scattered) {
    sum = summed_over(parallel_.replicas, sum);
  }
  return std::sqrt(summed_over(parallel_.pipeline, summed_over(parallel_.tensor, sum)));
}

}  // namespace heddle
