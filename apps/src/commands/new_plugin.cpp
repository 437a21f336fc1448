#include "plugins/new_plugin.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/kernels/register.hpp>

#include "command_line/options.hpp"
#include "commands.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;

struct NewPluginOptions {
  std::string directory;
  std::string kind;
};

CommandSyntax new_plugin_syntax(NewPluginOptions& options, std::string const& kinds) {
  CommandSyntax syntax;
  syntax.name = "new-plugin";
  syntax.usage = "DIRECTORY --kind KIND";
  syntax.summary =
      "Writes a plug-in's project: an example that builds against the installed Heddle, passes its own check and "
      "trains.\n"
      "The directory's name is the plug-in's name.";
  syntax.options.add_options()  //
      ("directory", po::value(&options.directory)->value_name("DIRECTORY")->required(),
       "a new directory; small letters, digits and underscores")  //
      ("kind", po::value(&options.kind)->value_name("KIND")->required(), kinds.c_str());
  syntax.positional.add("directory", 1);
  return syntax;
}

}  // namespace

int run_new_plugin(Arguments const& arguments) {
  std::vector<std::string> const kinds = plugin_kinds();
  NewPluginOptions options;
  if (!parse_options(new_plugin_syntax(options, fmt::format("{}", fmt::join(kinds, ", "))), arguments)) {
    return static_cast<int>(ExitCode::done);
  }
  if (std::find(kinds.begin(), kinds.end(), options.kind) == kinds.end()) {
    throw UsageError(fmt::format("--kind is \"{}\"; expected one of: {}", options.kind, fmt::join(kinds, ", ")));
  }
  Runtime const runtime;
  Registries built_in;
  register_built_in_kernels(built_in.kernels);
  register_built_in_layers(built_in.layers);
  std::string const name = write_plugin(options.directory, options.kind, built_in);
  fmt::print(
      "{0} holds the plug-in {1}. In it:\n"
      "  cmake -S . -B build -DCMAKE_PREFIX_PATH=PREFIX && cmake --build build    # PREFIX: where Heddle is installed\n"
      "  ctest --test-dir build                                                   # heddle kernels --check\n"
      "  heddle train run.toml                                                    # README.md has the commands that "
      "make its data\n",
      options.directory, name);
  return static_cast<int>(ExitCode::done);
}

}  // namespace heddle
