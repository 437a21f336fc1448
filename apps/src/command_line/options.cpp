#include "options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <iostream>
#include <utility>

#include "command_line/terminal.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;

std::string describe_unknown(po::unknown_option const& error, po::options_description const& options) {
  std::vector<std::string> names;
  for (auto const& option : options.options()) {
    names.push_back("--" + option->long_name());
  }
  std::string const given = error.get_option_name();
  std::string meant = nearest_spelling(given, names);
  constexpr std::size_t min_length = 6;  // "--beam", of which other programs have --beam-size or --beamsize
  for (std::string const& name : names) {
    if (meant.empty() && name.size() >= min_length && given.starts_with(name)) {
      meant = name;
    }
  }
  return fmt::format("there is no option {}{}", given, meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

/// Whether the option is positional.
bool is_argument(std::string const& name, CommandSyntax const& syntax) {
  for (unsigned place = 0; place < syntax.positional.max_total_count(); ++place) {
    if (syntax.positional.name_for_position(place) == name) {
      return true;
    }
  }
  return false;
}

/// A missing option in the form of the usage line: a positional one has no "--" there.
std::string describe_missing(po::required_option const& error, CommandSyntax const& syntax) {
  std::string name = error.get_option_name();
  name.erase(0, name.find_first_not_of('-'));
  return is_argument(name, syntax) ? syntax.options.find(name, false).semantic()->name() + " is missing"
                                   : fmt::format("--{} is missing", name);
}

constexpr char const* surplus = "surplus";

/// "RUN.toml  the configuration" for each argument that needs no "--".
std::string describe_arguments(CommandSyntax const& syntax) {
  std::string text;
  std::string before;
  for (unsigned place = 0; place < syntax.positional.max_total_count(); ++place) {
    std::string const& name = syntax.positional.name_for_position(place);
    if (std::exchange(before, name) == name) {
      continue;
    }
    po::option_description const& argument = syntax.options.find(name, false);
    text += fmt::format("  {:<14} {} (also --{})\n", argument.semantic()->name(), argument.description(), name);
  }
  return text.empty() ? "" : "Arguments:\n" + text + "\n";
}

/// The text of --help: arguments, then options with their defaults.
void print_help(CommandSyntax const& syntax, po::options_description const& options) {
  auto const columns = static_cast<unsigned>(help_columns());
  po::options_description named("Options", columns, columns / 2);
  for (auto const& option : options.options()) {
    if (!is_argument(option->long_name(), syntax)) {
      named.add(option);
    }
  }
  std::cout << fmt::format("{}\n\n{}\n\n{}", wrapped_usage(syntax.name, syntax.usage, columns),
                           wrapped(syntax.summary, columns), describe_arguments(syntax));
  named.print(std::cout, named.get_option_column_width() + 1);  // help2man knows an option by two spaces after it
}

/// Whether a name of a value, "best|METRIC", has a part in capitals, which stands for any word.
bool is_open(std::string const& choices) {
  return std::ranges::any_of(choices, [](char letter) { return letter >= 'A' && letter <= 'Z'; });
}

/// Throws UsageError where a value of an option "best|last" is another word.
void require_choices(CommandSyntax const& syntax, po::variables_map const& values) {
  for (auto const& option : syntax.options.options()) {
    std::string const& name = option->long_name();
    std::string choices = option->semantic()->name();  // "best|last (=last)"
    choices.erase(std::min(choices.find(' '), choices.size()));
    if (choices.find('|') == std::string::npos || is_open(choices) || values.count(name) == 0) {
      continue;
    }
    auto const* const several = boost::any_cast<std::vector<std::string>>(&values[name].value());
    for (std::string const& given : several != nullptr ? *several : std::vector{values[name].as<std::string>()}) {
      if (given.find('|') != std::string::npos ||
          fmt::format("|{}|", choices).find(fmt::format("|{}|", given)) == std::string::npos) {
        throw UsageError("{}{} is \"{}\"; expected {}", is_argument(name, syntax) ? "" : "--", name, given, choices);
      }
    }
  }
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

void add_verbosity(CommandSyntax& syntax, Verbosity& verbosity, char const* less, char const* more) {
  auto const add = [&](char const* option, Verbosity chosen, char const* help) {
    auto const choose = [&verbosity, chosen](bool given) {
      if (given && verbosity != Verbosity::normal) {
        throw UsageError("-q and -v exclude each other");
      }
      verbosity = given ? chosen : verbosity;
    };
    syntax.options.add_options()(option, po::bool_switch()->notifier(choose), help);
  };
  add("quiet,q", Verbosity::quiet, less);
  if (more != nullptr) {
    add("verbose,v", Verbosity::verbose, more);
  }
}

void add_config_options(CommandSyntax& syntax, ConfigOptions& options, bool required) {
  auto* const config = po::value(&options.config)->value_name("RUN.toml");
  syntax.options.add_options()                                                 //
      ("config", required ? config->required() : config, "the configuration")  //
      ("set", po::value(&options.overrides)->value_name("SECTION.KEY=VALUE")->composing(),
       "a key's value in place of the file's; may be repeated")  //
      ("plugin", po::value(&options.plugins)->value_name("LIBRARY")->composing(),
       "a shared library with kernels and layers, in addition to those in plugins.paths; may be repeated");
  syntax.positional.add("config", 1);
}

void add_invalid_utf8(OptionsDescription& description, InvalidUtf8& value, bool with_skip) {
  auto const choose = [&value](std::string const& word) {
    value = word == "fail" ? InvalidUtf8::fail : word == "skip" ? InvalidUtf8::skip : InvalidUtf8::replace;
  };
  auto* const option = po::value<std::string>()
                           ->value_name(with_skip ? "fail|skip|replace" : "replace|fail")
                           ->default_value(value == InvalidUtf8::fail ? "fail" : "replace")
                           ->notifier(choose);
  description.add_options()("invalid-utf8", option,
                            with_skip ? "a line that is not UTF-8: end with an error that names it, leave it out with "
                                        "its other side, or put U+FFFD in place of what is invalid"
                                      : "a line that is not UTF-8: put U+FFFD in place of what is invalid, or end with "
                                        "an error that names it");
}

std::array<std::int64_t, 2> parse_columns(std::string const& given) {
  std::array<std::int64_t, 2> columns{};
  int end = 0;
  if (std::sscanf(given.c_str(), "%" SCNd64 ",%" SCNd64 "%n", &columns[0], &columns[1], &end) != 2 ||
      end != static_cast<int>(given.size())) {
    throw UsageError("--columns is \"{}\"; expected two numbers, such as 3,4", given);
  }
  return columns;
}

po::variables_map parse_options(CommandSyntax const& syntax, std::vector<std::string> const& arguments) {
  po::options_description options = syntax.options;
  options.add_options()("help,h", "print this and exit");
  // Takes surplus arguments, so that the message can name one.
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
      throw HelpPrinted();
    }
    if (values.count(surplus) > 0) {
      throw UsageError(describe_surplus(values[surplus].as<std::vector<std::string>>().front(), values));
    }
    require_choices(syntax, values);
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
  throw UsageError("{}: {}\n{}\n`heddle {} --help` shows every option.", syntax.name, problem,
                   wrapped_usage(syntax.name, syntax.usage, help_columns()), syntax.name);
}

}  // namespace heddle
