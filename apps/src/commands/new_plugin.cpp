#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <cctype>
#include <filesystem>
#include <heddle/core/base/activation_functions.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/norm_kind.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/attention_score.hpp>
#include <heddle/core/operations/update.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/io/files/pending_directory.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/metrics/metric.hpp>
#include <heddle/kernels/register.hpp>

#include "command_line/options.hpp"
#include "commands/commands.hpp"
#include "embedded_files.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;
namespace fs = std::filesystem;

/// "mean_abs" → "MeanAbs".
std::string pascal_case(std::string const& name) {
  std::string result;
  bool upper = true;
  for (char const letter : name) {
    if (letter == '_') {
      upper = true;
      continue;
    }
    result += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(letter))) : letter;
    upper = false;
  }
  return result;
}

/// The name of the example's shared library, the first argument of heddle_add_plugin.
std::string example_name(std::string const& kind) {
  for (TemplateFile const& file : template_files()) {
    std::string const call = "heddle_add_plugin(";
    std::size_t const begin = file.text.find(call);
    if (file.kind == kind && file.name == "CMakeLists.txt" && begin != std::string_view::npos) {
      std::string_view const rest = file.text.substr(begin + call.size());
      return std::string(rest.substr(0, rest.find(' ')));
    }
  }
  throw Error("the example of kind {} names no plug-in", kind);
}

/// Names of small letters, digits and underscores that a plug-in cannot have, each between spaces: C++'s keywords,
/// names that a plug-in's code uses or that become its classes' names, and names that CMake keeps.
constexpr std::string_view reserved =
    " "
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class "
    "compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype "
    "default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline "
    "int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public "
    "register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch "
    "template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile "
    "wchar_t while xor xor_eq "
    "heddle kernels main std all clean execution help hidden_states install layer_context layer_spec linear saved "
    "tensor test activation_call attention_call factors samples ";

/// The kind of the built-in thing with this name: "a layer"; "" if there is none.
std::string owner_of(std::string const& name, Registries const& built_in) {
  for (AnyKernelRegistry const* const registry : built_in.kernels.all()) {
    if (registry->operation() == name) {
      return "an operation";
    }
    if (registry->find(name) != nullptr) {
      return fmt::format("an implementation of operation '{}'", registry->operation());
    }
  }
  auto const& layers = built_in.layers.entries();
  if (std::any_of(layers.begin(), layers.end(),
                  [&](LayerRegistry::Entry const& layer) { return layer.name == name; })) {
    return "a layer";
  }
  if (std::ranges::count(update_rules(built_in.kernels), name, &RuleDefinition::name) > 0) {
    return "an update rule";
  }
  if (std::ranges::count(built_in.tasks.entries(), name, &TaskRegistry::Entry::name) > 0) {
    return "a task";
  }
  if (built_in.metrics.find(name) != nullptr) {
    return "a metric";
  }
  if (built_in.schedules.find(name) != nullptr) {
    return "a schedule";
  }
  if (std::ranges::count(built_in_scores, name) > 0) {
    return "a score";
  }
  if (built_in.kernels.supported<Activation>({.function = name})) {
    return "an activation function";
  }
  if (is_gated_activation(name)) {
    return "a gated activation";
  }
  return built_in_norm(name) == nullptr ? "" : "a kind of norm";
}

void require_usable(std::string const& name, Registries const& built_in) {
  bool const valid = !name.empty() && std::islower(static_cast<unsigned char>(name.front())) != 0 &&
                     std::all_of(name.begin(), name.end(), [](char letter) {
                       auto const byte = static_cast<unsigned char>(letter);
                       return std::islower(byte) != 0 || std::isdigit(byte) != 0 || letter == '_';
                     });
  if (!valid) {
    throw UsageError(
        "the directory's name '{}' becomes the plug-in's: expected small letters, digits and "
        "underscores, a letter first; for example my_kernel",
        name);
  }
  if (reserved.find(" " + name + " ") != std::string_view::npos) {
    throw UsageError(
        "the directory's name '{0}' becomes the plug-in's, but has a meaning in C++ or in a plug-in's code; "
        "expected another name, for example my_{0}",
        name);
  }
  if (std::string const owner = owner_of(name, built_in); !owner.empty()) {
    throw UsageError(
        "the directory's name '{0}' becomes the plug-in's, but Heddle has {1} of that name; expected "
        "another name, for example my_{0}",
        name, owner);
  }
}

/// The README of a new project; the arguments are the plug-in's name and kind, and the texts of its data.
constexpr char const* readme = R"(# {0}

A plug-in for Heddle, which `heddle new-plugin {0} --kind {1}` wrote.

    cmake -S . -B build -DCMAKE_PREFIX_PATH=PREFIX     # PREFIX: where Heddle is installed
    cmake --build build
    ctest --test-dir build                             # heddle kernels --plugin build/{0}.so --check

`run.toml` trains a small model with it, on a small task:

    heddle demo-data --out text
    heddle prepare {2} --vocab-size 150 --out data
    heddle train run.toml

Heddle's pages `docs/guide/plugins.md` and `docs/guide/checking-kernels.md` say what each part must do.
)";

/// The texts that a plug-in's run is trained on, as options of `heddle prepare`.
std::string texts_for(std::string const& kind) {
  return kind == "task" ? "--text text/train.en --valid-text text/valid.en"
                        : "--source text/train.en --target text/train.de --valid-source text/valid.en \\\n"
                          "      --valid-target text/valid.de";
}

/// A new project's run.toml without the lines of the example's use.toml; the argument is the plug-in's name.
constexpr char const* run_config = R"(# A small model with the plug-in, on the data that README.md says how to make.
[run]
directory = "runs/{0}"
[data]
train = "data/train.h5"
valid = "data/valid.h5"
[plugins]
paths = ["build/{0}.so"]
[train]
steps = 60
batch_tokens = 1024
validate_bleu = false
[optimizer]
learning_rate = 0.003
warmup_steps = 20
[model]
encoder_layers = 1
decoder_layers = 1
d_model = 32
d_ff = 48
heads = 2
max_length = 128
)";

/// The configuration with the lines of a use.toml, the first of which names their section, a new one if it is not
/// there.
std::string with_lines(std::string config, std::string const& use) {
  std::size_t const lines = use.find('\n') + 1;
  std::size_t const section = config.find(use.substr(0, lines));
  return section == config.npos ? config + use : config.insert(section + lines, use.substr(lines));
}

/// The kinds of plug-ins that there are examples of: "activation|attention".
std::string plugin_kinds() {
  std::string kinds;
  for (TemplateFile const& file : template_files()) {
    if (file.name == "CMakeLists.txt") {
      kinds += fmt::format("{}{}", kinds.empty() ? "" : "|", file.kind);
    }
  }
  return kinds;
}

/// Writes the example of a kind as a project of its own, with a README and a run.toml, into `directory`, which must not
/// exist or be empty. The directory's name takes the place of the example's in file names and in code. Throws
/// UsageError where that is not a usable name and where the directory has files; Error where it cannot be written.
/// Returns the plug-in's name.
std::string write_plugin(fs::path const& directory, std::string const& kind, Registries const& built_in) {
  fs::path const normal = fs::absolute(directory).lexically_normal();
  std::string const name = (normal.has_filename() ? normal : normal.parent_path()).filename().string();
  require_usable(name, built_in);
  std::string const example = example_name(kind);
  auto const renamed = [&](std::string_view text) {
    std::string const named = boost::replace_all_copy(std::string(text), example, name);
    return boost::replace_all_copy(named, pascal_case(example), pascal_case(name));
  };
  PendingDirectory project(directory);
  for (TemplateFile const& file : template_files()) {
    if (file.kind == kind) {
      bool const use = file.name == "use.toml";
      replace_file(project.path() / (use ? "run.toml" : renamed(file.name)),
                   use ? with_lines(fmt::format(run_config, name), renamed(file.text)) : renamed(file.text));
    }
  }
  replace_file(project.path() / "README.md", fmt::format(readme, name, kind, texts_for(kind)));
  project.commit();
  return name;
}

/// The prefix in which this program is installed with the headers that plug-ins need; "" for one that is not.
std::string installed_prefix() {
  std::error_code unreadable;
  fs::path const prefix = fs::read_symlink("/proc/self/exe", unreadable).parent_path().parent_path();
  return fs::exists(prefix / "include/heddle/core/plugins/entry.hpp") ? prefix.string() : "";
}

struct NewPluginOptions {
  std::string directory;
  std::string kind;
};

CommandSyntax new_plugin_syntax(NewPluginOptions& options, std::string const& kinds) {
  CommandSyntax syntax;
  syntax.name = "new-plugin";
  syntax.usage = "DIRECTORY --kind KIND";
  syntax.summary = R"(Writes a plug-in's project: an example that builds against the installed Heddle, passes its own
check and trains. The directory's name is the plug-in's name.)";
  syntax.options.add_options()  //
      ("directory", po::value(&options.directory)->value_name("DIRECTORY")->required(),
       "a new directory; small letters, digits and underscores")  //
      ("kind", po::value(&options.kind)->value_name(kinds)->required(), "the example to start from");
  syntax.positional.add("directory", 1);
  return syntax;
}

}  // namespace

ExitCode run_new_plugin(Arguments const& arguments) {
  NewPluginOptions options;
  parse_options(new_plugin_syntax(options, plugin_kinds()), arguments);
  Runtime const runtime;
  Registries built_in;
  register_built_in_kernels(built_in.kernels);
  register_built_in_layers(built_in.layers);
  register_tasks(built_in.tasks);
  register_schedules(built_in.schedules);
  register_metrics(built_in.metrics);
  std::string const name = write_plugin(options.directory, options.kind, built_in);
  std::string const prefix = installed_prefix();
  fmt::print(
      "{0} holds the plug-in {1}. In it:\n"
      "  cmake -S . -B build -DCMAKE_PREFIX_PATH={2}{3}\n"
      "  cmake --build build\n"
      "  ctest --test-dir build    # heddle kernels --check\n"
      "  heddle train run.toml     # README.md has the commands that make its data\n",
      options.directory, name, prefix.empty() ? "PREFIX" : prefix,
      prefix.empty() ? "    # PREFIX: where Heddle is installed (cmake --install)" : "");
  return ExitCode::done;
}

}  // namespace heddle
