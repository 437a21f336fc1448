#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/io/dataset/sample_source.hpp>
#include <memory>
#include <optional>
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

class MemoryLines final : public TextLines {
 public:
  explicit MemoryLines(std::vector<std::vector<std::int32_t>> lines) : lines_(std::move(lines)) {}

  std::int64_t size() const override { return std::ssize(lines_); }
  std::int64_t length(std::int64_t line) const override { return std::ssize(at(line)); }
  LengthCounts lengths() const override;
  std::vector<std::int32_t> tokens(std::int64_t line, std::int64_t begin, std::int64_t count) const override {
    return {at(line).begin() + begin, at(line).begin() + begin + count};
  }

 private:
  std::vector<std::int32_t> const& at(std::int64_t line) const { return lines_[static_cast<std::size_t>(line)]; }

  std::vector<std::vector<std::int32_t>> lines_;
};

/// The samples that are made of lines. Random numbers are keyed by the seed, the epoch, the sequence and the position.
enum class TextForm : std::uint8_t {
  /// Sequences whose tokens are predicted one after another by a decoder: row i reads token i - 1, the first row the
  /// start token.
  sequences,
  /// Sequences with prefixes of random lengths, uniform from 1 to the sequence's (Raffel et al. 2020, "prefix LM"): the
  /// start token and the tokens that follow it. The tokens behind the prefix are predicted.
  prefixed,
  /// Sequences some of whose tokens an encoder is to predict (Devlin et al. 2019): each token except the end tokens
  /// with
  /// the probability mask_rate, in a sequence without any such token the one with the smallest random number. Of these,
  /// 80 % are read as the mask token, 10 % as a random token of the vocabulary, and 10 % as they are.
  masked,
};

/// The text's vocabulary and the rule that makes samples of its lines.
struct TextRule {
  SpecialIds ids;
  std::int64_t vocabulary = 0;
  std::int64_t max_length = 0;
  std::optional<std::uint64_t> seed;  ///< of the lines' order and of masks; none: the text's order and fixed masks
  TextForm form = TextForm::sequences;
  double mask_rate = 0;  ///< of the form `masked`
};

/// Samples of lines. Lines, each with its end token, are joined into sequences within a window: a sequence takes the
/// next line while it has at most max_length tokens with it. A longer line starts a sequence and is cut into pieces of
/// max_length tokens; its rest is continued with the lines that follow. No token is lost, and none is repeated. A
/// sample's index is 2^32 times its window, plus its place there. Where there are several windows, `usable` of the
/// totals is only 1, and `longest` an upper bound.
std::unique_ptr<SampleSource> text_samples(std::unique_ptr<TextLines> lines, TextRule const& rule);

/// The samples of a model of one stack from lines of its vocabulary.
std::unique_ptr<SampleSource> text_samples(Config const& config, std::unique_ptr<TextLines> lines,
                                           Tokenizer const& tokenizer, SampleUse use);

}  // namespace heddle
