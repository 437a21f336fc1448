#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/random.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/samples/text_samples.hpp>
#include <list>
#include <numeric>

namespace heddle {

namespace {

constexpr std::int64_t low_bits = 0xFFFF'FFFF;

/// The sequences of one window: lines in an order, joined and cut.
class TextSequences {
 public:
  /// Tokens [begin, begin + count) of a line with its end token.
  struct Piece {
    std::int64_t line = 0;
    std::int64_t begin = 0;
    std::int64_t count = 0;
    bool ends = false;  ///< its last token is the end token
  };

  TextSequences(TextLines const& lines, std::vector<std::int64_t> order, std::int64_t max_length)
      : lines_(lines), order_(std::move(order)) {
    for (std::int64_t place = 0; place < std::ssize(order_); ++place) {
      add_line(place, max_length);
    }
  }

  std::int64_t size() const { return std::ssize(length_); }
  std::int64_t length(std::int64_t sequence) const { return length_[static_cast<std::size_t>(sequence)]; }
  /// Whether the last token is a line's end token.
  bool complete(std::int64_t sequence) const { return !cut_[static_cast<std::size_t>(sequence)]; }
  std::int64_t longest() const { return length_.empty() ? 0 : *std::ranges::max_element(length_); }

  std::vector<Piece> pieces(std::int64_t sequence) const {
    auto [place, begin] = starts_[static_cast<std::size_t>(sequence)];
    std::vector<Piece> pieces;
    for (std::int64_t left = length(sequence); left > 0; ++place, begin = 0) {
      std::int64_t const rest = tokens(place) - begin;
      std::int64_t const count = std::min(left, rest);
      pieces.push_back({order_[static_cast<std::size_t>(place)], begin, count, count == rest});
      left -= count;
    }
    return pieces;
  }

 private:
  struct Start {
    std::int64_t place = 0;  ///< in order_
    std::int64_t begin = 0;  ///< token of that line
  };

  void add_line(std::int64_t place, std::int64_t max_length) {
    std::int64_t left = tokens(place);
    if (!length_.empty() && length_.back() + left <= max_length) {
      length_.back() += left;
      return;
    }
    for (std::int64_t begin = 0; left > 0; begin += max_length) {
      starts_.push_back({place, begin});
      length_.push_back(std::min(left, max_length));
      left -= length_.back();
      cut_.push_back(left > 0);
    }
  }
  std::int64_t tokens(std::int64_t place) const { return lines_.length(order_[static_cast<std::size_t>(place)]) + 1; }

  TextLines const& lines_;
  std::vector<std::int64_t> order_;  ///< of the lines
  std::vector<Start> starts_;        ///< of the sequences
  std::vector<std::int64_t> length_;
  std::vector<bool> cut_;  ///< the sequence ends inside a line
};

class TextSamples final : public SampleSource {
 public:
  TextSamples(std::unique_ptr<TextLines> lines, TextRule rule)
      : lines_(std::move(lines)),
        rule_(std::move(rule)),
        order_(lines_->size(), rule_.seed ? std::optional(random_key(*rule_.seed, "text.blocks")) : std::nullopt) {}

  std::int64_t windows(std::int64_t /*epoch*/) const override { return order_.windows(); }
  std::vector<std::int64_t> window(std::int64_t epoch, std::int64_t window) const override;
  SampleCost cost(std::int64_t epoch, std::int64_t index) const override {
    return rule_.task->cost(shape(epoch, index));
  }
  std::int64_t predicted(std::int64_t epoch, std::int64_t index) const override {
    return rule_.task->predicted(shape_with_ends(epoch, index));
  }
  void read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
            PackFields& into) const override;
  SampleTotals totals(std::int64_t epoch, std::int64_t max_length) const override;
  std::string describe() const override;
  std::string warning() const override { return rule_.task->warning(totals(0, rule_.max_length).longest); }

 private:
  struct Window {
    std::int64_t epoch = 0;
    std::int64_t window = 0;
    TextSequences sequences;
  };
  TextSequences const& sequences(std::int64_t epoch, std::int64_t window) const;
  TextShape shape(std::int64_t epoch, std::int64_t index) const {
    TextSequences const& window = sequences(epoch, index >> 32);
    std::int64_t const place = index & low_bits;
    return {
        .epoch = epoch, .index = index, .length = window.length(place), .complete = window.complete(place), .ends = {}};
  }
  std::vector<TextSequences::Piece> pieces(std::int64_t epoch, std::int64_t index) const {
    return sequences(epoch, index >> 32).pieces(index & low_bits);
  }
  /// The shape, with the ends if the task needs them.
  TextShape shape_with_ends(std::int64_t epoch, std::int64_t index) const;
  /// The tokens of a sequence, end tokens included.
  std::vector<std::int32_t> tokens(std::int64_t epoch, std::int64_t index) const;

  std::unique_ptr<TextLines> lines_;
  TextRule rule_;
  WindowOrder order_;
  mutable std::list<Window> latest_;  ///< the two that were asked for last: a batch may lie in both
};

TextSequences const& TextSamples::sequences(std::int64_t epoch, std::int64_t window) const {
  auto const found = std::ranges::find_if(
      latest_, [&](Window const& known) { return known.epoch == epoch && known.window == window; });
  if (found == latest_.end()) {
    std::vector<std::int64_t> order = order_.window(epoch, window);
    if (rule_.seed) {
      shuffle(order, random_key(*rule_.seed, "text.order"), epoch, window);
    }
    latest_.push_front({epoch, window, TextSequences(*lines_, std::move(order), rule_.max_length)});
    if (latest_.size() > 2) {
      latest_.pop_back();
    }
  } else {
    latest_.splice(latest_.begin(), latest_, found);
  }
  return latest_.front().sequences;
}

std::vector<std::int64_t> TextSamples::window(std::int64_t epoch, std::int64_t window) const {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(sequences(epoch, window).size()));
  std::iota(indices.begin(), indices.end(), window << 32);
  return indices;
}

std::vector<std::int32_t> TextSamples::tokens(std::int64_t epoch, std::int64_t index) const {
  std::vector<std::int32_t> tokens;
  for (auto const& [line, begin, count, ends] : pieces(epoch, index)) {
    auto const piece = lines_->tokens(line, begin, ends ? count - 1 : count);
    tokens.insert(tokens.end(), piece.begin(), piece.end());
    if (ends) {
      tokens.push_back(rule_.end);
    }
  }
  return tokens;
}

TextShape TextSamples::shape_with_ends(std::int64_t epoch, std::int64_t index) const {
  TextShape shape = this->shape(epoch, index);
  if (!rule_.task->needs_ends()) {
    return shape;
  }
  std::int64_t end = 0;
  for (TextSequences::Piece const& piece : pieces(epoch, index)) {
    end += piece.count;
    if (piece.ends) {
      shape.ends.push_back(end - 1);
    }
  }
  return shape;
}

void TextSamples::read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
                       PackFields& into) const {
  std::vector<TextSequence> texts;
  for (std::int64_t const index : indices) {
    texts.push_back({shape_with_ends(epoch, index), first_number++, tokens(epoch, index)});
  }
  rule_.task->fill(into, std::move(texts));
}

SampleTotals TextSamples::totals(std::int64_t epoch, std::int64_t max_length) const {
  SampleTotals totals{.usable = 1, .longest = std::min(max_length, rule_.max_length)};
  for (auto const& [length, lines] : lines_->lengths()) {
    totals.tokens += (length + 1) * lines;
  }
  if (windows(epoch) == 1) {
    totals.usable = sequences(epoch, 0).size();
    totals.longest = sequences(epoch, 0).longest();
  }
  return totals;
}

std::string TextSamples::describe() const {
  std::int64_t cut = 0;
  for (auto const& [length, lines] : lines_->lengths()) {
    cut += length + 1 > rule_.max_length ? lines : 0;
  }
  return fmt::format(
      "{} lines of text, joined into sequences of at most {} tokens{}", readable_count(lines_->size()),
      readable_count(rule_.max_length),
      cut > 0 ? fmt::format("; {} of them are split: longer than model.max_length", readable_count(cut)) : "");
}

}  // namespace

LengthCounts MemoryLines::lengths() const {
  LengthCounts counts;
  for (auto const& line : lines_) {
    ++counts[std::ssize(line)];
  }
  return counts;
}

std::unique_ptr<SampleSource> text_samples(std::unique_ptr<TextLines> lines, TextRule rule) {
  return std::make_unique<TextSamples>(std::move(lines), std::move(rule));
}

TextRule text_rule(Config const& config, Task const& task, Tokenizer const& tokenizer, SampleUse const& use,
                   std::string const& name) {
  TextRule rule{.task = task.text({.train = config.train,
                                   .ids = tokenizer.special_ids(),
                                   .sentinels = tokenizer.sentinels(),
                                   .vocabulary = tokenizer.size(),
                                   .prefixes = use.prefixes,
                                   .seed = use.seed(config.train),
                                   .where = fmt::format("{}", place_of_task(config)),
                                   .dataset = name}),
                .end = tokenizer.special_ids().end,
                .begin = tokenizer.special_ids().begin,
                .two_ends = config.model.token_types < 2,
                .seed = use.seed(config.train)};
  rule.max_length = config.model.max_length - (rule.task ? rule.task->reserved_tokens() : 0);
  return rule;
}

std::unique_ptr<SampleSource> text_samples(Config const& config, Task const& task, std::unique_ptr<TextLines> lines,
                                           Tokenizer const& tokenizer, SampleUse const& use, std::string const& name) {
  TextRule rule = text_rule(config, task, tokenizer, use, name);
  return rule.task ? text_samples(std::move(lines), std::move(rule)) : nullptr;
}

}  // namespace heddle
