#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/io/samples/batches.hpp>
#include <iterator>
#include <numeric>
#include <utility>

namespace heddle {

namespace {

using Samples = std::vector<SampleStream::Entry>;

/// A sample, in the units of weights and credits.
constexpr std::int64_t whole_sample = std::int64_t{1} << 30;

Samples usable_samples(SampleSource const& samples, std::int64_t epoch, std::int64_t window, std::int64_t max_length) {
  Samples usable;
  for (std::int64_t const index : samples.window(epoch, window)) {
    SampleCost const cost = samples.cost(epoch, index);
    if (cost.longer() <= max_length) {
      usable.push_back({index, cost});
    }
  }
  return usable;
}

/// Whether N passes are done, also where their sum of fractions is rounded down.
bool reached(double epochs, double limit) {
  return epochs >= limit - 1e-9;
}

[[noreturn]] void throw_all_left_out(std::string const& where, Corpus const& corpus, std::int64_t max_length) {
  throw DataError("{}{}all {} are longer than model.max_length = {}",
                  corpus.name.empty() ? "" : corpus_key(corpus.name) + ": ", where, corpus.samples->describe(),
                  max_length);
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
  auto ranges = cut_by_tokens(own, std::max<std::int64_t>(1, cut.max_tokens / cut.passes));
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

void GlobalBatch::add(Mixture const& mixture, SampleId const& sample, SampleCost cost) {
  samples.push_back(sample);
  costs.push_back(cost);
  tokens.target += mixture.predicted(sample);
  tokens.all += cost.source + cost.target;
}

SampleStream::SampleStream(Corpus corpus, std::int64_t max_length, std::uint64_t seed)
    : corpus_(std::move(corpus)),
      max_length_(max_length),
      key_(random_key(corpus_.name.empty() ? seed : random_key(seed, corpus_.name), "batches.order")) {}

void SampleStream::enter(std::int64_t epoch, std::int64_t window) {
  order_ = usable_samples(*corpus_.samples, epoch, window, max_length_);
  if (!corpus_.samples->is_stream()) {
    shuffle(order_, key_, epoch, window);
  }
  epoch_ = epoch;
  window_ = window;
  place_ = 0;
  entered_ = true;
}

SampleStream::Entry const* SampleStream::peek() {
  if (!entered_) {
    enter(epoch_, window_);
  }
  while (place_ == std::ssize(order_)) {
    if (window_ + 1 == corpus_.samples->windows(epoch_)) {
      return nullptr;
    }
    enter(epoch_, window_ + 1);
  }
  return &order_[static_cast<std::size_t>(place_)];
}

double SampleStream::epochs() const {
  double const in_window = order_.empty() ? 0 : static_cast<double>(place_) / static_cast<double>(std::ssize(order_));
  return static_cast<double>(epoch_) +
         (static_cast<double>(window_) + in_window) / static_cast<double>(corpus_.samples->windows(epoch_));
}

void SampleStream::seek(std::int64_t epoch, std::int64_t position) {
  std::int64_t const window = position >> 32;
  std::int64_t const place = position & 0xFFFF'FFFF;
  bool const known = epoch >= 0 && position >= 0 && window < corpus_.samples->windows(epoch);
  if (known && (!entered_ || epoch != epoch_ || window != window_)) {
    enter(epoch, window);
  }
  if (!known || place > std::ssize(order_)) {
    throw DataError(
        "{}: epoch {}, window {}, sample {} is not a place in {}; is it the dataset that the run started "
        "with?",
        corpus_key(corpus_.name), epoch, window, place, corpus_.samples->describe());
  }
  place_ = place;
}

BatchPlanner::BatchPlanner(Mixture mixture, Limits const& limits, std::uint64_t seed)
    : mixture_(std::move(mixture)), limits_(limits), totals_(mixture_.totals(limits.max_length)) {
  std::vector<double> weights;
  for (Corpus const& corpus : mixture_.corpora()) {
    std::int64_t const usable = corpus.samples->totals(0, limits.max_length).usable;
    if (usable == 0) {
      throw_all_left_out("", corpus, limits.max_length);
    }
    shares_.push_back({.stream = {corpus, limits.max_length, seed}, .size = static_cast<double>(usable)});
    weights.push_back(corpus.weight);
  }
  set_weights(weights);
  if (!mixture_.stages().empty()) {
    enter_stage(0);
  }
}

void BatchPlanner::set_weights(std::vector<double> const& weights) {
  double const sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  weights_ = 0;
  for (std::size_t corpus = 0; corpus < weights.size(); ++corpus) {
    auto const weight = std::llround(weights[corpus] / sum * static_cast<double>(whole_sample));
    shares_[corpus].weight = weights[corpus] > 0 ? std::max<std::int64_t>(1, weight) : 0;
    weights_ += shares_[corpus].weight;
  }
}

MixtureStage const* BatchPlanner::stage() const {
  auto const number = static_cast<std::size_t>(stage_.stage);
  return number < mixture_.stages().size() ? &mixture_.stages()[number] : nullptr;
}

void BatchPlanner::enter_stage(std::int64_t stage) {
  stage_ = {.stage = std::min(stage, std::ssize(mixture_.stages()))};
  if (MixtureStage const* const entered = this->stage()) {
    set_weights(entered->weights);
    std::ranges::for_each(shares_, [](Share& share) { share.credit = 0; });
    stage_.start_epochs = shares_[entered->corpus].stream.epochs();
  }
}

bool BatchPlanner::exhausted() const {
  bool const past_stages = !mixture_.stages().empty() && stage() == nullptr;
  return past_stages || (limits_.epochs > 0 && reached(epochs(), limits_.epochs));
}

BatchPlanner::Share& BatchPlanner::next_share() {
  return *std::ranges::max_element(shares_, {}, [](Share const& share) { return share.credit + share.weight; });
}

SampleStream::Entry const* BatchPlanner::peek(Share& share, bool in_epoch) {
  SampleStream::Entry const* sample = share.stream.peek();
  if (sample == nullptr && !in_epoch) {
    share.stream.start_next_epoch();
    sample = share.stream.peek();
    if (sample == nullptr) {
      throw_all_left_out(fmt::format("epoch {}: ", share.stream.epoch()), share.stream.corpus(), limits_.max_length);
    }
  }
  return sample;
}

GlobalBatch BatchPlanner::next() {
  GlobalBatch batch = fill();
  ++stage_.steps;
  if (MixtureStage const* const now = stage(); now != nullptr && now->steps > 0 && stage_.steps >= now->steps) {
    enter_stage(stage_.stage + 1);
  }
  return batch;
}

GlobalBatch BatchPlanner::fill() {
  GlobalBatch batch;
  std::int64_t budget = limits_.batch_tokens;
  while (true) {
    Share& share = next_share();
    SampleStream::Entry const* const sample = peek(share, shares_.size() == 1 && !batch.samples.empty());
    if (sample == nullptr || (sample->cost.longer() > budget && !batch.samples.empty())) {
      return batch;
    }
    budget -= sample->cost.longer();
    auto const corpus = static_cast<std::int32_t>(&share - shares_.data());
    batch.add(mixture_, {corpus, share.stream.epoch(), sample->index}, sample->cost);
    share.stream.take();
    for (Share& each : shares_) {
      each.credit += each.weight;
    }
    share.credit -= weights_;
    MixtureStage const* const now = stage();
    if (now != nullptr && now->epochs > 0 &&
        reached(shares_[now->corpus].stream.epochs() - stage_.start_epochs, now->epochs)) {
      enter_stage(stage_.stage + 1);
      if (exhausted()) {
        return batch;
      }
    }
  }
}

MixtureCursor BatchPlanner::cursor() const {
  MixtureCursor cursor;
  for (Share const& share : shares_) {
    cursor.corpora.push_back({.corpus = share.stream.corpus().name,
                              .epoch = share.stream.epoch(),
                              .position = share.stream.position(),
                              .credit = share.credit});
  }
  if (!mixture_.stages().empty()) {
    cursor.stage = stage_;
  }
  return cursor;
}

void BatchPlanner::seek(MixtureCursor const& cursor) {
  if (!mixture_.stages().empty()) {
    enter_stage(cursor.stage.stage);
    stage_.steps = cursor.stage.steps;
    stage_.start_epochs = cursor.stage.start_epochs;
  }
  for (Share& share : shares_) {
    auto const own = std::ranges::find(cursor.corpora, share.stream.corpus().name, &SampleCursor::corpus);
    SampleCursor const place = own == cursor.corpora.end() ? SampleCursor() : *own;
    constexpr std::int64_t max_credit = 4 * whole_sample;
    if (std::abs(place.credit) > max_credit) {
      throw DataError("a corpus's credit of {} is impossible; it is at most {}", place.credit, max_credit);
    }
    share.stream.seek(place.epoch, place.position);
    share.credit = place.credit;
  }
}

double BatchPlanner::epochs() const {
  double epochs = 0;
  double sum = 0;
  for (Share const& share : shares_) {
    double const weight = mixture_.stages().empty() ? static_cast<double>(share.weight) : share.size;
    epochs += share.stream.epochs() * weight;
    sum += weight;
  }
  return epochs / sum;
}

std::vector<double> BatchPlanner::corpus_epochs() const {
  std::vector<double> epochs;
  std::ranges::transform(shares_, std::back_inserter(epochs), [](Share const& share) { return share.stream.epochs(); });
  return epochs;
}

GlobalBatch all_samples(SampleSource const& samples, std::int64_t max_length, SampleOrder order) {
  Samples all;
  for (std::int64_t window = 0; window < samples.windows(0); ++window) {
    Samples const usable = usable_samples(samples, 0, window, max_length);
    all.insert(all.end(), usable.begin(), usable.end());
  }
  if (order == SampleOrder::by_length) {
    std::ranges::stable_sort(all, {}, [](auto const& sample) { return sample.cost.longer(); });
  }
  Mixture const mixture(samples);
  GlobalBatch batch;
  for (auto const& [index, cost] : all) {
    batch.add(mixture, {.index = index}, cost);
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

MicroBatchCut validation_cut(GlobalBatch const& samples, std::int64_t max_tokens, ContextSplit const& context) {
  constexpr std::int64_t min_tokens = 512;
  constexpr std::size_t multiple = 8;
  auto const costs = longer_sides(samples.costs);
  std::size_t const wanted = (cut_by_tokens(costs, max_tokens).size() + multiple - 1) / multiple * multiple;
  std::int64_t low = std::min(min_tokens, max_tokens);
  std::int64_t high = max_tokens;
  while (low < high) {
    std::int64_t const middle = (low + high) / 2;
    if (cut_by_tokens(costs, middle).size() <= wanted) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return {.max_tokens = high, .context = context};
}

SampledMicroBatches::SampledMicroBatches(Mixture mixture, GlobalBatch batch, MicroBatchCut const& cut)
    : mixture_(std::move(mixture)),
      batch_(std::move(batch)),
      context_(cut.context),
      passes_(cut.passes),
      ranges_(cut_share(longer_sides(batch_.costs), cut)) {}

void SampledMicroBatches::read(std::int64_t index, PackFields& into) const {
  IndexRange const& range = ranges_.at(static_cast<std::size_t>(index));
  auto const samples =
      std::span(batch_.samples).subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.count()));
  mixture_.read(samples, static_cast<std::int32_t>(range.begin), into);
  if (passes_ == 2) {
    add_second_pass(into, static_cast<std::int32_t>(batch_.samples.size()));
  }
}

PackSize SampledMicroBatches::size(std::int64_t index) const {
  IndexRange const& range = ranges_.at(static_cast<std::size_t>(index));
  PackSize size;
  for (std::int64_t place = range.begin; place < range.end; ++place) {
    SampleCost const& cost = batch_.costs[static_cast<std::size_t>(place)];
    size.source += passes_ * rows_of_rank(cost.source, context_.encoder());
    size.target += passes_ * rows_of_rank(cost.target, context_.decoder());
    size.whole += passes_ * (cost.source + cost.target);
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
  return passes_ * tokens;
}

Pack SampledMicroBatches::micro_batch(std::int64_t index) const {
  PackFields tokens;
  read(index, tokens);
  return make_pack(tokens, context_);
}

}  // namespace heddle
