#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/io/dataset/batches.hpp>
#include <iterator>
#include <numeric>
#include <utility>

namespace heddle {

namespace {

using UsableSamples = std::vector<std::pair<std::int64_t, SampleCost>>;

UsableSamples usable_samples(SampleSource const& samples, std::int64_t epoch, std::int64_t window,
                             std::int64_t max_length) {
  UsableSamples usable;
  for (std::int64_t const index : samples.window(epoch, window)) {
    SampleCost const cost = samples.cost(epoch, index);
    if (cost.longer() <= max_length) {
      usable.emplace_back(index, cost);
    }
  }
  return usable;
}

std::vector<std::int64_t> longer_sides(std::vector<SampleCost> const& costs) {
  std::vector<std::int64_t> longer;
  std::ranges::transform(costs, std::back_inserter(longer), &SampleCost::longer);
  return longer;
}

/// Tokens of a sequence on a context rank: see ContextRows.
std::int64_t rows_of_rank(std::int64_t length, GroupMember context) {
  if (context.ranks == 1) {
    return length;
  }
  int const chunks = 2 * context.ranks;
  return share(length, context.rank, chunks).count() + share(length, chunks - 1 - context.rank, chunks).count();
}

/// Cuts one data rank's samples into micro-batches.
std::vector<IndexRange> cut_share(std::span<std::int64_t const> costs, MicroBatchCut const& cut) {
  IndexRange const mine = cut_evenly(costs, cut.data.ranks)[static_cast<std::size_t>(cut.data.rank)];
  auto const own = costs.subspan(static_cast<std::size_t>(mine.begin), static_cast<std::size_t>(mine.count()));
  auto ranges = cut_by_tokens(own, cut.max_tokens);
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

void GlobalBatch::add(SampleSource const& source, std::int64_t index, SampleCost cost) {
  samples.push_back(index);
  costs.push_back(cost);
  tokens.target += source.predicted(epoch, index);
  tokens.all += cost.source + cost.target;
}

BatchPlanner::BatchPlanner(SampleSource const& samples, Limits const& limits, std::uint64_t seed)
    : samples_(samples),
      limits_(limits),
      key_(random_key(seed, "batches.order")),
      totals_(samples.totals(0, limits.max_length)) {
  if (totals_.usable == 0) {
    throw DataError(
        fmt::format("all {} are longer than model.max_length = {}", samples_.describe(), limits_.max_length));
  }
}

void BatchPlanner::enter(std::int64_t epoch, std::int64_t window) {
  order_ = usable_samples(samples_, epoch, window, limits_.max_length);
  shuffle(order_, key_, epoch, window);
  epoch_ = epoch;
  window_ = window;
  place_ = 0;
  entered_ = true;
}

GlobalBatch BatchPlanner::next_of_epoch() {
  GlobalBatch batch{.epoch = epoch_};
  std::int64_t budget = limits_.batch_tokens;
  while (true) {
    for (; place_ < std::ssize(order_); ++place_) {
      auto const& [index, cost] = order_[static_cast<std::size_t>(place_)];
      if (cost.longer() > budget && !batch.samples.empty()) {
        return batch;
      }
      budget -= cost.longer();
      batch.add(samples_, index, cost);
    }
    if (window_ + 1 == samples_.windows(epoch_)) {
      return batch;
    }
    enter(epoch_, window_ + 1);
  }
}

GlobalBatch BatchPlanner::next() {
  if (!entered_) {
    enter(epoch_, window_);
  }
  GlobalBatch batch = next_of_epoch();
  if (batch.samples.empty()) {
    enter(epoch_ + 1, 0);
    batch = next_of_epoch();
  }
  if (batch.samples.empty()) {
    throw DataError(fmt::format("epoch {}: all {} are longer than model.max_length = {}", epoch_, samples_.describe(),
                                limits_.max_length));
  }
  return batch;
}

double BatchPlanner::epochs() const {
  double const in_window = order_.empty() ? 0 : static_cast<double>(place_) / static_cast<double>(std::ssize(order_));
  return static_cast<double>(epoch_) +
         (static_cast<double>(window_) + in_window) / static_cast<double>(samples_.windows(epoch_));
}

void BatchPlanner::seek(std::int64_t epoch, std::int64_t position) {
  std::int64_t const window = position >> 32;
  std::int64_t const place = position & 0xFFFF'FFFF;
  bool const known = epoch >= 0 && position >= 0 && window < samples_.windows(epoch);
  if (known && (!entered_ || epoch != epoch_ || window != window_)) {
    enter(epoch, window);
  }
  if (!known || place > std::ssize(order_)) {
    throw DataError(
        fmt::format("epoch {}, window {}, sample {} is not a place in {}; is it the dataset that the run started with?",
                    epoch, window, place, samples_.describe()));
  }
  place_ = place;
}

GlobalBatch all_samples(SampleSource const& samples, std::int64_t max_length, SampleOrder order) {
  UsableSamples all;
  for (std::int64_t window = 0; window < samples.windows(0); ++window) {
    UsableSamples const usable = usable_samples(samples, 0, window, max_length);
    all.insert(all.end(), usable.begin(), usable.end());
  }
  if (order == SampleOrder::by_length) {
    std::ranges::stable_sort(all, {}, [](auto const& sample) { return sample.second.longer(); });
  }
  GlobalBatch batch;
  for (auto const& [index, cost] : all) {
    batch.add(samples, index, cost);
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
      ranges_(cut_share(longer_sides(batch_.costs), cut)) {}

void SampledMicroBatches::read(std::int64_t index, PackTokens& into) const {
  IndexRange const& range = ranges_.at(static_cast<std::size_t>(index));
  auto const indices =
      std::span(batch_.samples).subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.count()));
  samples_.read(batch_.epoch, indices, static_cast<std::int32_t>(range.begin), into);
}

PackSize SampledMicroBatches::size(std::int64_t index) const {
  IndexRange const& range = ranges_.at(static_cast<std::size_t>(index));
  PackSize size;
  for (std::int64_t place = range.begin; place < range.end; ++place) {
    SampleCost const& cost = batch_.costs[static_cast<std::size_t>(place)];
    size.source += rows_of_rank(cost.source, context_);
    size.target += rows_of_rank(cost.target, context_);
    size.whole += cost.source + cost.target;
  }
  return size;
}

std::int64_t SampledMicroBatches::longer_tokens() const {
  std::int64_t tokens = 0;
  for (IndexRange const& range : ranges_) {
    for (std::int64_t place = range.begin; place < range.end; ++place) {
      tokens += batch_.costs[static_cast<std::size_t>(place)].longer();
    }
  }
  return tokens;
}

Pack SampledMicroBatches::micro_batch(std::int64_t index) const {
  PackTokens tokens;
  read(index, tokens);
  return make_pack(tokens, context_);
}

}  // namespace heddle
