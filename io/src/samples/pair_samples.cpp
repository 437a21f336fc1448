#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/samples/pair_samples.hpp>
#include <iterator>
#include <list>
#include <mutex>
#include <numeric>
#include <system_error>

#include "pairs/word_tokenizer.hpp"
#include "parallel/run_collectively.hpp"

namespace heddle {

namespace {

constexpr std::int64_t place_bits = 0xFFFF'FFFF;

/// The tokenizers of one thread.
struct SideTokenizers {
  WordTokenizer source, target;
};

/// Lends each thread tokenizers that remember the words of earlier windows.
class TokenizerPool {
 public:
  explicit TokenizerPool(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  std::shared_ptr<SideTokenizers> borrow() {
    std::unique_ptr<SideTokenizers> lent;
    {
      std::lock_guard const lock(mutex_);
      if (!free_.empty()) {
        lent = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (!lent) {
      lent = std::make_unique<SideTokenizers>(
          SideTokenizers{WordTokenizer(vocabulary_.source), WordTokenizer(vocabulary_.target)});
    }
    return {lent.release(), [this](SideTokenizers* back) {
              std::lock_guard const lock(mutex_);
              free_.emplace_back(back);
            }};
  }

 private:
  Vocabulary vocabulary_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<SideTokenizers>> free_;
};

class PairSamples final : public SampleSource {
 public:
  explicit PairSamples(PairSamplesSetup setup)
      : setup_(std::move(setup)),
        order_(setup_.pairs->size(),
               setup_.seed ? std::optional(random_key(*setup_.seed, "batches.blocks")) : std::nullopt, setup_.sizes),
        max_windows_(setup_.pairs->is_stream() ? std::int64_t{1} << 31 : order_.windows()),
        pool_(setup_.vocabulary) {}

  bool is_stream() const override { return setup_.pairs->is_stream(); }
  std::int64_t windows(std::int64_t /*epoch*/) const override {
    return last_window_ ? *last_window_ + 1 : max_windows_;
  }
  std::vector<std::int64_t> window(std::int64_t epoch, std::int64_t window) const override;
  SampleCost cost(std::int64_t epoch, std::int64_t index) const override { return cost_of(sample(epoch, index)); }
  std::int64_t predicted(std::int64_t epoch, std::int64_t index) const override {
    return std::ssize(sample(epoch, index).target.tokens) + 1;
  }
  void read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
            PackFields& into) const override;
  SampleTotals totals(std::int64_t epoch, std::int64_t max_length) const override;
  std::string describe() const override;
  std::string warning() const override {
    std::string const of_files = setup_.pairs->warning();
    return of_files + (of_files.empty() || setup_.warning.empty() ? "" : "; ") + setup_.warning;
  }

 private:
  struct Window {
    std::int64_t epoch = -1;
    std::int64_t number = 0;
    std::vector<Sample> samples = {};
    std::int64_t usable_tokens = 0;  ///< of a stream: the longer sides of those that are short enough
  };

  SampleCost cost_of(Sample const& sample) const {
    return cost_of_pair(setup_.form, setup_.form == PairForm::targets ? 0 : std::ssize(sample.source.tokens),
                        std::ssize(sample.target.tokens));
  }
  Sample const& sample(std::int64_t epoch, std::int64_t index) const {
    return held(epoch, index >> 32).samples.at(static_cast<std::size_t>(index & place_bits));
  }
  /// A window, which is read unless it is here; the one after it is then read in the background.
  Window const& held(std::int64_t epoch, std::int64_t window) const;
  void read_ahead(std::int64_t epoch, std::int64_t window) const;
  Window load(std::int64_t epoch, std::int64_t window) const;
  /// Makes the samples of blocks; read(range) gives the pairs of each.
  Window make_window(std::int64_t epoch, std::int64_t window, std::vector<IndexRange> const& ranges,
                     std::function<std::vector<TextPair>(std::size_t)> const& read) const;
  /// The same of a stream: a window that was read, or the next ones until one has usable samples, or the stream ends.
  Window const& held_of_stream(std::int64_t epoch, std::int64_t window) const;
  void read_stream(std::int64_t window) const;
  /// The samples of pairs within a block, whose first one has the number `begin`.
  std::vector<Sample> make(std::int64_t epoch, std::int64_t begin, std::vector<TextPair> pairs,
                           SideTokenizers& tokenizers) const;
  Sample tokenized(NumberedPair numbered, std::int64_t epoch, SideTokenizers& tokenizers) const;

  PairSamplesSetup setup_;
  WindowOrder order_;
  std::int64_t max_windows_;
  mutable TokenizerPool pool_;
  mutable std::deque<Window> stream_;  ///< windows of a stream, the last one being ahead
  mutable bool stream_ended_ = false;
  mutable std::optional<std::int64_t> last_window_;  ///< of a stream that has ended: that of its last usable sample
  mutable std::list<Window> latest_;                 ///< the two that were asked for last: a batch may lie in both
  mutable std::optional<std::vector<SampleCost>> some_costs_;  ///< from which totals are estimated ...
  mutable std::int64_t some_pairs_ = 0;                        ///< ... and the number of pairs that they are of

  /// The window that is read in the background.
  struct Ahead {
    std::int64_t epoch;
    std::int64_t number;
    Window window = {};  ///< the thread's until it has ended
    std::unique_ptr<BackgroundThread> thread = {};
  };
  mutable std::unique_ptr<Ahead> ahead_;  ///< the last member: its thread ends before the others
};

/// The tokens of one side of a pair, and its words' numbers where they are needed.
void tokenize(WordTokenizer& tokenizer, std::string const& text, double sampling, std::function<double()> const& draw,
              std::vector<std::int32_t>& ids, std::vector<std::int64_t>* words) {
  if (sampling > 0) {
    tokenizer.sample(text, sampling, draw, ids, words);
  } else {
    tokenizer.encode(text, ids, words);
  }
}

/// Links of words become those of all their tokens.
std::vector<TokenLink> links_of_tokens(std::vector<TokenLink> const& links, std::vector<std::int64_t> const& sources,
                                       std::vector<std::int64_t> const& targets) {
  std::vector<TokenLink> found;
  for (TokenLink const& link : links) {
    for (std::size_t from = 0; from < sources.size(); ++from) {
      for (std::size_t to = 0; sources[from] == link.source && to < targets.size(); ++to) {
        if (targets[to] == link.target) {
          found.push_back({static_cast<std::int32_t>(from), static_cast<std::int32_t>(to)});
        }
      }
    }
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

/// Weights of words and the end become those of tokens and the end.
std::vector<float> weights_of_tokens(std::vector<float> const& weights, std::vector<std::int64_t> const& words) {
  if (weights.size() < 2) {
    return weights;
  }
  std::vector<float> found;
  for (std::int64_t const word : words) {
    found.push_back(weights[std::min(static_cast<std::size_t>(word), weights.size() - 1)]);
  }
  found.push_back(weights.back());
  return found;
}

Sample PairSamples::tokenized(NumberedPair numbered, std::int64_t epoch, SideTokenizers& tokenizers) const {
  TextPair& pair = numbered.pair;
  Sample sample;
  if (pair.tokens) {
    sample = std::move(*pair.tokens);
  } else {
    bool const links = setup_.fields.contains(SampleField::alignment) && !pair.links.empty();
    std::vector<std::int64_t> sources;
    std::vector<std::int64_t> targets;
    Draws draws(random_key(setup_.seed.value_or(0), "modifier.segmentation"), epoch, numbered.index);
    auto const draw = [&draws] { return draws.uniform(); };
    tokenize(tokenizers.source, pair.source, pair.source_sampling, draw, sample.source.tokens,
             links ? &sources : nullptr);
    tokenize(tokenizers.target, pair.target, pair.target_sampling, draw, sample.target.tokens,
             links || pair.weights.size() > 1 ? &targets : nullptr);
    if (links) {
      sample.alignment = links_of_tokens(pair.links, sources, targets);
    }
    sample.target.weights = weights_of_tokens(pair.weights, targets);
  }
  std::string const& tag = pair.tag ? *pair.tag : setup_.tag;
  if (!tag.empty() && !sample.source.tokens.empty() && setup_.form != PairForm::targets) {
    std::vector<std::int32_t> ids;
    tokenizers.source.encode(tag, ids);
    sample.source.tokens.insert(sample.source.tokens.begin(), ids.begin(), ids.end());
    for (TokenLink& link : sample.alignment) {
      link.source += static_cast<std::int32_t>(ids.size());
    }
  }
  return sample;
}

std::vector<Sample> PairSamples::make(std::int64_t epoch, std::int64_t begin, std::vector<TextPair> pairs,
                                      SideTokenizers& tokenizers) const {
  std::vector<NumberedPair> numbered;
  numbered.reserve(pairs.size());
  for (TextPair& pair : pairs) {
    numbered.push_back({begin + std::ssize(numbered), std::move(pair)});
  }
  setup_.modifiers.apply(numbered, setup_.vocabulary, setup_.seed.value_or(0), epoch);
  std::vector<Sample> samples;
  samples.reserve(numbered.size());
  for (NumberedPair& each : numbered) {
    if (each.pair.empty()) {
      continue;
    }
    Sample sample = tokenized(std::move(each), epoch, tokenizers);
    if (!sample.source.tokens.empty() && !sample.target.tokens.empty()) {
      samples.push_back(std::move(sample));
    }
  }
  return samples;
}

PairSamples::Window PairSamples::load(std::int64_t epoch, std::int64_t window) const {
  std::vector<IndexRange> ranges;
  for (std::int64_t const item : order_.window(epoch, window)) {
    if (ranges.empty() || item != ranges.back().end || item % setup_.sizes.block_items == 0) {
      ranges.push_back({item, item});
    }
    ranges.back().end = item + 1;
  }
  return make_window(epoch, window, ranges, [&](std::size_t at) { return setup_.pairs->read(ranges[at]); });
}

PairSamples::Window PairSamples::make_window(std::int64_t epoch, std::int64_t window,
                                             std::vector<IndexRange> const& ranges,
                                             std::function<std::vector<TextPair>(std::size_t)> const& read) const {
  std::vector<std::vector<Sample>> blocks(ranges.size());
  in_threads(
      std::ssize(ranges),
      [&] {
        return [&, tokenizers = pool_.borrow()](std::int64_t index) {
          auto const at = static_cast<std::size_t>(index);
          blocks[at] = make(epoch, ranges[at].begin, read(at), *tokenizers);
        };
      },
      own_processors());
  Window loaded{.epoch = epoch, .number = window};
  for (std::vector<Sample>& samples : blocks) {
    std::ranges::move(samples, std::back_inserter(loaded.samples));
  }
  return loaded;
}

void PairSamples::read_stream(std::int64_t window) const {
  std::int64_t const block = setup_.sizes.block_items;
  std::int64_t const begin = window * block * setup_.sizes.window_blocks;
  std::int64_t const end = begin + block * setup_.sizes.window_blocks;
  std::vector<TextPair> pairs = setup_.pairs->read({begin, end});
  stream_ended_ = begin + std::ssize(pairs) < end;
  std::vector<IndexRange> ranges;
  for (std::int64_t at = begin; at < begin + std::ssize(pairs); at += block) {
    ranges.push_back({at, std::min(at + block, begin + std::ssize(pairs))});
  }
  stream_.push_back(make_window(0, window, ranges, [&](std::size_t at) {
    auto const from = pairs.begin() + (ranges[at].begin - begin);
    return std::vector<TextPair>(std::make_move_iterator(from), std::make_move_iterator(from + ranges[at].count()));
  }));
  for (Sample const& sample : stream_.back().samples) {
    std::int64_t const longer = cost_of(sample).longer();
    stream_.back().usable_tokens += longer <= setup_.max_length ? longer : 0;
  }
}

PairSamples::Window const& PairSamples::held_of_stream(std::int64_t epoch, std::int64_t window) const {
  if (epoch > 0) {
    throw DataError("{} has ended after its last sentence pair, and cannot be read again", setup_.pairs->name());
  }
  auto const find = [&] { return std::ranges::find(stream_, window, &Window::number); };
  if (find() == stream_.end()) {
    read_stream(window);
  }
  // The window is the last one if no usable sample follows it.
  while (!stream_ended_ && (stream_.back().number == window || stream_.back().usable_tokens == 0)) {
    read_stream(stream_.back().number + 1);
  }
  if (stream_ended_ && !last_window_) {
    auto const last =
        std::find_if(stream_.rbegin(), stream_.rend(), [](Window const& each) { return each.usable_tokens > 0; });
    if (last == stream_.rend() && window == 0) {
      throw DataError("{} has no sentence pair of at most model.max_length = {} tokens", setup_.pairs->name(),
                      setup_.max_length);
    }
    last_window_ = last == stream_.rend() ? window : last->number;
  }
  // A batch that is being made may have samples of earlier windows.
  std::int64_t before = 0;
  auto needed = find();
  while (needed != stream_.begin() && before < setup_.batch_tokens + setup_.max_length) {
    before += (--needed)->usable_tokens;
  }
  stream_.erase(stream_.begin(), needed);
  return *find();
}

PairSamples::Window const& PairSamples::held(std::int64_t epoch, std::int64_t window) const {
  if (is_stream()) {
    return held_of_stream(epoch, window);
  }
  auto const is_it = [&](Window const& known) { return known.epoch == epoch && known.number == window; };
  auto const found = std::ranges::find_if(latest_, is_it);
  if (found != latest_.end()) {
    latest_.splice(latest_.begin(), latest_, found);
    return latest_.front();
  }
  auto const ahead = std::move(ahead_);
  if (ahead && ahead->epoch == epoch && ahead->number == window) {
    ahead->thread->finish();
    latest_.push_front(std::move(ahead->window));
  } else {
    latest_.push_front(load(epoch, window));
  }
  if (latest_.size() > 2) {
    latest_.pop_back();
  }
  read_ahead(epoch, window);
  return latest_.front();
}

void PairSamples::read_ahead(std::int64_t epoch, std::int64_t window) const {
  bool const last = window + 1 == windows(epoch);
  auto ahead = std::make_unique<Ahead>(Ahead{last ? epoch + 1 : epoch, last ? 0 : window + 1});
  try {
    Ahead* const into = ahead.get();
    ahead->thread =
        std::make_unique<BackgroundThread>([this, into] { into->window = load(into->epoch, into->number); });
    ahead_ = std::move(ahead);
  } catch (std::system_error const&) {  // no more threads: it is read when it is needed
  }
}

std::vector<std::int64_t> PairSamples::window(std::int64_t epoch, std::int64_t window) const {
  std::vector<std::int64_t> indices(held(epoch, window).samples.size());
  std::iota(indices.begin(), indices.end(), window << 32);
  return indices;
}

void PairSamples::read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
                       PackFields& into) const {
  std::vector<Sample> pairs;
  pairs.reserve(indices.size());
  for (std::int64_t const index : indices) {
    pairs.push_back(sample(epoch, index));
    pairs.back().number = first_number++;
    if (setup_.form == PairForm::targets) {
      pairs.back().source.tokens.clear();
    }
  }
  fill_pairs(into, pairs, setup_.form, setup_.vocabulary.special_ids());
}

SampleTotals PairSamples::totals(std::int64_t /*epoch*/, std::int64_t max_length) const {
  if (is_stream()) {  // what is to come is not known: a bound, of short sentences
    constexpr std::int64_t usual_length = 16;
    std::int64_t const pairs = setup_.pairs->size();
    return {.usable = pairs,
            .tokens = pairs * std::min(usual_length, max_length),
            .longest = max_length,
            .estimated = true};
  }
  constexpr std::int64_t parts = 4;
  constexpr std::int64_t pairs_of_part = 512;
  std::int64_t const size = setup_.pairs->size();
  bool const all = size <= parts * pairs_of_part;
  if (!some_costs_) {
    some_costs_.emplace();
    auto const tokenizers = pool_.borrow();
    for (std::int64_t part = 0; part < (all ? 1 : parts); ++part) {
      std::int64_t const begin = share(size, part, parts).begin;
      IndexRange const range{begin, all ? size : begin + pairs_of_part};
      some_pairs_ += range.count();
      std::ranges::transform(make(0, begin, setup_.pairs->read(range), *tokenizers), std::back_inserter(*some_costs_),
                             [&](Sample const& sample) { return cost_of(sample); });
    }
  }
  SampleTotals totals;
  for (SampleCost const& cost : *some_costs_) {
    add_sample(totals, cost.longer(), 1, max_length);
  }
  if (!all) {
    double const scale = static_cast<double>(size) / static_cast<double>(some_pairs_);
    for (std::int64_t* const count : {&totals.usable, &totals.left_out, &totals.tokens}) {
      *count = static_cast<std::int64_t>(static_cast<double>(*count) * scale);
    }
    totals.usable = std::max<std::int64_t>(1, totals.usable);
    totals.tokens = std::max(totals.usable, totals.tokens);
  }
  totals.estimated = !all || !setup_.modifiers.empty();
  totals.longest = totals.estimated ? max_length : totals.longest;
  return totals;
}

std::string PairSamples::describe() const {
  return fmt::format("{}, {}{}{}",
                     is_stream() ? "sentence pairs of " + setup_.pairs->name() + ", in its order"
                                 : readable_count(setup_.pairs->size()) + " sentence pairs",
                     setup_.modifiers.empty() ? "" : "modified (" + setup_.modifiers.describe() + ") and ",
                     "tokenized while they are read",
                     setup_.form == PairForm::prefixed ? ", the sources as prefixes of the targets" : "");
}

}  // namespace

std::unique_ptr<SampleSource> pair_samples(PairSamplesSetup setup) {
  return std::make_unique<PairSamples>(std::move(setup));
}

}  // namespace heddle
