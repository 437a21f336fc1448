#include <fmt/format.h>

#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/tasks/task.hpp>

namespace heddle {

namespace {

/// The tokens of a sequence, divided into kept and masked runs in turn: kept, masked, kept, …, the first and the last
/// of which may be empty.
struct Spans {
  std::vector<std::int64_t> kept;    ///< one more than `masked`
  std::vector<std::int64_t> masked;  ///< lengths of the masked spans
};

/// A subset of [0, size) with `count` elements, any equally likely (Knuth's algorithm S); `word(i)` is a random word.
template <class Word>
std::vector<bool> random_subset(std::int64_t size, std::int64_t count, Word const& word) {
  std::vector<bool> chosen(static_cast<std::size_t>(size));
  for (std::int64_t place = 0; place < size; ++place) {
    auto const left = static_cast<std::uint64_t>(size - place);
    if (static_cast<std::int64_t>(std::uint64_t{word(place)} * left >> 32) < count) {
      chosen[static_cast<std::size_t>(place)] = true;
      --count;
    }
  }
  return chosen;
}

class SequenceRandom {
 public:
  SequenceRandom(std::uint64_t key, TextShape const& shape) : key_(key), shape_(shape) {}

  std::uint32_t word(std::int64_t number) const {
    return Philox::words(key_,
                         {static_cast<std::uint32_t>(shape_.index), static_cast<std::uint32_t>(shape_.index >> 32),
                          static_cast<std::uint32_t>(shape_.epoch), static_cast<std::uint32_t>(number)})[0];
  }
  /// `parts` lengths of at least `min` each whose sum is `total`; every division is equally likely.
  std::vector<std::int64_t> divide(std::int64_t total, std::int64_t parts, std::int64_t min) const {
    // Bars between stars: a part is what lies between two of parts - 1 chosen places.
    std::int64_t const places = total - min * parts + parts - 1;
    auto const bars = random_subset(places, parts - 1, [&](std::int64_t place) { return word(place); });
    std::vector<std::int64_t> lengths{min};
    for (bool const bar : bars) {
      if (bar) {
        lengths.push_back(min);
      } else {
        ++lengths.back();
      }
    }
    return lengths;
  }

 private:
  std::uint64_t key_;
  TextShape const& shape_;
};

/// Tokens of a sequence that can be masked: all except the end token after it, which the samples have in any case.
std::int64_t text_tokens(TextShape const& shape) {
  return shape.length - (shape.complete ? 1 : 0);
}

/// A sequence with masked spans is the source, and an end token follows it as it does the target.
class Denoising : public TextTask {
 public:
  /// `min_between`: kept tokens between two spans.
  Denoising(TextTaskSpec const& spec, std::int64_t min_between)
      : min_between_(min_between),
        rate_(spec.train.mask_rate),
        span_length_(spec.train.span_length),
        ids_{spec.ids, spec.ids},
        key_(spec.random_key("text.spans")),
        kept_key_(spec.random_key("text.spans.kept")) {}

  std::int64_t reserved_tokens() const override { return 1; }  // a source may have as many masks as it lacks tokens
  SampleCost cost(TextShape const& shape) const override {
    std::int64_t const tokens = text_tokens(shape);
    std::int64_t const masked = masked_tokens(tokens);
    std::int64_t const spans = number_of_spans(shape, masked);
    return {tokens - masked + spans + 1, target_tokens(tokens, masked, spans) + 1};
  }
  std::int64_t predicted(TextShape const& shape) const override { return cost(shape).target; }
  void fill(PackFields& into, std::vector<TextSequence> sequences) const override {
    std::vector<Sample> pairs;
    for (TextSequence& text : sequences) {
      text.tokens.resize(static_cast<std::size_t>(text_tokens(text)));
      pairs.push_back(pair(text, spans(text)));
    }
    fill_tokens(into, pairs, ids_);
  }

 protected:
  std::int64_t masked_tokens(std::int64_t tokens) const {
    return std::min(tokens, std::max<std::int64_t>(1, std::llround(rate_ * static_cast<double>(tokens))));
  }
  std::uint64_t key() const { return key_; }
  double span_length() const { return span_length_; }

 private:
  virtual std::int64_t number_of_spans(TextShape const& shape, std::int64_t masked) const = 0;
  virtual std::int64_t target_tokens(std::int64_t tokens, std::int64_t masked, std::int64_t spans) const = 0;
  virtual std::vector<std::int64_t> span_lengths(TextShape const& shape, std::int64_t masked) const = 0;
  virtual Sample pair(TextSequence const& text, Spans const& spans) const = 0;

  Spans spans(TextShape const& shape) const {
    std::int64_t const tokens = text_tokens(shape);
    std::int64_t const masked = masked_tokens(tokens);
    Spans spans{.kept = {}, .masked = span_lengths(shape, masked)};
    std::int64_t const inner = std::max<std::int64_t>(0, std::ssize(spans.masked) - 1);
    spans.kept = SequenceRandom(kept_key_, shape)
                     .divide(tokens - masked - min_between_ * inner, std::ssize(spans.masked) + 1, 0);
    for (std::size_t run = 1; run + 1 < spans.kept.size(); ++run) {
      spans.kept[run] += min_between_;
    }
    return spans;
  }

  std::int64_t min_between_;
  double rate_;
  double span_length_;
  SideIds ids_;
  std::uint64_t key_;       ///< key of the spans' random lengths
  std::uint64_t kept_key_;  ///< key of the random lengths between them
};

/// Each span is a sentinel in the source; the target has, for each, the sentinel and its tokens (T5: Raffel et al.
/// 2020).
class SpanCorruption final : public Denoising {
 public:
  explicit SpanCorruption(TextTaskSpec const& spec)
      : Denoising(spec, 1), sentinels_(spec.sentinels), dataset_(spec.dataset) {}

  std::string warning(std::int64_t longest) const override {
    std::int64_t const spans = wanted_spans(longest, masked_tokens(longest));
    if (spans <= std::ssize(sentinels_)) {
      return "";
    }
    return fmt::format(
        "{}: the longest samples have {} spans to mask by train.mask_rate and train.span_length, but the vocabulary "
        "has {} sentinels for them: their spans are longer than train.span_length; `heddle prepare --sentinels {}` "
        "without --vocab-model learns a vocabulary with enough",
        dataset_, spans, sentinels_.size(), spans);
  }

 private:
  /// The spans of a sequence, if there are sentinels for all of them.
  std::int64_t wanted_spans(std::int64_t tokens, std::int64_t masked) const {
    auto const mean = std::llround(static_cast<double>(masked) / span_length());
    return std::clamp<std::int64_t>(mean, std::min<std::int64_t>(1, masked), std::min(masked, tokens - masked + 1));
  }
  std::int64_t number_of_spans(TextShape const& shape, std::int64_t masked) const override {
    return std::min(wanted_spans(text_tokens(shape), masked), std::ssize(sentinels_));
  }
  std::int64_t target_tokens(std::int64_t /*tokens*/, std::int64_t masked, std::int64_t spans) const override {
    return masked + spans;
  }
  std::vector<std::int64_t> span_lengths(TextShape const& shape, std::int64_t masked) const override {
    std::int64_t const spans = number_of_spans(shape, masked);
    return spans == 0 ? std::vector<std::int64_t>() : SequenceRandom(key(), shape).divide(masked, spans, 1);
  }
  Sample pair(TextSequence const& text, Spans const& spans) const override {
    Sample pair{.number = text.number, .source = {}, .target = {}};
    auto token = text.tokens.begin();
    for (std::size_t run = 0; run < spans.kept.size(); ++run) {
      pair.source.tokens.insert(pair.source.tokens.end(), token, token + spans.kept[run]);
      token += spans.kept[run];
      if (run < spans.masked.size()) {
        pair.source.tokens.push_back(sentinels_[run]);
        pair.target.tokens.push_back(sentinels_[run]);
        pair.target.tokens.insert(pair.target.tokens.end(), token, token + spans.masked[run]);
        token += spans.masked[run];
      }
    }
    return pair;
  }

  std::vector<std::int32_t> sentinels_;
  std::string dataset_;
};

/// Each span, which may be empty, is one mask token in the source; its length is drawn from a Poisson distribution. The
/// target is the whole text (BART: Lewis et al. 2020).
class TextInfilling final : public Denoising {
 public:
  explicit TextInfilling(TextTaskSpec const& spec) : Denoising(spec, 0), mask_(spec.ids.mask) {}

 private:
  std::int64_t number_of_spans(TextShape const& shape, std::int64_t masked) const override {
    return std::ssize(span_lengths(shape, masked));
  }
  std::int64_t target_tokens(std::int64_t tokens, std::int64_t /*masked*/, std::int64_t /*spans*/) const override {
    return tokens;
  }
  std::vector<std::int64_t> span_lengths(TextShape const& shape, std::int64_t masked) const override {
    SequenceRandom const random(key(), shape);
    std::vector<std::int64_t> lengths;
    // No more masks than masked tokens, so that a source is not longer than its text.
    for (std::int64_t left = masked; left > 0;) {
      bool const last = std::ssize(lengths) + 1 == masked;
      lengths.push_back(last ? left : std::min(left, poisson(random.word(std::ssize(lengths)))));
      left -= lengths.back();
    }
    return lengths;
  }
  Sample pair(TextSequence const& text, Spans const& spans) const override {
    Sample pair{.number = text.number, .source = {}, .target = text.tokens};
    auto token = text.tokens.begin();
    for (std::size_t run = 0; run < spans.kept.size(); ++run) {
      pair.source.tokens.insert(pair.source.tokens.end(), token, token + spans.kept[run]);
      token += spans.kept[run];
      if (run < spans.masked.size()) {
        pair.source.tokens.push_back(mask_);
        token += spans.masked[run];
      }
    }
    return pair;
  }
  /// The quantile of the Poisson distribution with the mean train.span_length at a random number.
  std::int64_t poisson(std::uint32_t word) const {
    double const number = std::ldexp(static_cast<double>(word), -32);
    double probability = std::exp(-span_length());
    double below = probability;
    std::int64_t length = 0;
    while (below <= number && probability > 0) {
      ++length;
      probability *= span_length() / static_cast<double>(length);
      below += probability;
    }
    return length;
  }

  std::int32_t mask_;
};

class DenoisingTask final : public Task {
 public:
  std::string meaning() const override { return "restores text of which spans are masked: train.noise"; }
  std::string unsupported_reason(ModelConfig const& model) const override {
    return model.is_encoder_decoder() ? "" : "needs an encoder and a decoder";
  }
  std::unique_ptr<TextTask> text(TextTaskSpec const& spec) const override {
    bool const spans = spec.train.noise == Noise::spans;
    if (spans ? spec.sentinels.empty() : spec.ids.mask == SpecialIds::absent) {
      throw ConfigError(
          "{} masks spans of text, but the vocabulary of {} has no piece {}; `heddle prepare --text …{}` without "
          "--vocab-model learns one that has",
          spec.where, spec.dataset, spans ? "<extra_id_0>" : "<mask>", spans ? " --sentinels 100" : "");
    }
    if (spans) {
      return std::make_unique<SpanCorruption>(spec);
    }
    return std::make_unique<TextInfilling>(spec);
  }
  std::vector<std::string> keys() const override { return {"mask_rate", "noise", "span_length"}; }
};

}  // namespace

std::shared_ptr<Task const> make_denoising() {
  return std::make_shared<DenoisingTask>();
}

}  // namespace heddle
