#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/io/dataset/sample_source.hpp>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// The lines of a text as token ids, without end tokens; none is empty.
class TextLines {
 public:
  TextLines() = default;
  virtual ~TextLines() = default;
  TextLines(TextLines const&) = delete;
  TextLines& operator=(TextLines const&) = delete;

  virtual std::int64_t size() const = 0;
  virtual std::int64_t length(std::int64_t line) const = 0;
  /// The numbers of lines by length.
  virtual LengthCounts lengths() const = 0;
  /// `count` tokens of a line from token `begin`.
  virtual std::vector<std::int32_t> tokens(std::int64_t line, std::int64_t begin, std::int64_t count) const = 0;
};

/// Those of a dataset. Keeps a reference to it.
class DatasetLines final : public TextLines {
 public:
  explicit DatasetLines(Dataset const& dataset) : dataset_(dataset) {}

  std::int64_t size() const override { return dataset_.size(); }
  std::int64_t length(std::int64_t line) const override { return dataset_.line_length(line); }
  LengthCounts lengths() const override { return dataset_.lengths(SampleLength::line); }
  std::vector<std::int32_t> tokens(std::int64_t line, std::int64_t begin, std::int64_t count) const override {
    return dataset_.line(line, begin, count);
  }

 private:
  Dataset const& dataset_;
};

class MemoryLines final : public TextLines {
 public:
  explicit MemoryLines(std::vector<std::vector<std::int32_t>> lines) : lines_(std::move(lines)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(lines_.size()); }
  std::int64_t length(std::int64_t line) const override { return static_cast<std::int64_t>(at(line).size()); }
  LengthCounts lengths() const override;
  std::vector<std::int32_t> tokens(std::int64_t line, std::int64_t begin, std::int64_t count) const override {
    return {at(line).begin() + begin, at(line).begin() + begin + count};
  }

 private:
  std::vector<std::int32_t> const& at(std::int64_t line) const { return lines_[static_cast<std::size_t>(line)]; }

  std::vector<std::vector<std::int32_t>> lines_;
};

/// Lines, each with its end token, joined into sequences: a sequence takes the next line while it has at most
/// max_length tokens with it. A longer line begins a sequence and is cut into pieces of max_length tokens; its rest is
/// continued with the lines that follow. No token is lost, and none is repeated. Here are the sequences of one window.
class TextSequences {
 public:
  /// Tokens [begin, begin + count) of a line with its end token.
  struct Piece {
    std::int64_t line = 0;
    std::int64_t begin = 0;
    std::int64_t count = 0;
    bool ends = false;  ///< the last of them is the end token
  };

  /// Of these lines in this order.
  TextSequences(TextLines const& lines, std::vector<std::int64_t> order, std::int64_t max_length);

  std::int64_t size() const { return static_cast<std::int64_t>(length_.size()); }
  std::int64_t length(std::int64_t sequence) const { return length_[static_cast<std::size_t>(sequence)]; }
  std::vector<Piece> pieces(std::int64_t sequence) const;

 private:
  struct Start {
    std::int64_t place = 0;  ///< in order_
    std::int64_t begin = 0;  ///< token of that line
  };

  void add_line(std::int64_t place, std::int64_t max_length);
  std::int64_t tokens(std::int64_t place) const { return lines_.length(order_[static_cast<std::size_t>(place)]) + 1; }

  TextLines const& lines_;
  std::vector<std::int64_t> order_;  ///< of the lines
  std::vector<Start> starts_;        ///< of the sequences
  std::vector<std::int64_t> length_;
};

/// The text's vocabulary and the rule that makes samples of its lines.
struct TextRule {
  SpecialIds ids;
  std::int64_t vocabulary = 0;
  std::int64_t max_length = 0;
  std::optional<std::uint64_t> seed;  ///< of the lines' order and of masks; none: the text's order and fixed masks
};

/// Sequences whose tokens are predicted one after another by a decoder: row i reads token i - 1, the first row the
/// begin token. Lines are joined within a window; a sample's index is 2^32 times its window, plus its place there.
class TextSamples : public SampleSource {
 public:
  TextSamples(std::unique_ptr<TextLines> lines, TextRule const& rule);

  std::int64_t windows(std::int64_t /*epoch*/) const override { return order_.windows(); }
  std::vector<std::int64_t> window(std::int64_t epoch, std::int64_t window) const override;
  SampleCost cost(std::int64_t epoch, std::int64_t index) const override { return {0, length(epoch, index)}; }
  void read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
            PackTokens& into) const override;
  /// Of several windows `usable` is only 1, and `longest` an upper bound.
  SampleTotals totals(std::int64_t epoch, std::int64_t max_length) const override;
  std::string describe() const override;

 protected:
  TextRule const& rule() const { return rule_; }
  std::int64_t length(std::int64_t epoch, std::int64_t index) const;
  std::vector<TextSequences::Piece> pieces(std::int64_t epoch, std::int64_t index) const;
  /// The tokens of a sequence, end tokens included.
  std::vector<std::int32_t> tokens(std::int64_t epoch, std::int64_t index) const;
  /// A sequence whose rows predict all its tokens.
  TokenSequence predicting(std::int64_t epoch, std::int64_t index, std::int32_t number) const;

 private:
  struct Window {
    std::int64_t epoch = 0;
    std::int64_t window = 0;
    TextSequences sequences;
  };
  TextSequences const& sequences(std::int64_t epoch, std::int64_t window) const;

  std::unique_ptr<TextLines> lines_;
  TextRule rule_;
  WindowOrder order_;
  mutable std::list<Window> latest_;  ///< the two that were asked for last: a batch may lie in both
};

/// Sequences with prefixes of random lengths, uniform from 1 to the sequence's (Raffel et al. 2020, "prefix LM"): the
/// begin token and the tokens that follow it; those behind the prefix are predicted. The random numbers are keyed by
/// the seed, the epoch and the sequence.
class PrefixedTextSamples final : public TextSamples {
 public:
  PrefixedTextSamples(std::unique_ptr<TextLines> lines, TextRule const& rule);

  std::int64_t predicted(std::int64_t epoch, std::int64_t index) const override;
  void read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
            PackTokens& into) const override;

 private:
  std::int64_t prefix(std::int64_t epoch, std::int64_t index) const;

  std::uint64_t key_;
};

/// Sequences some of whose tokens an encoder is to predict (Devlin et al. 2019): each token but the end tokens with the
/// probability mask_rate, in a sequence without any such token the one with the least random number. Of these, 80 % are
/// read as the mask token, 10 % as a random token of the vocabulary, and 10 % as they are. The random numbers are keyed
/// by the seed, the epoch, the sequence and the position.
class MaskedTextSamples final : public TextSamples {
 public:
  MaskedTextSamples(std::unique_ptr<TextLines> lines, TextRule const& rule, double mask_rate);

  SampleCost cost(std::int64_t epoch, std::int64_t index) const override { return {length(epoch, index), 0}; }
  std::int64_t predicted(std::int64_t epoch, std::int64_t index) const override;
  void read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
            PackTokens& into) const override;

 private:
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
  Draw draw(std::int64_t epoch, std::int64_t index, std::size_t position) const;
  std::vector<Masked> masked(std::int64_t epoch, std::int64_t index) const;

  double mask_rate_;
  std::uint64_t key_;
};

/// The samples of a model of one stack from lines of its vocabulary.
std::unique_ptr<SampleSource> text_samples(Config const& config, std::unique_ptr<TextLines> lines,
                                           Tokenizer const& tokenizer, SampleUse use);

}  // namespace heddle
