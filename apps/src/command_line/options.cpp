#include "options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <iostream>

namespace heddle {
namespace {

namespace po = boost::program_options;

std::string describe_unknown(po::unknown_option const& error, po::options_description const& options) {
  std::vector<std::string> names;
  for (auto const& option : options.options()) {
    names.push_back("--" + option->long_name());
  }
  std::string const given = error.get_option_name();
  std::string const meant = nearest_spelling(given, names);
  return fmt::format("there is no option {}{}", given, meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

/// A missing option in the form of the usage line: a positional one has no "--" there.
std::string describe_missing(po::required_option const& error, CommandSyntax const& syntax) {
  std::string name = error.get_option_name();
  name.erase(0, name.find_first_not_of('-'));
  for (unsigned place = 0; place < syntax.positional.max_total_count(); ++place) {
    if (syntax.positional.name_for_position(place) == name) {
      return syntax.options.find(name, false).semantic()->name() + " is missing";
    }
  }
  return fmt::format("--{} is missing", name);
}

constexpr char const* surplus = "surplus";

/// "RUN.toml  the configuration" for each argument that needs no "--".
std::string describe_arguments(CommandSyntax const& syntax) {
  std::string text;
  for (unsigned place = 0; place < syntax.positional.max_total_count(); ++place) {
    po::option_description const& argument = syntax.options.find(syntax.positional.name_for_position(place), false);
    text += fmt::format("  {:<14} {}\n", argument.semantic()->name(), argument.description());
  }
  return text.empty() ? "" : "Arguments:\n" + text + "\n";
}

bool is_argument(po::option_description const& option, CommandSyntax const& syntax) {
  for (unsigned place = 0; place < syntax.positional.max_total_count(); ++place) {
    if (syntax.positional.name_for_position(place) == option.long_name()) {
      return true;
    }
  }
  return false;
}

/// The text of --help: arguments, then options with their defaults.
void print_help(CommandSyntax const& syntax, po::options_description const& options) {
  constexpr unsigned line_length = 110;
  po::options_description named("Options", line_length, line_length / 2);
  for (auto const& option : options.options()) {
    if (!is_argument(*option, syntax)) {
      named.add(option);
    }
  }
  std::cout << fmt::format("Usage: heddle {} {}\n\n{}\n\n{}", syntax.name, syntax.usage, syntax.summary,
                           describe_arguments(syntax))
            << named;
}

std::string describe_surplus(std::string const& argument, po::variables_map const& values) {
  std::string hint;
  if (values.count("set") > 0) {
    for (std::string const& setting : values["set"].as<std::vector<std::string>>()) {
      if (setting.find('=') == std::string::npos) {
        hint = fmt::format(": did you mean --set {}={}?", setting, argument);
      }
    }
  }
  return fmt::format("{} is one argument too many{}", argument, hint);
}

}  // namespace

Verbosity VerbosityOptions::verbosity() const {
  if (quiet && verbose) {
    throw UsageError("-q and -v exclude each other");
  }
  return quiet ? Verbosity::quiet : verbose ? Verbosity::verbose : Verbosity::normal;
}

void add_verbosity(CommandSyntax& syntax, VerbosityOptions& options, char const* less, char const* more) {
  syntax.options.add_options()("quiet,q", po::bool_switch(&options.quiet), less);
  if (more != nullptr) {
    syntax.options.add_options()("verbose,v", po::bool_switch(&options.verbose), more);
  }
}

std::optional<po::variables_map> parse_options(CommandSyntax const& syntax, std::vector<std::string> const& arguments) {
  po::options_description options = syntax.options;
  options.add_options()("help,h", "print this and exit");
  // Takes what is too much, so that the message can name it.
  po::options_description all;
  all.add(options).add_options()(surplus, po::value<std::vector<std::string>>());
  po::positional_options_description positional = syntax.positional;
  positional.add(surplus, -1);
  // Abbreviated names are not accepted: a script must not change its meaning when an option is added.
  int const style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
  std::string problem;
  try {
    po::variables_map values;
    po::store(po::command_line_parser(arguments).options(all).positional(positional).style(style).run(), values);
    if (values.count("help") > 0) {
      print_help(syntax, options);
      return std::nullopt;
    }
    if (values.count(surplus) > 0) {
      throw UsageError(describe_surplus(values[surplus].as<std::vector<std::string>>().front(), values));
    }
    po::notify(values);
    return values;
  } catch (UsageError const& error) {
    problem = error.what();
  } catch (po::unknown_option const& error) {
    problem = describe_unknown(error, options);
  } catch (po::required_option const& error) {
    problem = describe_missing(error, syntax);
  } catch (po::error const& error) {
    problem = error.what();
  }
  throw UsageError(fmt::format("{}: {}\nUsage: heddle {} {}\n`heddle {} --help` shows every option.", syntax.name,
                               problem, syntax.name, syntax.usage, syntax.name));
}

}  // namespace heddle
