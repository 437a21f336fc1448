#pragma once

#include <boost/program_options.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/warning.hpp"

namespace heddle {

/// The command line of a subcommand: its options, their defaults, and the text of `--help`.
struct CommandSyntax {
  std::string name;     ///< "prepare"
  std::string usage;    ///< the text after `heddle NAME`: "--source TEXT --target TEXT --out DIRECTORY [options]"
  std::string summary;  ///< a paragraph
  boost::program_options::options_description options{"Options"};
  boost::program_options::positional_options_description positional{};  ///< names of `options` that need no "--"
};

/// Parses `arguments` (without the subcommand's name). `--help` prints every option with its default and returns
/// nullopt: the command is then done. Throws UsageError, which says what would be right, for any error: an unknown
/// option (with the nearest known one), a missing value, a missing required option, a value of another type.
std::optional<boost::program_options::variables_map> parse_options(CommandSyntax const& syntax,
                                                                   std::vector<std::string> const& arguments);

/// The values of -q and -v.
struct VerbosityOptions {
  bool quiet = false;
  bool verbose = false;

  /// Throws UsageError if both were given.
  Verbosity verbosity() const;
};
/// Adds -q and, where `more` is given, -v: `less` and `more` say for --help what is printed with them.
void add_verbosity(CommandSyntax& syntax, VerbosityOptions& options, char const* less, char const* more = nullptr);

}  // namespace heddle
