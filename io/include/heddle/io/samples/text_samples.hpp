#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/io/samples/sample_source.hpp>
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

/// The task that makes samples of lines, and special ids of their vocabulary.
struct TextRule {
  std::unique_ptr<TextTask const> task;
  std::int32_t end = 0;
  std::int32_t begin = 0;             ///< of two texts
  bool two_ends = false;              ///< between two texts
  std::int64_t max_length = 0;        ///< maximum length of a sequence, in tokens
  std::optional<std::uint64_t> seed;  ///< seed of the lines' order; none: the text's order
};

/// Samples of lines. Lines, each with its end token, are joined into sequences within a window: a sequence takes the
/// next line while it has at most max_length tokens with it. A longer line starts a sequence and is split into parts of
/// max_length tokens; its rest is continued with the lines that follow. No token is lost, and none is repeated; the
/// task makes a sample of each sequence. A sample's index is 2^32 times its window, plus its place there. Where there
/// are several windows, `usable` of the totals is only 1, and `longest` an upper bound.
std::unique_ptr<SampleSource> text_samples(std::unique_ptr<TextLines> lines, TextRule rule);

/// PairForm::joined: line n of both is one sample, begin token, line, end token, line, end token, of which the task
/// predicts tokens. In training the order of the samples is random, as that of pairs is.
std::unique_ptr<SampleSource> joined_samples(std::unique_ptr<TextLines> first, std::unique_ptr<TextLines> second,
                                             TextRule rule);

/// The rule of a configuration's task for lines of a vocabulary; without a task if it makes no samples of text. Two
/// texts have two end tokens between them where the model has no types for their tokens (Liu et al. 2019). `name` is
/// the text's, for messages. Throws ConfigError as Task::text does.
TextRule text_rule(Config const& config, Task const& task, Tokenizer const& tokenizer, SampleUse const& use,
                   std::string const& name);

/// The samples that a configuration's task makes of lines of a vocabulary; null if it makes none of text. Otherwise as
/// text_rule.
std::unique_ptr<SampleSource> text_samples(Config const& config, Task const& task, std::unique_ptr<TextLines> lines,
                                           Tokenizer const& tokenizer, SampleUse const& use, std::string const& name);

}  // namespace heddle
