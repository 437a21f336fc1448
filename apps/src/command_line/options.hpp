#pragma once

#include <fmt/format.h>

#include <array>
#include <boost/program_options.hpp>
#include <cstdint>
#include <exception>
#include <heddle/io/text/text.hpp>
#include <string>
#include <vector>

#include "run/configuration/options.hpp"

namespace heddle {

using OptionsDescription = boost::program_options::options_description;

/// The command line of a subcommand: its options, their defaults, and the text of `--help`.
struct CommandSyntax {
  std::string name;     ///< "prepare"
  std::string usage;    ///< the text after `heddle NAME`: "--source TEXT --target TEXT --out DIRECTORY [options]"
  std::string summary;  ///< a paragraph
  OptionsDescription options{"Options"};
  boost::program_options::positional_options_description positional{};  ///< names of `options` that need no "--"
};

/// The text of --help is printed, and the command is done.
struct HelpPrinted : std::exception {};

/// Parses `arguments` (without the subcommand's name). `--help` prints every option with its default and throws
/// HelpPrinted. Throws UsageError, which says what would be right, for any error: an unknown option (with the nearest
/// known one), a missing value, a missing required option, a value of another type, or for an option whose value is
/// called "best|last" another word ("newest|METRIC" takes any).
boost::program_options::variables_map parse_options(CommandSyntax const& syntax,
                                                    std::vector<std::string> const& arguments);

/// An option with a value that --help calls `name`; the default is the content of `value`.
template <class Value>
auto* with_default(Value& value, char const* name) {
  return boost::program_options::value(&value)->value_name(name)->default_value(value, fmt::format("{}", value));
}

/// An option without default, for a path or an optional value: it stays as it is if it is not given.
template <class Given = std::string, class Value>
auto* without_default(Value& value, char const* name) {
  return boost::program_options::value<Given>()->value_name(name)->notifier(
      [&value](Given const& given) { value = given; });
}

/// Adds -q and, where `more` is given, -v: `less` and `more` say for --help what is printed with them.
void add_verbosity(CommandSyntax& syntax, Verbosity& verbosity, char const* less, char const* more = nullptr);

/// Adds the argument RUN.toml, --set and --plugin.
void add_config_options(CommandSyntax& syntax, ConfigOptions& options, bool required);

/// Adds --invalid-utf8 replace|fail, for `prepare` (`with_skip`) also skip; the default is the content of `value`.
void add_invalid_utf8(OptionsDescription& description, InvalidUtf8& value, bool with_skip = false);

/// The value "S,T" of --columns: the columns of source and target, from 1 on. Throws UsageError for another text.
std::array<std::int64_t, 2> parse_columns(std::string const& given);

}  // namespace heddle
