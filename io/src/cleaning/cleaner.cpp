#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/io/cleaning/cleaner.hpp>
#include <iterator>

#include "cleaning/rule.hpp"

namespace heddle {
namespace {

/// All rules. Those about one line are asked first: rules that compare lines then have fewer of them to remember.
std::vector<RuleKind> const& all_rules() {
  static std::vector<RuleKind> const rules = [] {
    std::vector<RuleKind> all;
    for (auto const& of_subject :
         {size_rules(), character_rules(), content_rules(), language_rules(), score_rules(), duplicate_rules()}) {
      all.insert(all.end(), of_subject.begin(), of_subject.end());
    }
    return all;
  }();
  return rules;
}

bool is_default(RuleKind const& kind, bool pairs) {
  return kind.use == RuleUse::always || (kind.use == RuleUse::pairs && pairs);
}

bool needs_pairs(RuleKind const& kind) {
  return kind.use == RuleUse::pairs || kind.use == RuleUse::if_named_for_pairs;
}

/// Throws ConfigError for a table that is not a rule.
void check_names(std::vector<OptionTable> const& tables, std::string const& file) {
  std::vector<std::string> names;
  std::ranges::transform(all_rules(), std::back_inserter(names), &RuleKind::name);
  for (OptionTable const& table : tables) {
    if (std::ranges::find(names, table.name) == names.end()) {
      throw ConfigError("{}: there is no rule {}; {}", table.origin, table.name, nearest_or_all(table.name, names));
    }
  }
  if (tables.empty()) {
    throw ConfigError(
        "{} names no rule; expected tables such as [length]; `heddle clean --write-rules FILE` writes "
        "all of them",
        file);
  }
}

/// Throws ConfigError for a key that the rule does not have, or a value that the key cannot have.
void check_options(RuleKind const& kind, OptionTable const& table) {
  if (kind.options.empty() && !table.options.given().empty()) {
    std::string const& name = table.options.given().begin()->first;
    throw ConfigError("{}: the rule has no options", table.options.place(name));
  }
  std::vector<OptionDescription> options;
  std::ranges::transform(kind.options, std::back_inserter(options), &CleaningOption::description);
  table.options.check(options);
}

}  // namespace

Cleaner::Cleaner(std::string_view rules, std::string const& name, bool pairs,
                 std::vector<std::vector<TextFile>> const& held_out)
    : pairs_(pairs) {
  std::vector<OptionTable> const tables = read_option_tables(rules, name);
  check_names(tables, name);
  for (RuleKind const& kind : all_rules()) {
    auto const table = std::ranges::find(tables, kind.name, &OptionTable::name);
    if (table == tables.end()) {
      continue;
    }
    check_options(kind, *table);
    RuleOptions const options(kind.options, *table, pairs, held_out);
    if (needs_pairs(kind) && !pairs) {
      throw ConfigError("{} compares the two sides of pairs, but the text has one side; leave it out", options.place());
    }
    rules_.push_back({kind.make(options), options.place()});
    report_.rules.push_back({kind.name});
  }
}

Cleaner::~Cleaner() = default;
Cleaner::Cleaner(Cleaner&&) noexcept = default;
Cleaner& Cleaner::operator=(Cleaner&&) noexcept = default;

Cleaner::Findings Cleaner::look_at(std::span<std::string_view const> sides) const {
  LineText const line(sides);
  Findings findings;
  for (std::size_t index = 0; index < rules_.size(); ++index) {
    if (auto reason = rules_[index].rule->judge(line)) {
      findings.dropped = {index, std::move(*reason)};
      break;
    }
    findings.keys.push_back(rules_[index].rule->keys(line));
  }
  return findings;
}

std::optional<DroppedLine> Cleaner::decide(Findings findings) {
  ++report_.lines;
  for (std::size_t index = 0; index < findings.keys.size(); ++index) {
    if (auto reason = rules_[index].rule->admit(report_.lines, findings.keys[index])) {
      findings.dropped = {index, std::move(*reason)};
      break;
    }
  }
  if (!findings.dropped) {
    ++report_.kept;
    return {};
  }
  std::size_t const index = findings.dropped->rule;
  if (report_.rules[index].dropped++ == 0) {
    rules_[index].first_reason = fmt::format("line {}: {}", report_.lines, findings.dropped->reason);
  }
  return std::move(findings.dropped);
}

void Cleaner::finish() {
  for (Used const& used : rules_) {
    used.rule->finish(report_.lines);
  }
  char const* const thing = pairs_ ? "pair" : "line";
  if (report_.lines > 0 && report_.kept == 0) {
    auto const most = std::ranges::max_element(report_.rules, {}, &CleaningReport::OfRule::dropped);
    Used const& used = rules_[static_cast<std::size_t>(most - report_.rules.begin())];
    throw DataError("{} drops {} of {}, and nothing is left; {}", used.place, readable_count(most->dropped),
                    counted(report_.lines, thing), used.first_reason);
  }
  for (std::size_t index = 0; index < rules_.size(); ++index) {
    if (report_.rules[index].dropped == 0) {
      report_.warnings.push_back(
          fmt::format("{} drops none of {}", rules_[index].place, counted(report_.lines, thing)));
    }
  }
}

std::string describe(CleaningReport const& report) {
  auto const share = [&](std::int64_t lines) {
    return report.lines == 0 ? 0 : 100 * static_cast<double>(lines) / static_cast<double>(report.lines);
  };
  std::string text = fmt::format("kept {} of {} lines ({:.2f} %); dropped by\n", readable_count(report.kept),
                                 readable_count(report.lines), share(report.kept));
  for (CleaningReport::OfRule const& rule : report.rules) {
    text += fmt::format("  {:<16} {:>13} {:>7.2f} %\n", rule.name, readable_count(rule.dropped), share(rule.dropped));
  }
  return text;
}

std::string dropped_text(std::int64_t number, CleanedLine const& line, CleaningReport const& report) {
  std::string text = fmt::format("{}\t{}\t{}", number, report.rules[line.dropped->rule].name, line.dropped->reason);
  for (std::string side : line.sides) {
    std::ranges::replace(side, '\t', ' ');
    text += '\t' + side;
  }
  return text;
}

std::string default_rules(bool pairs) {
  std::string text =
      "# Rules of `heddle clean` and `heddle prepare --clean`. A table that stands here is a rule that is used; a key "
      "that\n# does not has the default that is shown. Rules are asked in this order, and a line is counted for the "
      "first rule\n# that drops it.\n";
  for (RuleKind const& kind : all_rules()) {
    if (needs_pairs(kind) && !pairs) {
      continue;
    }
    char const* const mark = is_default(kind, pairs) ? "" : "# ";
    text += fmt::format("\n# Drops {}.\n{}[{}]\n", kind.meaning, mark, kind.name);
    for (CleaningOption const& option : kind.options) {
      text += fmt::format("# {} = {}  # {}\n", option.description.name, to_toml(option.otherwise),
                          option.description.meaning);
    }
  }
  return text;
}

}  // namespace heddle
