#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <heddle/io/text/text_files.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

class Rule;

/// Why a line is dropped.
struct DroppedLine {
  std::size_t rule = 0;  ///< its index in CleaningReport::rules
  std::string reason;    ///< "the target has 3 words; min_words = 5"
};

/// Counts of a text that was cleaned.
struct CleaningReport {
  struct OfRule {
    std::string name;
    std::int64_t dropped = 0;  ///< lines that no earlier rule drops
  };
  std::int64_t lines = 0;
  std::int64_t kept = 0;
  std::vector<OfRule> rules = {};          ///< in the order in which they are asked
  std::vector<std::string> warnings = {};  ///< at the end of the text: rules that dropped nothing
};

/// A table for people: the lines that each rule dropped, and the share of them.
std::string describe(CleaningReport const& report);

/// Decides which lines of a corpus are kept, by the rules of a file. Each rule is asked only about lines that no
/// earlier rule drops. Memory does not grow with the text, except for rules about duplicates.
class Cleaner {
 public:
  /// The result of looking at a line by itself.
  struct Findings {
    std::optional<DroppedLine> dropped = {};            ///< by a rule that looks at the line alone
    std::vector<std::vector<std::uint64_t>> keys = {};  ///< of each rule that compares lines
  };

  /// The content of RULES.toml, whose tables are rules with their options; `name` is the file's in messages. `pairs`:
  /// the lines are pairs, not one text. `held_out`: validation text, as a side after the other, which the rule overlap
  /// compares with, too. Throws ConfigError, with file, line and key, for a rule or a key that there is not, a value
  /// that it cannot have, and a rule that this build or this text cannot have; DataError for files that rules read.
  Cleaner(std::string_view rules, std::string const& name, bool pairs,
          std::vector<std::vector<TextFile>> const& held_out = {});
  ~Cleaner();
  Cleaner(Cleaner&&) noexcept;
  Cleaner& operator=(Cleaner&&) noexcept;

  /// Looks at a line: its source and target, or one text. Threads may look at the same time.
  Findings look_at(std::span<std::string_view const> sides) const;

  /// Decides on the next line of the text: why it is dropped, or nothing if it is kept. Throws DataError where a file
  /// that rules read beside the text ends before it.
  std::optional<DroppedLine> decide(Findings findings);

  /// Ends the text. Throws DataError if nothing is kept, with the rule that dropped most, or if a file that rules read
  /// has more lines than the text.
  void finish();

  CleaningReport const& report() const { return report_; }

 private:
  struct Used {
    std::unique_ptr<Rule> rule;
    std::string place;              ///< "rules.toml:3:2: [length]"
    std::string first_reason = {};  ///< of a line that it dropped
  };

  std::vector<Used> rules_;  ///< as in the report
  CleaningReport report_;
  bool pairs_;
};

/// The rules that are used where no file is given, for pairs or for one text: all rules with their options and
/// defaults, as a commented RULES.toml.
std::string default_rules(bool pairs);

/// A line of a text that is cleaned.
struct CleanedLine {
  std::string text = {};                    ///< the whole line, where its sides are columns of it
  std::vector<std::string> sides = {};      ///< source and target, or one text
  std::optional<DroppedLine> dropped = {};  ///< none: the line is kept
};

/// The text of a dropped line in a file of them: its number, the rule, the reason and the sides, with tabs between
/// them.
std::string dropped_text(std::int64_t number, CleanedLine const& line, CleaningReport const& report);

/// Cleans a text: reads its lines with `read`, which returns false at the end, looks at them in `threads` threads, and
/// passes them to `take` in their order. The result does not depend on the number of threads.
void clean_text(Cleaner& cleaner, int threads, std::function<bool(CleanedLine&)> const& read,
                std::function<void(CleanedLine const&)> const& take);

}  // namespace heddle
