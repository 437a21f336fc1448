#include "expert_exchange.hpp"

#include <algorithm>
#include <numeric>

namespace heddle {

namespace {

/// A matrix of the same bits.
Tensor as_matrix(Tensor const& x) {
  return x.shape().rank() == 1 ? x.with_dtype(DType::float32).reshaped({x.dim(0), 1}) : x;
}

Tensor copied(LayerContext& context, std::vector<std::int32_t> const& values) {
  Tensor const copy = context.arena.allocate(DType::int32, {std::ssize(values)});
  copy_from_host(copy, values.data());
  return copy;
}

}  // namespace

ExpertExchange::ExpertExchange(LayerSpec const& spec, std::int64_t experts)
    : ranks_(spec.parameters.expert_ranks() > 1 ? spec.parallel.experts : Communicator::self()),
      experts_(experts),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {}

std::int64_t ExpertExchange::Rows::total() const {
  return std::accumulate(received.begin(), received.end(), std::int64_t{0});
}

ExpertExchange::Rows ExpertExchange::plan(LayerContext& context, Counts counts) const {
  auto const ranks = static_cast<std::ptrdiff_t>(ranks_.size());
  std::ptrdiff_t const own = experts_ / ranks;
  std::vector<std::int32_t> mine(counts.begin(), counts.end());
  // Equal counts, which stay where nothing is sent: a plan of memory and time.
  std::vector<std::int32_t> all;
  for (std::ptrdiff_t rank = 0; rank < ranks; ++rank) {
    all.insert(all.end(), mine.begin(), mine.end());
  }
  ranks_.all_gather(Tensor::borrow(mine.data(), DType::int32, {experts_}, MemorySpace::host),
                    Tensor::borrow(all.data(), DType::int32, {ranks * experts_}, MemorySpace::host));
  Rows rows;
  auto const sum = [&](auto begin) { return std::accumulate(begin, begin + own, std::int64_t{0}); };
  for (std::ptrdiff_t rank = 0; rank < ranks; ++rank) {
    auto const for_this = all.begin() + rank * experts_ + ranks_.rank() * own;
    rows.sent.push_back(sum(mine.begin() + rank * own));
    rows.received.push_back(sum(for_this));
    rows.counts.insert(rows.counts.end(), for_this, for_this + own);
  }
  if (moves() && (context.access == nullptr || !context.access->keeps_ranks_apart())) {
    join_groups(context, rows);
  }
  return rows;
}

void ExpertExchange::join_groups(LayerContext& context, Rows& rows) const {
  auto const groups = static_cast<std::ptrdiff_t>(rows.counts.size());
  std::ptrdiff_t const own = experts_ / ranks_.size();
  std::vector<std::int32_t> firsts(rows.counts.size());
  std::exclusive_scan(rows.counts.begin(), rows.counts.end(), firsts.begin(), 0);
  std::vector<std::int32_t> order;
  std::vector<std::int32_t> inverse(static_cast<std::size_t>(rows.total()));
  std::vector<std::int32_t> counts(static_cast<std::size_t>(own));
  for (std::ptrdiff_t expert = 0; expert < own; ++expert) {
    for (std::ptrdiff_t group = expert; group < groups; group += own) {
      auto const first = static_cast<std::size_t>(group);
      counts[static_cast<std::size_t>(expert)] += rows.counts[first];
      for (std::int32_t row = firsts[first]; row < firsts[first] + rows.counts[first]; ++row) {
        inverse[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(order.size());
        order.push_back(row);
      }
    }
  }
  rows.counts = std::move(counts);
  rows.order = copied(context, order);
  rows.inverse = copied(context, inverse);
}

void ExpertExchange::to_experts(LayerContext& context, Tensor const& x, Rows const& rows, Tensor const& y) const {
  if (!moves()) {
    return;
  }
  ArenaScope const scope(context.arena);
  bool const ordered = !rows.order.empty();
  Tensor const received = ordered ? context.arena.allocate(y.dtype(), y.shape()) : y;
  ranks_.all_to_all_rows(x, rows.sent, received, rows.received);
  if (ordered) {
    tensor_ops_->gather_rows(context.execution, as_matrix(received), rows.order, as_matrix(y));
  }
}

void ExpertExchange::from_experts(LayerContext& context, Tensor const& y, Rows const& rows, Tensor const& x) const {
  if (!moves()) {
    return;
  }
  ArenaScope const scope(context.arena);
  Tensor ordered = y;
  if (!rows.inverse.empty()) {
    ordered = context.arena.allocate(y.dtype(), y.shape());
    tensor_ops_->gather_rows(context.execution, as_matrix(y), rows.inverse, as_matrix(ordered));
  }
  ranks_.all_to_all_rows(ordered, rows.received, x, rows.sent);
}

}  // namespace heddle
