#pragma once

#include <cstdint>
#include <functional>
#include <heddle/core/config/option_tables.hpp>
#include <heddle/io/text/text_files.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// A rule of cleaning is an entry of a table: its name, its options and the function that makes it. Each subject has a
/// file with its rules.
namespace heddle {

/// A side of a line, in the forms in which rules look at it.
struct SideText {
  explicit SideText(std::string_view line);

  /// Its letters and digits after case folding (NFKC_Casefold) in words with one space between them: equal for texts
  /// that differ in case, punctuation and white space only. The text itself if it has none.
  std::string const& folded() const;

  std::string_view text;
  std::u32string points;
  std::vector<std::string_view> words;  ///< between white space

 private:
  mutable std::string folded_;  ///< made when it is asked for; a line belongs to one thread
};

/// A line: source and target, or one text.
struct LineText {
  explicit LineText(std::span<std::string_view const> lines) : sides(lines.begin(), lines.end()) {}

  /// "the source", "the target" or "the text".
  std::string name(std::size_t side) const {
    return sides.size() == 1 ? "the text" : side == 0 ? "the source" : "the target";
  }

  std::vector<SideText> sides;
};

/// Decides about lines. Most rules look at a line alone, in judge(). Others compare lines: keys() is what they take of
/// a line, and admit() decides in the order of the lines. judge() and keys() are called by several threads.
class Rule {
 public:
  using Reason = std::optional<std::string>;

  virtual ~Rule() = default;
  /// Why the line is dropped, or nothing.
  virtual Reason judge(LineText const& /*line*/) const { return {}; }
  virtual std::vector<std::uint64_t> keys(LineText const& /*line*/) const { return {}; }
  /// Called for lines that no rule before this one drops; `number` is from 1 on.
  virtual Reason admit(std::int64_t /*number*/, std::span<std::uint64_t const> /*keys*/) { return {}; }
  /// Called when all lines of the text have been read.
  virtual void finish(std::int64_t /*lines*/) {}
};

/// An option of a rule and its default.
struct CleaningOption {
  OptionDescription description;
  OptionValue otherwise;
};

/// The options that a rule is given, with defaults for the others, and what it must know of the text.
class RuleOptions {
 public:
  RuleOptions(std::vector<CleaningOption> const& known, OptionTable const& table, bool of_pairs,
              std::vector<std::vector<TextFile>> const& of_held_out)
      : known_(known), table_(table), pairs_(of_pairs), held_out_(of_held_out) {}

  bool pairs() const { return pairs_; }
  /// Source and target of validation text.
  std::vector<std::vector<TextFile>> const& held_out() const { return held_out_; }

  bool flag(std::string const& name) const { return get<bool>(name); }
  std::int64_t integer(std::string const& name) const { return get<std::int64_t>(name); }
  double number(std::string const& name) const { return get<double>(name); }
  std::string text(std::string const& name) const { return get<std::string>(name); }
  std::vector<std::string> texts(std::string const& name) const { return get<std::vector<std::string>>(name); }
  /// For each side of a line: the option "source", and "target" where lines are pairs.
  template <class Value>
  std::vector<Value> of_sides() const {
    std::vector<Value> values{get<Value>("source")};
    if (pairs_) {
      values.push_back(get<Value>("target"));
    }
    return values;
  }
  bool given(std::string const& name) const { return table_.options.has(name); }
  /// The start of a message about an option: "rules.toml:3:1: length.max_words", where the rule is if the option is not
  /// set; or one about the rule.
  std::string place(std::string const& name) const {
    return (given(name) ? "" : table_.origin + ": ") + table_.options.place(name);
  }
  std::string place() const { return table_.origin + ": [" + table_.name + "]"; }

 private:
  template <class Value>
  Value get(std::string const& name) const {
    return std::get<Value>(value(name));
  }
  OptionValue value(std::string const& name) const;

  std::vector<CleaningOption> const& known_;
  OptionTable const& table_;
  bool pairs_;
  std::vector<std::vector<TextFile>> const& held_out_;
};

enum class RuleUse : std::uint8_t {
  always,    ///< also where no file of rules is given
  pairs,     ///< the same, where lines are pairs; it is refused for one text
  if_named,  ///< only where a file names it
  if_named_for_pairs
};

struct RuleKind {
  std::string name;
  std::string meaning;  ///< which lines it drops: "lines with too few or too many words or characters"
  RuleUse use = RuleUse::always;
  std::vector<CleaningOption> options = {};
  std::unique_ptr<Rule> (*make)(RuleOptions const& options) = nullptr;
};

/// The rules of each subject, in the order in which they are asked.
std::vector<RuleKind> size_rules();       ///< length, ratio, long words
std::vector<RuleKind> character_rules();  ///< scripts, shares of characters, repeats, broken encodings
std::vector<RuleKind> content_rules();    ///< numbers, addresses, placeholders, copies: what both sides must have
std::vector<RuleKind> language_rules();
std::vector<RuleKind> duplicate_rules();  ///< duplicates, near duplicates, overlap with test sets
std::vector<RuleKind> score_rules();

/// A rule that looks at a line alone.
std::unique_ptr<Rule> make_rule(std::function<Rule::Reason(LineText const&)> judge);

/// A rule that looks at each side alone: `judge` returns the rest of a sentence that begins with the side's name.
std::unique_ptr<Rule> make_side_rule(std::function<Rule::Reason(SideText const&)> judge);

/// A 64-bit hash of a text, the same on each machine.
std::uint64_t text_hash(std::string_view text);

inline CleaningOption integer_option(std::string name, std::string meaning, std::int64_t otherwise, double min = 0) {
  return {{.name = std::move(name), .meaning = std::move(meaning), .min = min}, otherwise};
}
inline CleaningOption number_option(std::string name, std::string meaning, double otherwise, double min = 0,
                                    double max = std::numeric_limits<double>::infinity()) {
  return {{.name = std::move(name),
           .type = OptionDescription::Type::number,
           .meaning = std::move(meaning),
           .min = min,
           .max = max},
          otherwise};
}
inline CleaningOption text_option(std::string name, std::string meaning, std::string otherwise,
                                  std::vector<std::string> choices = {}) {
  return {{.name = std::move(name),
           .type = OptionDescription::Type::string,
           .meaning = std::move(meaning),
           .choices = std::move(choices),
           .may_be_empty = true},
          std::move(otherwise)};
}
inline CleaningOption texts_option(std::string name, std::string meaning, std::vector<std::string> otherwise = {}) {
  return {{.name = std::move(name),
           .type = OptionDescription::Type::strings,
           .meaning = std::move(meaning),
           .may_be_empty = true,
           .one_or_several = true},
          std::move(otherwise)};
}
inline CleaningOption flag_option(std::string name, std::string meaning, bool otherwise) {
  return {{.name = std::move(name), .type = OptionDescription::Type::boolean, .meaning = std::move(meaning)},
          otherwise};
}

}  // namespace heddle
