#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/io/dataset/batches.hpp>
#include <numeric>
#include <utility>

#include "shuffle.hpp"

namespace heddle {

namespace {

std::vector<std::int64_t> usable_samples(SampleSource const& samples, std::int64_t epoch, std::int64_t max_length) {
  std::vector<std::int64_t> usable;
  std::int64_t const size = samples.size(epoch);
  for (std::int64_t index = 0; index < size; ++index) {
    if (samples.cost(epoch, index).longer() <= max_length) {
      usable.push_back(index);
    }
  }
  return usable;
}

void add_sample(SampleSource const& samples, GlobalBatch& batch, std::int64_t index) {
  SampleCost const cost = samples.cost(batch.epoch, index);
  batch.samples.push_back(index);
  batch.tokens.target += samples.predicted(batch.epoch, index);
  batch.tokens.all += cost.source + cost.target;
}

std::vector<std::int64_t> costs_of(SampleSource const& samples, GlobalBatch const& batch) {
  std::vector<std::int64_t> costs;
  for (std::int64_t const index : batch.samples) {
    costs.push_back(samples.cost(batch.epoch, index).longer());
  }
  return costs;
}

/// Cuts one data rank's samples into micro-batches.
std::vector<IndexRange> cut_share(std::span<std::int64_t const> costs, MicroBatchCut const& cut) {
  IndexRange const mine = cut_evenly(costs, cut.data.ranks)[static_cast<std::size_t>(cut.data.rank)];
  auto const own = costs.subspan(static_cast<std::size_t>(mine.begin), static_cast<std::size_t>(mine.count()));
  auto ranges = cut_by_tokens(own, cut.most_tokens);
  if (cut.equal && !ranges.empty()) {
    ranges = cut_evenly(own, static_cast<int>(ranges.size()));
    std::erase_if(ranges, [](IndexRange const& range) { return range.count() == 0; });
  }
  for (IndexRange& range : ranges) {
    range = {mine.begin + range.begin, mine.begin + range.end};
  }
  return ranges;
}

}  // namespace

BatchPlanner::BatchPlanner(SampleSource const& samples, Limits const& limits, std::uint64_t seed)
    : samples_(samples), limits_(limits), seed_(seed) {
  begin_epoch(0);
}

void BatchPlanner::begin_epoch(std::int64_t epoch) {
  order_ = usable_samples(samples_, epoch, limits_.max_length);
  if (order_.empty()) {
    throw DataError(
        fmt::format("all {} are longer than model.max_length = {}", samples_.words(epoch), limits_.max_length));
  }
  epoch_ = epoch;
  position_ = 0;
  shuffle(order_, random_key(seed_, "batches.order"), epoch_);
}

GlobalBatch BatchPlanner::next() {
  if (position_ == static_cast<std::int64_t>(order_.size())) {
    begin_epoch(epoch_ + 1);
  }
  GlobalBatch batch{.epoch = epoch_, .samples = {}, .tokens = {}};
  std::int64_t budget = limits_.batch_tokens;
  for (; position_ < static_cast<std::int64_t>(order_.size()); ++position_) {
    std::int64_t const index = order_[static_cast<std::size_t>(position_)];
    std::int64_t const cost = samples_.cost(epoch_, index).longer();
    if (cost > budget && !batch.samples.empty()) {
      break;
    }
    budget -= cost;
    add_sample(samples_, batch, index);
  }
  return batch;
}

std::int64_t BatchPlanner::longest() const {
  std::int64_t longest = 0;
  for (std::int64_t const index : order_) {
    longest = std::max(longest, samples_.cost(epoch_, index).longer());
  }
  return longest;
}

std::int64_t BatchPlanner::tokens() const {
  std::int64_t tokens = 0;
  for (std::int64_t const index : order_) {
    tokens += samples_.cost(epoch_, index).longer();
  }
  return tokens;
}

void BatchPlanner::seek(std::int64_t epoch, std::int64_t position) {
  if (epoch >= 0 && epoch != epoch_) {
    begin_epoch(epoch);
  }
  if (epoch < 0 || position < 0 || position > static_cast<std::int64_t>(order_.size())) {
    throw DataError(
        fmt::format("epoch {}, position {} is no place in a dataset of {} usable samples; is it the dataset the run "
                    "began with?",
                    epoch, position, order_.size()));
  }
  position_ = position;
}

GlobalBatch all_samples(SampleSource const& samples, std::int64_t max_length) {
  GlobalBatch batch;
  for (std::int64_t const index : usable_samples(samples, 0, max_length)) {
    add_sample(samples, batch, index);
  }
  return batch;
}

std::vector<IndexRange> cut_by_tokens(std::span<std::int64_t const> costs, std::int64_t max_tokens) {
  std::vector<IndexRange> ranges;
  std::int64_t used = 0;
  std::int64_t index = 0;
  for (std::int64_t const cost : costs) {
    if (ranges.empty() || used + cost > max_tokens) {
      ranges.push_back({index, index});
      used = 0;
    }
    used += cost;
    ranges.back().end = ++index;
  }
  return ranges;
}

std::vector<IndexRange> cut_evenly(std::span<std::int64_t const> costs, int parts) {
  std::int64_t const total = std::accumulate(costs.begin(), costs.end(), std::int64_t{0});
  std::vector<IndexRange> ranges;
  std::size_t index = 0;
  std::int64_t before = 0;
  for (int part = 0; part < parts; ++part) {
    IndexRange range{static_cast<std::int64_t>(index), 0};
    // A sample belongs to the part in which its middle token falls.
    while (index < costs.size() && (2 * before + costs[index]) * parts < 2 * total * (part + 1)) {
      before += costs[index];
      ++index;
    }
    range.end = static_cast<std::int64_t>(index);
    ranges.push_back(range);
  }
  return ranges;
}

SampledMicroBatches::SampledMicroBatches(SampleSource const& samples, GlobalBatch batch, MicroBatchCut const& cut)
    : samples_(samples),
      batch_(std::move(batch)),
      context_(cut.context),
      ranges_(cut_share(costs_of(samples_, batch_), cut)) {}

Pack SampledMicroBatches::micro_batch(std::int64_t index) const {
  IndexRange const& range = ranges_.at(static_cast<std::size_t>(index));
  auto const indices =
      std::span(batch_.samples).subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.count()));
  return samples_.pack(batch_.epoch, indices, static_cast<std::int32_t>(range.begin), context_);
}

}  // namespace heddle
