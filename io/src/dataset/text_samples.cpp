#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/random.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/dataset/text_samples.hpp>
#include <limits>
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
    }
  }
  std::int64_t tokens(std::int64_t place) const { return lines_.length(order_[static_cast<std::size_t>(place)]) + 1; }

  TextLines const& lines_;
  std::vector<std::int64_t> order_;  ///< of the lines
  std::vector<Start> starts_;        ///< of the sequences
  std::vector<std::int64_t> length_;
};

class TextSamples final : public SampleSource {
 public:
  TextSamples(std::unique_ptr<TextLines> lines, TextRule const& rule)
      : lines_(std::move(lines)),
        rule_(rule),
        order_(lines_->size(), rule.seed ? std::optional(random_key(*rule.seed, "text.blocks")) : std::nullopt),
        key_(random_key(rule.seed.value_or(0),
                        std::string(rule.form == TextForm::masked ? "text.masks" : "text.prefixes") +
                            (rule.seed ? "" : ".measuring"))) {}

  std::int64_t windows(std::int64_t /*epoch*/) const override { return order_.windows(); }
  std::vector<std::int64_t> window(std::int64_t epoch, std::int64_t window) const override;
  SampleCost cost(std::int64_t epoch, std::int64_t index) const override {
    std::int64_t const tokens = length(epoch, index);
    return rule_.form == TextForm::masked ? SampleCost{tokens, 0} : SampleCost{0, tokens};
  }
  std::int64_t predicted(std::int64_t epoch, std::int64_t index) const override;
  void read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
            PackTokens& into) const override;
  SampleTotals totals(std::int64_t epoch, std::int64_t max_length) const override;
  std::string describe() const override;

 private:
  struct Window {
    std::int64_t epoch = 0;
    std::int64_t window = 0;
    TextSequences sequences;
  };
  /// A position to predict, and the token that is read there.
  struct Masked {
    std::size_t position = 0;
    enum class Input : std::uint8_t { mask, random, unchanged } input = Input::mask;
    std::int32_t random_token = 0;
  };
  struct Draw {
    double number = 0;  ///< in [0, 1): the position is to be predicted if it is below the rate
    Masked masked;
  };

  TextSequences const& sequences(std::int64_t epoch, std::int64_t window) const;
  std::int64_t length(std::int64_t epoch, std::int64_t index) const {
    return sequences(epoch, index >> 32).length(index & low_bits);
  }
  std::vector<TextSequences::Piece> pieces(std::int64_t epoch, std::int64_t index) const {
    return sequences(epoch, index >> 32).pieces(index & low_bits);
  }
  auto random_words(std::int64_t epoch, std::int64_t index, std::size_t position) const {
    return Philox::words(key_, {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                                static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(position)});
  }
  std::int64_t prefix(std::int64_t epoch, std::int64_t index) const;
  Draw draw(std::int64_t epoch, std::int64_t index, std::size_t position) const;
  std::vector<Masked> masked(std::int64_t epoch, std::int64_t index) const;
  /// The tokens of a sequence, end tokens included.
  std::vector<std::int32_t> tokens(std::int64_t epoch, std::int64_t index) const;
  TokenSequence sequence(std::int64_t epoch, std::int64_t index, std::int32_t number) const;
  TokenSequence masked_sequence(std::int64_t epoch, std::int64_t index, std::int32_t number) const;

  std::unique_ptr<TextLines> lines_;
  TextRule rule_;
  WindowOrder order_;
  std::uint64_t key_;                 ///< of prefixes or masks
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
      tokens.push_back(rule_.ids.end);
    }
  }
  return tokens;
}

std::int64_t TextSamples::prefix(std::int64_t epoch, std::int64_t index) const {
  auto const tokens = static_cast<std::uint64_t>(length(epoch, index));
  return 1 + static_cast<std::int64_t>(std::uint64_t{random_words(epoch, index, 0)[0]} * tokens >> 32);
}

TextSamples::Draw TextSamples::draw(std::int64_t epoch, std::int64_t index, std::size_t position) const {
  auto const words = random_words(epoch, index, position);
  auto const share = [](std::uint32_t word) { return std::ldexp(static_cast<double>(word), -32); };
  Draw draw{.number = share(words[0]), .masked = {position, Masked::Input::unchanged, 0}};
  if (share(words[1]) < 0.8) {
    draw.masked.input = Masked::Input::mask;
  } else if (share(words[1]) < 0.9) {
    draw.masked.input = Masked::Input::random;
    std::uint64_t const scaled = std::uint64_t{words[2]} * static_cast<std::uint64_t>(rule_.vocabulary);
    draw.masked.random_token = static_cast<std::int32_t>(scaled >> 32);
  }
  return draw;
}

std::vector<TextSamples::Masked> TextSamples::masked(std::int64_t epoch, std::int64_t index) const {
  std::vector<Masked> chosen;
  std::optional<Draw> min;
  std::size_t position = 0;
  for (TextSequences::Piece const& piece : pieces(epoch, index)) {
    for (std::int64_t token = 0; token < piece.count; ++token, ++position) {
      if (piece.ends && token + 1 == piece.count) {
        continue;
      }
      Draw const here = draw(epoch, index, position);
      if (here.number < rule_.mask_rate) {
        chosen.push_back(here.masked);
      }
      if (!min || here.number < min->number) {
        min = here;
      }
    }
  }
  if (chosen.empty()) {  // without any other token the end token: the rest of a line that was cut
    chosen.push_back(min ? min->masked : draw(epoch, index, 0).masked);
  }
  return chosen;
}

std::int64_t TextSamples::predicted(std::int64_t epoch, std::int64_t index) const {
  switch (rule_.form) {
    case TextForm::masked:
      return std::ssize(masked(epoch, index));
    case TextForm::prefixed:
      return length(epoch, index) - prefix(epoch, index) + 1;
    case TextForm::sequences:
      break;
  }
  return length(epoch, index);
}

TokenSequence TextSamples::sequence(std::int64_t epoch, std::int64_t index, std::int32_t number) const {
  TokenSequence sequence{number, {rule_.ids.begin}, tokens(epoch, index)};
  sequence.input.insert(sequence.input.end(), sequence.output.begin(), sequence.output.end() - 1);
  if (rule_.form == TextForm::prefixed) {
    sequence.prefix = static_cast<std::int32_t>(prefix(epoch, index));
    std::fill_n(sequence.output.begin(), sequence.prefix - 1, -1);  // the prefix shows these tokens
  }
  return sequence;
}

TokenSequence TextSamples::masked_sequence(std::int64_t epoch, std::int64_t index, std::int32_t number) const {
  TokenSequence sequence{number, tokens(epoch, index), {}};
  sequence.output.assign(sequence.input.size(), -1);
  for (auto const& [position, input, random_token] : masked(epoch, index)) {
    sequence.output[position] = sequence.input[position];
    if (input != Masked::Input::unchanged) {
      sequence.input[position] = input == Masked::Input::mask ? rule_.ids.mask : random_token;
    }
  }
  return sequence;
}

void TextSamples::read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
                       PackTokens& into) const {
  bool const masks = rule_.form == TextForm::masked;
  std::vector<TokenSequence> packed;
  for (std::int64_t const index : indices) {
    packed.push_back(masks ? masked_sequence(epoch, index, first_number) : sequence(epoch, index, first_number));
    ++first_number;
  }
  fill_tokens(into, packed, masks ? Side::source : Side::target);
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
      cut > 0 ? fmt::format("; {} of them are cut into pieces: longer than model.max_length", readable_count(cut))
              : "");
}

}  // namespace

LengthCounts MemoryLines::lengths() const {
  LengthCounts counts;
  for (auto const& line : lines_) {
    ++counts[std::ssize(line)];
  }
  return counts;
}

std::unique_ptr<SampleSource> text_samples(std::unique_ptr<TextLines> lines, TextRule const& rule) {
  return std::make_unique<TextSamples>(std::move(lines), rule);
}

std::unique_ptr<SampleSource> text_samples(Config const& config, std::unique_ptr<TextLines> lines,
                                           Tokenizer const& tokenizer, SampleUse use) {
  TextRule rule{tokenizer.special_ids(), tokenizer.size(), config.model.max_length, std::nullopt};
  rule.mask_rate = config.train.mask_rate;
  if (use.training) {
    rule.seed = config.train.seed;
  }
  if (predicts_masked_tokens(config.model)) {
    rule.form = TextForm::masked;
  } else if (use.prefixes) {
    rule.form = TextForm::prefixed;
  }
  return text_samples(std::move(lines), rule);
}

}  // namespace heddle
