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

double GradientNorm::of_whole() const {
  return norm(sum_of_squares(counted_));
}

double GradientNorm::of_parts(std::vector<IndexRange> const& own) const {
  return norm(summed_over(parallel_.replicas, sum_of_squares(intersection(counted_, own))));
}

double GradientNorm::sum_of_squares(std::vector<IndexRange> const& ranges) const {
  double sum = 0;
  for (IndexRange const& range : ranges) {
    sum += operations_->sum_of_squares(execution_, parameters_.gradients().rows(range.begin, range.count()));
  }
  return sum;
}

double GradientNorm::norm(double own_sum_of_squares) const {
  return std::sqrt(summed_over(parallel_.pipeline, summed_over(parallel_.tensor, own_sum_of_squares)));
}

}  // namespace heddle
