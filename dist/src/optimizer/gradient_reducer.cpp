#include <algorithm>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/dist/optimizer/gradient_reducer.hpp>

namespace heddle {

namespace {

void require_loss_sums(Tensor const& loss_sums) {
  loss_sums.require(DType::float64, {loss_sums.size()}, "the loss sums");
}

}  // namespace

GradientReducer::GradientReducer(ParallelState const& parallel, ParameterSet& parameters,
                                 std::shared_ptr<TensorOps> operations, Execution& execution, Options const& options)
    : parallel_(parallel),
      parameters_(parameters),
      operations_(std::move(operations)),
      execution_(execution),
      options_(options),
      parts_(placed_parameters(parameters), options.bucket_elements, parallel.replicas.size()),
      whole_buckets_(BufferParts(placed_parameters(parameters), options.bucket_elements, 1).buckets()),
      everything_{{0, parameters.size()}},
      own_(parts_.parts_of(parallel.replicas.rank())),
      partial_sums_(parallel, parameters, operations_, execution, options.bucket_elements),
      tree_(parallel.data, operations_, execution) {
  if (options.scatter) {
    std::int64_t largest = 0;
    for (IndexRange const& part : own_) {
      largest = std::max(largest, part.count());
    }
    scattered_part_ = Tensor::allocate(parameters.gradients().dtype(), {largest});
  }
}

void GradientReducer::reduce(Tensor const& loss_sums) {
  require_loss_sums(loss_sums);
  if (options_.scatter) {
    scatter_buckets();
  } else {
    reduce_buckets(parallel_.replicas);
  }
  scattered_ = options_.scatter && parallel_.replicas.size() > 1;
  partial_sums_.sum(reduced());
  parallel_.replicas.all_reduce(loss_sums);
  parallel_.pipeline.all_reduce(loss_sums);
}

void GradientReducer::reduce_buckets(Communicator const& group) const {
  for (IndexRange const& bucket : whole_buckets_) {
    group.all_reduce(parameters_.gradients().rows(bucket.begin, bucket.count()));
  }
}

void GradientReducer::scatter_buckets() const {
  Tensor const& gradients = parameters_.gradients();
  for (std::size_t index = 0; index < own_.size(); ++index) {
    IndexRange const& bucket = parts_.buckets()[index];
    IndexRange const& part = own_[index];
    Tensor const sum = scattered_part_.rows(0, part.count());
    parallel_.replicas.reduce_scatter(gradients.rows(bucket.begin, bucket.count()), sum);
    operations_->copy(execution_, sum, gradients.rows(part.begin, part.count()));
  }
}

IndexRange GradientReducer::begin_tree(std::int64_t micro_batches, Tensor const& loss_sums) {
  require_loss_sums(loss_sums);
  tree_losses_ = loss_sums;
  return tree_.begin(micro_batches, {parameters_.gradients(), loss_sums});
}

void GradientReducer::finish_tree() {
  tree_.finish();
  // What follows adds the same numbers in the same order whatever the number of data ranks.
  reduce_buckets(parallel_.context);
  scattered_ = false;
  partial_sums_.sum(reduced());
  parallel_.context.all_reduce(tree_losses_);
  parallel_.pipeline.all_reduce(tree_losses_);
}

}  // namespace heddle
