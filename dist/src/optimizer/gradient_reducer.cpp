#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/dist/optimizer/gradient_reducer.hpp>

namespace heddle {

namespace {

/// Where a node over [begin, end) is cut.
std::int64_t cut(std::int64_t begin, std::int64_t end) {
  auto const count = static_cast<std::uint64_t>(end - begin);
  return begin + static_cast<std::int64_t>(std::bit_floor(count - 1));
}

/// Loss sums are few, so the host adds them whatever memory they are in.
void add_on_host(Tensor const& into, Tensor const& from) {
  auto sum = to_host<double>(into);
  auto const addend = to_host<double>(from);
  for (std::size_t index = 0; index < sum.size(); ++index) {
    sum[index] += addend[index];
  }
  copy_from_host(into, sum.data());
}

void copy_on_host(Tensor const& from, Tensor const& to) {
  copy_from_host(to, to_host<double>(from).data());
}

void require_loss_sums(Tensor const& loss_sums) {
  loss_sums.require(DType::float64, {loss_sums.size()}, "the loss sums");
}

}  // namespace

/// One step's walk over the tree. First this rank's own part of it: the largest subtrees whose micro-batches are all
/// its own, one after another. Only then partial sums travel, so that no rank waits while it still has work of its own.
/// The reducer's gradient buffer is where micro-batches add; `held` are finished subtrees, leftmost first.
struct GradientReducer::Tree {
  GradientReducer& reducer;
  std::function<void(std::int64_t)> const& run_micro_batch;
  std::int64_t micro_batches;
  Partial working;
  Communicator const& group = reducer.parallel_.data;
  IndexRange mine = share(micro_batches, group.rank(), group.size());
  std::size_t spare_in_use = 0;
  std::vector<Partial> held = {};
  std::size_t next_held = 0;

  int owner(std::int64_t index) const { return owner_of(index, micro_batches, group.size()); }

  Partial take_spare() {
    auto& spare = reducer.spare_;
    if (spare_in_use == spare.size()) {
      spare.push_back({Tensor::allocate(working.gradients.dtype(), working.gradients.shape()),
                       Tensor::allocate(DType::float64, working.loss_sums.shape())});
    }
    return spare[spare_in_use++];
  }

  /// working = the sum over [begin, end), all this rank's own.
  void sum_own(std::int64_t begin, std::int64_t end) {
    if (end - begin == 1) {
      reducer.operations_->fill(reducer.execution_, working.gradients, 0);
      copy_from_host(working.loss_sums, std::vector<double>(static_cast<std::size_t>(working.loss_sums.size())).data());
      run_micro_batch(begin);
      return;
    }
    std::int64_t const middle = cut(begin, end);
    sum_own(begin, middle);
    std::size_t const in_use = spare_in_use;
    Partial const left = take_spare();
    reducer.copy(working, left);
    sum_own(middle, end);
    reducer.add(working, left);
    spare_in_use = in_use;
  }

  void hold_own(std::int64_t begin, std::int64_t end) {
    if (end <= mine.begin || begin >= mine.end) {
      return;
    }
    if (begin >= mine.begin && end <= mine.end) {
      sum_own(begin, end);
      Partial const finished = take_spare();
      reducer.copy(working, finished);
      held.push_back(finished);
      return;
    }
    hold_own(begin, cut(begin, end));
    hold_own(cut(begin, end), end);
  }

  /// The sum over [begin, end) on the owner of `begin`; nothing elsewhere. All ranks walk the nodes in the same order,
  /// so each message meets a rank that is on its way to it.
  Partial combine(std::int64_t begin, std::int64_t end) {
    if (end <= mine.begin || begin >= mine.end) {
      return {};
    }
    if (begin >= mine.begin && end <= mine.end) {
      return held[next_held++];
    }
    std::int64_t const middle = cut(begin, end);
    Partial const left = combine(begin, middle);
    Partial const right = combine(middle, end);
    int const left_owner = owner(begin);
    int const right_owner = owner(middle);
    bool const has_left = left_owner == group.rank();
    bool const has_right = right_owner == group.rank();
    if (has_left && has_right) {
      reducer.add(left, right);
    } else if (has_left) {
      group.receive(working.gradients, right_owner);
      group.receive(working.loss_sums, right_owner);
      reducer.add(left, working);
    } else if (has_right) {
      group.send(right.gradients, left_owner);
      group.send(right.loss_sums, left_owner);
    }
    return has_left ? left : Partial{};
  }
};

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
      partial_sums_(parallel, parameters, operations_, execution, options.bucket_elements) {
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

void GradientReducer::reduce_tree(std::int64_t micro_batches, Tensor const& loss_sums,
                                  std::function<void(std::int64_t)> const& run_micro_batch) {
  require_loss_sums(loss_sums);
  if (micro_batches < 1) {
    throw Error(fmt::format("a step of {} micro-batches; at least 1 is needed", micro_batches));
  }
  if (!spare_.empty() && !(spare_.front().loss_sums.shape() == loss_sums.shape())) {
    spare_.clear();
  }
  Partial const total{parameters_.gradients(), loss_sums};
  Tree tree{*this, run_micro_batch, micro_batches, total};
  if (tree.mine == IndexRange{0, micro_batches}) {
    tree.sum_own(0, micro_batches);
  } else {
    tree.hold_own(0, micro_batches);
    Partial const root = tree.combine(0, micro_batches);
    if (!root.gradients.empty()) {
      copy(root, total);
    }
  }
  int const root_owner = tree.owner(0);
  parallel_.data.broadcast(total.gradients, root_owner);
  parallel_.data.broadcast(total.loss_sums, root_owner);
  // What follows adds the same numbers in the same order whatever the number of data ranks.
  reduce_buckets(parallel_.context);
  scattered_ = false;
  partial_sums_.sum(reduced());
  parallel_.context.all_reduce(loss_sums);
  parallel_.pipeline.all_reduce(loss_sums);
}

void GradientReducer::add(Partial const& into, Partial const& from) const {
  operations_->add(execution_, into.gradients, from.gradients);
  add_on_host(into.loss_sums, from.loss_sums);
}

void GradientReducer::copy(Partial const& from, Partial const& to) const {
  operations_->copy(execution_, from.gradients, to.gradients);
  copy_on_host(from.loss_sums, to.loss_sums);
}

}  // namespace heddle
