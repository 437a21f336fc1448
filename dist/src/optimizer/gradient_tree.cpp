#include <algorithm>
#include <bit>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/dist/optimizer/gradient_tree.hpp>
#include <iterator>
#include <utility>

namespace heddle {

namespace {

std::int64_t cut(IndexRange const& node) {
  auto const count = static_cast<std::uint64_t>(node.count());
  return node.begin + static_cast<std::int64_t>(std::bit_floor(count - 1));
}

}  // namespace

GradientTree::GradientTree(Communicator const& data, std::shared_ptr<TensorOps> operations, Execution& execution)
    : data_(data), operations_(std::move(operations)), execution_(execution) {}

IndexRange GradientTree::begin(std::int64_t micro_batches, Sums const& sums) {
  if (micro_batches < 1) {
    throw Error("a step of {} micro-batches; at least 1 is needed", micro_batches);
  }
  auto const alike = [](Tensor const& one, Tensor const& other) { return one.shape() == other.shape(); };
  if (!spare_.empty() && !std::ranges::equal(spare_.front(), sums, alike)) {
    spare_.clear();
  }
  whole_ = {0, micro_batches};
  mine_ = share(micro_batches, data_.rank(), data_.size());
  sums_ = sums;
  next_ = mine_.begin;
  held_.clear();
  next_held_ = 0;
  zero();
  return mine_;
}

void GradientTree::micro_batch_done() {
  IndexRange node{next_, next_ + 1};
  ++next_;
  while (!held_.empty() && !(node == whole_)) {
    IndexRange const parent = parent_of(node);
    if (!(held_.back().node == IndexRange{parent.begin, node.begin})) {
      break;
    }
    add(sums_, held_.back().sums);
    held_.pop_back();
    node = parent;
  }
  if (!(node == whole_)) {
    hold(node);
  }
  if (next_ < mine_.end) {
    zero();
  }
}

void GradientTree::hold(IndexRange const& node) {
  if (held_.size() == spare_.size()) {
    Sums& more = spare_.emplace_back();
    std::ranges::transform(sums_, std::back_inserter(more),
                           [](Tensor const& sum) { return Tensor::allocate(sum.dtype(), sum.shape()); });
  }
  held_.push_back({node, spare_[held_.size()]});
  copy(sums_, held_.back().sums);
}

void GradientTree::finish() {
  if (!(mine_ == whole_)) {
    Sums const root = combine(whole_);
    if (!root.empty()) {
      copy(root, sums_);
    }
  }
  std::ranges::for_each(sums_, [this](Tensor const& sum) { data_.broadcast(sum, owner(0)); });
}

/// Returns the node's sums on the owner of its first micro-batch, nothing elsewhere. All ranks walk the nodes in the
/// same order, so the receiver of each message is about to receive it.
GradientTree::Sums GradientTree::combine(IndexRange const& node) {
  if (node.end <= mine_.begin || node.begin >= mine_.end) {
    return {};
  }
  if (node.begin >= mine_.begin && node.end <= mine_.end) {
    return held_[next_held_++].sums;
  }
  std::int64_t const middle = cut(node);
  Sums const left = combine({node.begin, middle});
  Sums const right = combine({middle, node.end});
  int const left_owner = owner(node.begin);
  int const right_owner = owner(middle);
  bool const has_left = left_owner == data_.rank();
  bool const has_right = right_owner == data_.rank();
  if (has_left && has_right) {
    add(left, right);
  } else if (has_left) {
    std::ranges::for_each(sums_, [&](Tensor const& sum) { data_.receive(sum, right_owner); });
    add(left, sums_);
  } else if (has_right) {
    std::ranges::for_each(right, [&](Tensor const& sum) { data_.send(sum, left_owner); });
  }
  return has_left ? left : Sums{};
}

IndexRange GradientTree::parent_of(IndexRange const& node) const {
  IndexRange parent = whole_;
  while (true) {
    std::int64_t const middle = cut(parent);
    IndexRange const child = node.begin < middle ? IndexRange{parent.begin, middle} : IndexRange{middle, parent.end};
    if (child == node) {
      return parent;
    }
    parent = child;
  }
}

int GradientTree::owner(std::int64_t micro_batch) const {
  return owner_of(micro_batch, whole_.count(), data_.size());
}

void GradientTree::zero() const {
  std::ranges::for_each(sums_, [this](Tensor const& sum) { operations_->fill(execution_, sum, 0); });
}

void GradientTree::add(Sums const& into, Sums const& from) const {
  for (std::size_t index = 0; index < into.size(); ++index) {
    operations_->add(execution_, into[index], from[index]);
  }
}

void GradientTree::copy(Sums const& from, Sums const& to) const {
  for (std::size_t index = 0; index < from.size(); ++index) {
    operations_->copy(execution_, from[index], to[index]);
  }
}

}  // namespace heddle
