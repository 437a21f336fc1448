#include <algorithm>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <heddle/dist/optimizer/gradient_reducer.hpp>

namespace heddle {

namespace {

void require_loss_sums(Tensor const& loss_sums) {
  loss_sums.require(DType::float64, {loss_sums.size()}, "the loss sums");
}

}  // namespace

std::int64_t GradientReducer::bucket_for(int replicas) {
  return std::max(default_bucket, replicas * eager_elements);
}

GradientReducer::GradientReducer(ParallelState const& parallel, ParameterSet& parameters,
                                 std::shared_ptr<TensorOps> operations, Execution& execution, Options const& options)
    : parallel_(parallel),
      parameters_(parameters),
      options_(options),
      parts_(placed_parameters(parameters), options.bucket_elements, parallel.replicas.size()),
      everything_{{0, parameters.size()}},
      own_(parts_.parts_of(parallel.replicas.rank())),
      buckets_(parallel.replicas, parameters, execution,
               options.scatter ? parts_.buckets()
                               : BufferParts(placed_parameters(parameters), options.bucket_elements, 1).buckets(),
               options.scatter ? own_ : std::vector<IndexRange>()),
      partial_sums_(parallel, parameters, operations, execution, options.bucket_elements),
      tree_(parallel.data, operations, execution) {}

void GradientReducer::reduce(Tensor const& loss_sums) {
  require_loss_sums(loss_sums);
  buckets_.finish();
  scattered_ = options_.scatter && parallel_.replicas.size() > 1;
  partial_sums_.sum(reduced());
  parallel_.replicas.all_reduce(loss_sums);
  parallel_.pipeline.all_reduce(loss_sums);
}

void GradientReducer::sum_over_context() const {
  // MPI may choose its order by size: the same pieces for any number of data ranks.
  Tensor const& gradients = parameters_.gradients();
  for (std::int64_t begin = 0; begin < gradients.size(); begin += default_bucket) {
    parallel_.context.all_reduce(gradients.rows(begin, std::min(default_bucket, gradients.size() - begin)));
  }
}

IndexRange GradientReducer::begin_tree(std::int64_t micro_batches, Tensor const& loss_sums) {
  require_loss_sums(loss_sums);
  tree_losses_ = loss_sums;
  return tree_.begin(micro_batches, {parameters_.gradients(), loss_sums});
}

void GradientReducer::finish_tree() {
  tree_.finish();
  // The later sums add the same numbers in the same order for any number of data ranks.
  sum_over_context();
  scattered_ = false;
  partial_sums_.sum(reduced());
  parallel_.context.all_reduce(tree_losses_);
  parallel_.pipeline.all_reduce(tree_losses_);
}

}  // namespace heddle
