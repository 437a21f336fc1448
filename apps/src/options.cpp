#include "options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/error.hpp>
#include <iostream>
#include <numeric>

namespace heddle {
namespace {

namespace po = boost::program_options;

/// Levenshtein's distance.
std::size_t edit_distance(std::string const& a, std::string const& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t const replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string describe_unknown(po::unknown_option const& error, po::options_description const& options) {
  std::vector<std::string> names;
  for (auto const& option : options.options()) {
    names.push_back("--" + option->long_name());
  }
  std::string const given = error.get_option_name();
  std::string const meant = nearest(given, names);
  return fmt::format("there is no option {}{}", given, meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

}  // namespace

std::string nearest(std::string const& word, std::vector<std::string> const& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (std::string const& candidate : candidates) {
    std::size_t const distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::optional<po::variables_map> parse_options(CommandSyntax const& syntax, std::vector<std::string> const& arguments) {
  constexpr unsigned line_length = 110;
  po::options_description options("Options", line_length, line_length / 2);
  for (auto const& option : syntax.options.options()) {
    options.add(option);
  }
  options.add_options()("help,h", "print this and exit");
  // Nothing is guessed from the beginning of a name: a script must not change its meaning when an option is added.
  int const style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
  std::string problem;
  try {
    po::variables_map values;
    po::store(po::command_line_parser(arguments).options(options).positional(syntax.positional).style(style).run(),
              values);
    if (values.count("help") > 0) {
      std::cout << fmt::format("Usage: heddle {} {}\n\n{}\n\n", syntax.name, syntax.usage, syntax.summary) << options;
      return std::nullopt;
    }
    po::notify(values);
    return values;
  } catch (po::unknown_option const& error) {
    problem = describe_unknown(error, options);
  } catch (po::error const& error) {
    problem = error.what();
  }
  throw UsageError(fmt::format("{}: {}\nUsage: heddle {} {}\n`heddle {} --help` shows every option.", syntax.name,
                               problem, syntax.name, syntax.usage, syntax.name));
}

}  // namespace heddle
