#include "expert_exchange.hpp"

#include <algorithm>
#include <numeric>

namespace heddle {

ExpertExchange::ExpertExchange(LayerSpec const& spec, std::int64_t experts)
    : ranks_(spec.parameters.expert_ranks() > 1 ? spec.parallel.experts : Communicator::self()), experts_(experts) {}

std::int64_t ExpertExchange::Rows::total() const {
  return std::accumulate(received.begin(), received.end(), std::int64_t{0});
}

ExpertExchange::Rows ExpertExchange::plan(Counts counts) const {
  auto const ranks = static_cast<std::size_t>(ranks_.size());
  auto const own = static_cast<std::size_t>(experts_) / ranks;
  // Equal counts, which stay where nothing is sent: a plan of memory and time.
  std::vector<std::int32_t> all;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    all.insert(all.end(), counts.begin(), counts.end());
  }
  std::vector<std::int32_t> mine(counts.begin(), counts.end());
  ranks_.all_gather(Tensor::borrow(mine.data(), DType::int32, {experts_}, MemorySpace::host),
                    Tensor::borrow(all.data(), DType::int32, {ranks_.size() * experts_}, MemorySpace::host));
  Rows rows;
  auto const sum = [](auto begin, std::size_t count) {
    return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(count), std::int64_t{0});
  };
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto const of_rank = all.begin() + static_cast<std::ptrdiff_t>(rank * ranks * own);
    auto const for_this = of_rank + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(ranks_.rank()) * own);
    rows.sent.push_back(sum(mine.begin() + static_cast<std::ptrdiff_t>(rank * own), own));
    rows.received.push_back(sum(for_this, own));
    rows.counts.insert(rows.counts.end(), for_this, for_this + static_cast<std::ptrdiff_t>(own));
  }
  return rows;
}

void ExpertExchange::to_experts(Tensor const& x, Rows const& rows, Tensor const& y) const {
  if (moves()) {
    ranks_.all_to_all_rows(x, rows.sent, y, rows.received);
  }
}

void ExpertExchange::from_experts(Tensor const& y, Rows const& rows, Tensor const& x) const {
  if (moves()) {
    ranks_.all_to_all_rows(y, rows.received, x, rows.sent);
  }
}

}  // namespace heddle
