#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/config/json_schema.hpp>
#include <heddle/core/operations/update.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/io/exchange/opustrainer.hpp>
#include <iostream>

#include "command_line/options.hpp"
#include "commands/commands.hpp"
#include "run/configuration/config_check.hpp"
#include "run/configuration/precision.hpp"
#include "run/configuration/registration.hpp"
#include "run/directory/warning.hpp"

namespace heddle {
namespace {

struct ConfigCommandOptions : ConfigOptions {
  std::vector<std::string> explained;
  bool defaults = false;
  bool changed = false;
  bool schema = false;
  std::string opustrainer;
};

CommandSyntax config_syntax(ConfigCommandOptions& options) {
  namespace po = boost::program_options;
  CommandSyntax syntax;
  syntax.name = "config";
  syntax.usage =
      "RUN.toml [--changed] [--set SECTION.KEY=VALUE]... [--plugin LIBRARY]... | --defaults | --explain KEY\n"
      "   or: heddle config --schema | --from-opustrainer FILE.yml";
  syntax.summary = R"(Prints a configuration with all its keys, as training resolves it, after checking it as
training does, except for the data and the number of ranks; or explains keys. docs/reference/config.md is the page
about them.)";
  add_config_options(syntax, options, false);
  syntax.options.add_options()                                                                                    //
      ("changed", po::bool_switch(&options.changed), "only the keys that differ from their defaults")             //
      ("defaults", po::bool_switch(&options.defaults), "every key with its default, its values and its meaning")  //
      ("schema", po::bool_switch(&options.schema),
       "the keys as a JSON schema, with which an editor checks and completes a run.toml")  //
      ("from-opustrainer", po::value(&options.opustrainer)->value_name("FILE"),
       "OpusTrainer's configuration as corpora, stages and modifiers, to which the model is to be added")  //
      ("explain", po::value(&options.explained)->value_name("KEY")->composing(),
       "the lines about one key, \"train.steps\", or a section, \"train\"; may be repeated");
  return syntax;
}

/// Reads the configuration and checks it with the layers and kernels that training would have.
Config checked_config(ConfigOptions const& options) {
  Config config = read_config(options);
  Runtime runtime;
  Registries registries;
  register_everything({.plugins = read_plugins(config.plugins)}, registries, runtime.execution());
  resolve_precision(config, usable_cpu_level());
  check_config(config, registries);
  print_warnings(config);
  return config;
}

/// The lines about an option of update rules, "optimizer.beta1"; "" if no rule has it.
std::string explain_rule_option(std::string const& name) {
  constexpr std::string_view section = "optimizer.";
  std::string text;
  if (!name.starts_with(section)) {
    return text;
  }
  Runtime runtime;
  Registries registries;
  register_everything({}, registries, runtime.execution());
  for (RuleDefinition const& rule : update_rules(registries.kernels)) {
    for (auto const& [option, value] : rule.options) {
      if (option.name == name.substr(section.size())) {
        text += fmt::format("# with optimizer.name = \"{}\": {}: {}\n", rule.name, option.accepted(), option.meaning);
      }
    }
  }
  return text;
}

}  // namespace

ExitCode run_config(Arguments const& arguments) {
  ConfigCommandOptions options;
  parse_options(config_syntax(options), arguments);
  bool const of_file = !options.config.empty() || !options.overrides.empty();
  if (int{of_file} + int{options.defaults} + int{options.schema} + int{!options.explained.empty()} +
          int{!options.opustrainer.empty()} !=
      1) {
    throw UsageError("config: give one of RUN.toml, --defaults, --schema, --from-opustrainer FILE and --explain KEY");
  }
  if ((options.changed || !options.plugins.empty()) && !of_file) {
    throw UsageError("config: --changed and --plugin are for a RUN.toml");
  }
  if (options.defaults) {
    std::cout << describe_config();
  }
  if (options.schema) {
    std::cout << config_json_schema();
  }
  if (!options.opustrainer.empty()) {
    std::cout << config_of_opustrainer(options.opustrainer);
  }
  for (std::string const& name : options.explained) {
    std::string const of_rules = explain_rule_option(name);
    std::cout << (of_rules.empty() ? explain_config(name) : of_rules);
  }
  if (of_file) {
    Config const config = checked_config(options);
    if (!options.changed) {
      std::cout << to_toml(config);
    } else {
      for (ConfigDifference const& difference : differences(Config(), config)) {
        std::cout << fmt::format("{} = {}\n", difference.key, difference.after);
      }
    }
  }
  return ExitCode::done;
}

}  // namespace heddle
