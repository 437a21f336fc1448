#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/io/dataset/batches.hpp>
#include <utility>

namespace heddle {

std::int64_t pair_tokens(Dataset const& dataset, std::int64_t pair) {
  return std::max(dataset.source_length(pair), dataset.target_length(pair)) + 1;
}

BatchPlanner::BatchPlanner(Dataset const& dataset, Limits const& limits, std::uint64_t seed)
    : dataset_(dataset), limits_(limits), seed_(seed) {
  for (std::int64_t pair = 0; pair < dataset.size(); ++pair) {
    if (pair_tokens(dataset, pair) <= limits.max_length) {
      usable_.push_back(pair);
    }
  }
  if (usable_.empty()) {
    throw DataError(
        fmt::format("all {} sentence pairs are longer than model.max_length = {}", dataset.size(), limits.max_length));
  }
  shuffle();
}

void BatchPlanner::shuffle() {
  order_ = usable_;
  std::uint64_t const key = random_key(seed_, "batches.order");
  for (std::size_t last = order_.size() - 1; last > 0; --last) {
    auto const words = Philox::words(key, {static_cast<std::uint32_t>(last), static_cast<std::uint32_t>(last >> 32),
                                           static_cast<std::uint32_t>(epoch_), 0});
    std::uint64_t const random = (std::uint64_t{words[0]} << 32) | words[1];
    std::swap(order_[last], order_[random % (last + 1)]);
  }
}

GlobalBatch BatchPlanner::next() {
  if (position_ == static_cast<std::int64_t>(order_.size())) {
    ++epoch_;
    position_ = 0;
    shuffle();
  }
  GlobalBatch batch;
  std::int64_t budget = limits_.batch_tokens;
  while (position_ < static_cast<std::int64_t>(order_.size())) {
    std::int64_t const pair = order_[static_cast<std::size_t>(position_)];
    std::int64_t const cost = pair_tokens(dataset_, pair);
    if (cost > budget && !batch.pairs.empty()) {
      break;
    }
    budget -= cost;
    batch.pairs.push_back(pair);
    batch.target_tokens += dataset_.target_length(pair) + 1;
    batch.tokens += dataset_.source_length(pair) + dataset_.target_length(pair) + 2;
    ++position_;
  }
  return batch;
}

std::int64_t BatchPlanner::longest() const {
  std::int64_t longest = 0;
  for (std::int64_t const pair : usable_) {
    longest = std::max(longest, pair_tokens(dataset_, pair));
  }
  return longest;
}

std::int64_t BatchPlanner::tokens() const {
  std::int64_t tokens = 0;
  for (std::int64_t const pair : usable_) {
    tokens += pair_tokens(dataset_, pair);
  }
  return tokens;
}

void BatchPlanner::seek(std::int64_t epoch, std::int64_t position) {
  if (epoch < 0 || position < 0 || position > static_cast<std::int64_t>(order_.size())) {
    throw DataError(
        fmt::format("epoch {}, position {} is no place in a dataset of {} usable sentence pairs; is it the "
                    "dataset the run began with?",
                    epoch, position, order_.size()));
  }
  epoch_ = epoch;
  position_ = position;
  shuffle();
}

std::vector<IndexRange> cut_by_tokens(Dataset const& dataset, std::span<std::int64_t const> pairs,
                                      std::int64_t max_tokens) {
  std::vector<IndexRange> ranges;
  std::int64_t used = 0;
  std::int64_t index = 0;
  for (std::int64_t const pair : pairs) {
    std::int64_t const cost = pair_tokens(dataset, pair);
    if (ranges.empty() || used + cost > max_tokens) {
      ranges.push_back({index, index});
      used = 0;
    }
    used += cost;
    ranges.back().end = ++index;
  }
  return ranges;
}

std::vector<IndexRange> cut_evenly(Dataset const& dataset, std::span<std::int64_t const> pairs, int parts) {
  std::int64_t total = 0;
  for (std::int64_t const pair : pairs) {
    total += pair_tokens(dataset, pair);
  }
  std::vector<IndexRange> ranges;
  std::size_t index = 0;
  std::int64_t before = 0;
  for (int part = 0; part < parts; ++part) {
    IndexRange range{static_cast<std::int64_t>(index), 0};
    while (index < pairs.size()) {
      // A pair belongs to the part in which its middle token falls.
      std::int64_t const cost = pair_tokens(dataset, pairs[index]);
      if ((2 * before + cost) * parts >= 2 * total * (part + 1)) {
        break;
      }
      before += cost;
      ++index;
    }
    range.end = static_cast<std::int64_t>(index);
    ranges.push_back(range);
  }
  return ranges;
}

Pack read_pack(Dataset const& dataset, std::span<std::int64_t const> pairs, IndexRange const& range,
               GroupMember split) {
  std::vector<SentencePair> sentences;
  for (std::int64_t index = range.begin; index < range.end; ++index) {
    std::int64_t const pair = pairs[static_cast<std::size_t>(index)];
    sentences.push_back({static_cast<std::int32_t>(index), dataset.source(pair), dataset.target(pair)});
  }
  Tokenizer const& tokenizer = dataset.target_tokenizer();
  return make_pack(sentences, tokenizer.begin_id(), dataset.source_tokenizer().end_id(), tokenizer.end_id(), split);
}

}  // namespace heddle
