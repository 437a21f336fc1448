#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/dist/optimizer/scattered_trees.hpp>

namespace heddle {

ScatteredTrees::ScatteredTrees(ParallelState const& parallel, ParameterSet const& parameters, BufferShards const& parts,
                               std::shared_ptr<TensorOps> operations, Execution& execution)
    : parallel_(parallel),
      replicas_(parallel.replicas.after(execution)),
      context_{parallel.mesh.coordinate(MeshAxis::context), parallel.mesh.size(MeshAxis::context)},
      parameters_(parameters),
      operations_(std::move(operations)),
      execution_(execution) {
  DType const dtype = parameters.gradients().dtype();
  std::int64_t longest = 0;
  for (BufferShards::Bucket const& bucket : parts.buckets()) {
    DividedSection const* const section = parameters.section_of(bucket.range.begin);
    Trees& trees = buckets_.emplace_back(Trees{.range = bucket.range,
                                               .own = parts.part(bucket, replicas_.rank()),
                                               .section = section != nullptr && section->divides_gradient});
    trees.copied = parts.first_copy(bucket) < replicas_.size() ? section : nullptr;
    for (int replica = 0; replica < parts.first_copy(bucket); ++replica) {
      trees.parts.push_back(parts.part(bucket, replica).count());
    }
    make_trees(trees, dtype, trees.own.count());
    longest = std::max(longest, trees.own.count());
  }
  received_ = Tensor::allocate(dtype, {replicas_.size() * longest});
  from_run_ = Tensor::allocate(dtype, {parallel.shards.size() > 1 ? parallel.shards.size() * longest : 0});
}

/// The first sum of a section is in the gradients' buffer, which passes leave alone.
void ScatteredTrees::make_trees(Trees& trees, DType dtype, std::int64_t elements) const {
  for (int context = 0; context < context_.ranks; ++context) {
    trees.sums.push_back(context == 0 && trees.section ? parameters_.gradients_in(trees.own)
                                                       : Tensor::allocate(dtype, {elements}));
    trees.trees.emplace_back(Communicator::self(), operations_, execution_);
  }
}

void ScatteredTrees::begin(Trees& trees, std::int64_t micro_batches) const {
  for (std::size_t context = 0; context < trees.trees.size(); ++context) {
    static_cast<void>(trees.trees[context].begin(micro_batches, {trees.sums[context]}));
  }
}

void ScatteredTrees::begin(std::int64_t micro_batches, Tensor const& loss_sums) {
  micro_batches_left_ = micro_batches;
  if (losses_.trees.empty()) {
    make_trees(losses_, DType::float64, loss_sums.size());
    received_losses_ = Tensor::allocate(DType::float64, {replicas_.size(), loss_sums.size()});
  }
  begin(losses_, micro_batches);
  std::ranges::for_each(buckets_, [&](Trees& trees) { begin(trees, micro_batches); });
}

void ScatteredTrees::add_leaves(Trees& trees, Tensor const& leaves) const {
  std::int64_t const data_ranks = replicas_.size() / context_.ranks;
  for (std::int64_t data = 0; data < std::min(data_ranks, micro_batches_left_); ++data) {
    for (std::size_t context = 0; context < trees.trees.size(); ++context) {
      std::int64_t const replica = data * context_.ranks + static_cast<std::int64_t>(context);
      Tensor const leaf = leaves.rows(replica, 1);
      operations_->copy(execution_, leaf.reshaped({leaf.size()}), trees.sums[context]);
      trees.trees[context].micro_batch_done();
    }
  }
}

void ScatteredTrees::exchange(Trees& trees, Tensor const& gradients) {
  std::int64_t const own = trees.own.count();
  if (trees.copied != nullptr) {
    Tensor const leaves = from_run_.rows(0, trees.copied->parts * own).reshaped({trees.copied->parts, own});
    parallel_.shards.after(execution_)
        .all_to_all_rows(gradients, trees.parts, leaves.reshaped({leaves.size()}),
                         std::vector(trees.parts.size(), own));
    add_parts(*trees.copied, leaves);
    return;
  }
  std::int64_t const replicas = replicas_.size();
  std::vector<std::int64_t> const received(static_cast<std::size_t>(replicas), own);
  Tensor const leaves = received_.rows(0, replicas * own);
  replicas_.all_to_all_rows(gradients, trees.parts, leaves, received);
  if (own > 0) {
    add_leaves(trees, leaves.reshaped({replicas, own}));
  }
}

ScatteredTrees::Trees& ScatteredTrees::of(IndexRange const& range) {
  auto const found =
      std::ranges::lower_bound(buckets_, range.begin, {}, [](Trees const& each) { return each.range.begin; });
  if (found == buckets_.end() || !(found->range == range)) {
    throw Error("gradients of the places [{}, {}), which are not a bucket", range.begin, range.end);
  }
  return *found;
}

void ScatteredTrees::add_parts(DividedSection const& section, Tensor const& gradients) {
  Communicator const runs = copies_of(parallel_, section).after(execution_);
  std::int64_t const own = section.own.count();
  Tensor leaves = gradients;
  if (runs.size() > 1) {
    leaves = received_.rows(0, replicas_.size() * own);
    runs.all_gather(gradients.reshaped({gradients.size()}), leaves);
  }
  add_leaves(of(section.range), leaves.reshaped({replicas_.size(), own}));
}

void ScatteredTrees::round_done(Tensor const& loss_sums) {
  for (Trees& trees : buckets_) {
    if (!trees.section) {
      Tensor const whole = parameters_.gradients_in(trees.range);
      exchange(trees, whole);
      operations_->fill(execution_, whole, 0);
    }
  }
  replicas_.all_gather(loss_sums, received_losses_);
  add_leaves(losses_, received_losses_);
  operations_->fill(execution_, loss_sums, 0);
  micro_batches_left_ -= replicas_.size() / context_.ranks;
}

void ScatteredTrees::finish(Tensor const& loss_sums) {
  for (Trees const& trees : buckets_) {
    if (trees.own.count() == 0) {
      continue;
    }
    Tensor const own = parameters_.gradients_in(trees.own);
    for (std::size_t context = 1; context < trees.sums.size(); ++context) {
      operations_->add(execution_, trees.sums.front(), trees.sums[context]);
    }
    if (!trees.section) {
      operations_->copy(execution_, trees.sums.front(), own);
    }
  }
  operations_->copy(execution_, losses_.sums[static_cast<std::size_t>(context_.rank)], loss_sums);
}

}  // namespace heddle
