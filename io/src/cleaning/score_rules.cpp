#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/text/text.hpp>

#include "cleaning/rule.hpp"

namespace heddle {
namespace {

/// A file with a number at the start of each line, such as `heddle score` writes.
class ScoreFile {
 public:
  explicit ScoreFile(std::string const& path) : reader_(path) {}

  /// The next line's number; nothing at the end. Throws DataError for a line that does not start with a number.
  std::optional<double> next() {
    if (!reader_.next(line_)) {
      return {};
    }
    auto const words = split_words(line_);
    std::string_view const word = words.empty() ? std::string_view() : words.front();
    double value = 0;
    auto const [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) {
      throw DataError("{}: line {}: \"{}\" is not a number", reader_.path().string(), reader_.line_number(), word);
    }
    return value;
  }
  std::string path() const { return reader_.path().string(); }

 private:
  LineReader reader_;
  std::string line_;
};

/// The scores of a text's lines: numbers of a file, or dual conditional cross-entropy (Junczys-Dowmunt 2018) of the
/// mean log-probabilities of tokens in both directions, 1 for the best pair and 0 for the worst.
class Scores {
 public:
  explicit Scores(std::vector<std::string> const& files) : files_(files.begin(), files.end()) {}

  std::optional<double> next() {
    std::array<std::optional<double>, 2> values;
    for (std::size_t file = 0; file < files_.size(); ++file) {
      values[file] = files_[file].next();
    }
    if (files_.size() == 1 || (!values[0] && !values[1])) {
      return values[0];
    }
    if (!values[0] || !values[1]) {
      throw DataError("{} ends before {} does", files_[values[0] ? 1 : 0].path(), files_[values[0] ? 0 : 1].path());
    }
    double const forward = *values[0];
    double const backward = *values[1];
    return std::exp((forward + backward) / 2 - std::abs(forward - backward));
  }
  std::string path() const { return files_.front().path(); }

 private:
  std::vector<ScoreFile> files_;
};

/// The score as an integer whose order is that of the scores; NaN is the smallest.
std::uint32_t order_of(double score) {
  auto const bits = std::bit_cast<std::uint32_t>(static_cast<float>(score));
  return std::isnan(score) ? 0 : (bits >> 31U) != 0 ? ~bits : bits | (std::uint32_t{1} << 31U);
}

/// The lowest score that is kept, as order_of, and how many of the lines that have just this score: as many as fill a
/// share of all lines, spread evenly over those lines.
struct Threshold {
  /// Decides on the next line with the score.
  bool keeps_next() {
    std::int64_t const before = seen * kept / lines;
    return ++seen * kept / lines > before;
  }

  std::uint32_t order = 0;
  std::int64_t kept = 1, lines = 1;
  std::int64_t seen = 0;
};

/// The threshold for the best `share` of the lines: found in two passes that count the upper and the lower half of a
/// score's bits, so that no score is kept in memory.
Threshold threshold_of(std::vector<std::string> const& files, double share) {
  std::uint32_t upper = 0;
  std::int64_t wanted = 0;  // lines that have at least the score
  for (bool const first : {true, false}) {
    std::vector<std::int64_t> counts(std::size_t{1} << 16U);
    Scores scores(files);
    std::int64_t lines = 0;
    while (auto const score = scores.next()) {
      ++lines;
      std::uint32_t const order = order_of(*score);
      if (first || order >> 16U == upper) {
        ++counts[first ? order >> 16U : order & 0xFFFFU];
      }
    }
    if (lines == 0) {
      throw DataError("{} is empty; expected a number a line", scores.path());
    }
    if (first) {
      wanted = std::max<std::int64_t>(1, std::llround(share * static_cast<double>(lines)));
    }
    std::uint32_t value = 0xFFFF;
    for (; counts[value] < wanted && value > 0; --value) {
      wanted -= counts[value];
    }
    if (!first) {
      return {.order = (upper << 16U) | value, .kept = wanted, .lines = counts[value]};
    }
    upper = value;
  }
  return {};
}

class ScoreRule : public Rule {
 public:
  explicit ScoreRule(RuleOptions const& options) : files_(files(options)), scores_(files_) {
    bool const share = options.given("keep");
    for (std::string const& file : files_) {
      if (share && is_read_once(file)) {
        throw ConfigError("{} = {} reads the scores twice, and {} is not a file; write it to one, or give min",
                          options.place("keep"), options.number("keep"), file);
      }
    }
    threshold_ = share ? threshold_of(files_, options.number("keep")) : Threshold{order_of(options.number("min"))};
  }

  Reason admit(std::int64_t number, std::span<std::uint64_t const> /*keys*/) override {
    std::optional<double> score;
    bool kept = false;
    for (; read_ < number; ++read_) {
      score = scores_.next();
      if (!score) {
        throw DataError("{} ends after line {}, before the text does", scores_.path(), readable_count(read_));
      }
      std::uint32_t const order = order_of(*score);
      kept =
          !std::isnan(*score) && (order > threshold_.order || (order == threshold_.order && threshold_.keeps_next()));
    }
    return kept ? Reason() : fmt::format("has the score {:.6g}", *score);
  }

  void finish(std::int64_t lines) override {
    for (; scores_.next(); ++read_) {
      if (read_ >= lines) {
        throw DataError("{} has lines after {}, where the text ends", scores_.path(), readable_count(lines));
      }
    }
    if (read_ < lines) {
      throw DataError("{} ends after line {}, before the text does", scores_.path(), readable_count(read_));
    }
  }

 private:
  /// The file of scores, or those of both directions.
  static std::vector<std::string> files(RuleOptions const& options) {
    std::string const file = options.text("file");
    std::vector<std::string> const both{options.text("forward"), options.text("backward")};
    bool const one = !file.empty() && both[0].empty() && both[1].empty();
    if (!one && (!file.empty() || both[0].empty() || both[1].empty())) {
      throw ConfigError("{} needs file, or forward and backward: files with a number for each line", options.place());
    }
    if (options.given("keep") == options.given("min")) {
      throw ConfigError("{} needs one of min, the lowest score that is kept, and keep, the share of lines that is kept",
                        options.place());
    }
    return one ? std::vector{file} : both;
  }

  std::vector<std::string> files_;
  Scores scores_;
  Threshold threshold_;
  std::int64_t read_ = 0;
};

}  // namespace

std::vector<RuleKind> score_rules() {
  constexpr double lowest = -1e30;
  return {
      {.name = "scores",
       .meaning = "lines with low scores, which files have for each line",
       .use = RuleUse::if_named,
       .options = {text_option("file", "a number at the start of each line; higher is better", ""),
                   text_option("forward", "in place of file: what `heddle score` writes for the pairs, and", ""),
                   text_option("backward", "for source and target exchanged; both make dual cross-entropy, 0 to 1", ""),
                   number_option("min", "the lowest score that is kept; or", lowest, lowest),
                   number_option("keep", "the share of all lines that is kept, of the best", 1, 0, 1)},
       .make = [](RuleOptions const& options) -> std::unique_ptr<Rule> {
         return std::make_unique<ScoreRule>(options);
       }},
  };
}

}  // namespace heddle
