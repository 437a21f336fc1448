#include "new_plugin.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/norm_kind.hpp>
#include <heddle/core/layers/feed_forward.hpp>
#include <heddle/core/operations/activation.hpp>

#include "templates.hpp"

namespace heddle {
namespace {

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

std::string replaced(std::string text, std::string const& from, std::string const& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// The example's name: that of its shared library, the first argument of heddle_add_plugin.
std::string example_name(std::string const& kind) {
  for (TemplateFile const& file : template_files()) {
    std::string const call = "heddle_add_plugin(";
    std::size_t const begin = file.text.find(call);
    if (file.kind == kind && file.name == "CMakeLists.txt" && begin != std::string_view::npos) {
      std::string_view const rest = file.text.substr(begin + call.size());
      return std::string(rest.substr(0, rest.find(' ')));
    }
  }
  throw Error(fmt::format("the example of kind {} names no plug-in", kind));
}

/// Of the names that consist of small letters, digits and underscores: C++'s keywords; names that a plug-in's code
/// uses, or that become those of classes which it uses; and names that CMake keeps.
constexpr auto reserved = std::to_array<std::string_view>({"alignas",
                                                           "alignof",
                                                           "and",
                                                           "and_eq",
                                                           "asm",
                                                           "auto",
                                                           "bitand",
                                                           "bitor",
                                                           "bool",
                                                           "break",
                                                           "case",
                                                           "catch",
                                                           "char",
                                                           "char8_t",
                                                           "char16_t",
                                                           "char32_t",
                                                           "class",
                                                           "compl",
                                                           "concept",
                                                           "const",
                                                           "consteval",
                                                           "constexpr",
                                                           "constinit",
                                                           "const_cast",
                                                           "continue",
                                                           "co_await",
                                                           "co_return",
                                                           "co_yield",
                                                           "decltype",
                                                           "default",
                                                           "delete",
                                                           "do",
                                                           "double",
                                                           "dynamic_cast",
                                                           "else",
                                                           "enum",
                                                           "explicit",
                                                           "export",
                                                           "extern",
                                                           "false",
                                                           "float",
                                                           "for",
                                                           "friend",
                                                           "goto",
                                                           "if",
                                                           "inline",
                                                           "int",
                                                           "long",
                                                           "mutable",
                                                           "namespace",
                                                           "new",
                                                           "noexcept",
                                                           "not",
                                                           "not_eq",
                                                           "nullptr",
                                                           "operator",
                                                           "or",
                                                           "or_eq",
                                                           "private",
                                                           "protected",
                                                           "public",
                                                           "register",
                                                           "reinterpret_cast",
                                                           "requires",
                                                           "return",
                                                           "short",
                                                           "signed",
                                                           "sizeof",
                                                           "static",
                                                           "static_assert",
                                                           "static_cast",
                                                           "struct",
                                                           "switch",
                                                           "template",
                                                           "this",
                                                           "thread_local",
                                                           "throw",
                                                           "true",
                                                           "try",
                                                           "typedef",
                                                           "typeid",
                                                           "typename",
                                                           "union",
                                                           "unsigned",
                                                           "using",
                                                           "virtual",
                                                           "void",
                                                           "volatile",
                                                           "wchar_t",
                                                           "while",
                                                           "xor",
                                                           "xor_eq",
                                                           "heddle",
                                                           "kernels",
                                                           "main",
                                                           "std",
                                                           "all",
                                                           "clean",
                                                           "execution",
                                                           "help",
                                                           "hidden_states",
                                                           "install",
                                                           "layer_context",
                                                           "layer_spec",
                                                           "linear",
                                                           "saved",
                                                           "tensor",
                                                           "test",
                                                           "activation_call",
                                                           "attention_call"});

/// The built-in thing that has the name; "" if there is none.
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
  if (built_in.kernels.supported<Activation>({.function = name})) {
    return "an activation function";
  }
  if (is_gated_activation(name)) {
    return "a gated activation";
  }
  return built_in_norm(name) == nullptr ? "" : "a kind of norm";
}

void require_usable(std::string const& name, fs::path const& directory, Registries const& built_in) {
  bool const valid = !name.empty() && std::islower(static_cast<unsigned char>(name.front())) != 0 &&
                     std::all_of(name.begin(), name.end(), [](char letter) {
                       auto const byte = static_cast<unsigned char>(letter);
                       return std::islower(byte) != 0 || std::isdigit(byte) != 0 || letter == '_';
                     });
  if (!valid) {
    throw UsageError(
        fmt::format("the directory's name '{}' becomes the plug-in's: expected small letters, digits and "
                    "underscores, a letter first; for example my_kernel",
                    name));
  }
  if (std::find(reserved.begin(), reserved.end(), name) != reserved.end()) {
    throw UsageError(fmt::format(
        "the directory's name '{0}' becomes the plug-in's, but has a meaning in C++ or in a plug-in's code; "
        "expected another name, for example my_{0}",
        name));
  }
  if (std::string const owner = owner_of(name, built_in); !owner.empty()) {
    throw UsageError(
        fmt::format("the directory's name '{0}' becomes the plug-in's, but Heddle has {1} of that name; expected "
                    "another name, for example my_{0}",
                    name, owner));
  }
  if (fs::exists(directory) && (!fs::is_directory(directory) || !fs::is_empty(directory))) {
    throw UsageError(fmt::format("{} exists; expected a new directory, or an empty one", directory.string()));
  }
}

void write_file(fs::path const& path, std::string const& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) {
    throw Error(fmt::format("{}: cannot be written", path.string()));
  }
}

/// Of a new project; the arguments are the plug-in's name and kind.
constexpr char const* readme = R"(# {0}

A plug-in for Heddle, which `heddle new-plugin {0} --kind {1}` wrote.

    cmake -S . -B build -DCMAKE_PREFIX_PATH=PREFIX     # PREFIX: where Heddle is installed
    cmake --build build
    ctest --test-dir build                             # heddle kernels --plugin build/{0}.so --check

`run.toml` trains a small model with it, on a small task:

    heddle demo-data --out text
    heddle prepare --source text/train.en --target text/train.de --valid-source text/valid.en \
      --valid-target text/valid.de --vocab-size 150 --out data
    heddle train run.toml

Heddle's pages `docs/kernels-and-plugins.md` and `docs/checking-kernels.md` say what each part must do.
)";

}  // namespace

std::vector<std::string> plugin_kinds() {
  std::vector<std::string> kinds;
  for (TemplateFile const& file : template_files()) {
    if (std::find(kinds.begin(), kinds.end(), file.kind) == kinds.end()) {
      kinds.emplace_back(file.kind);
    }
  }
  return kinds;
}

std::string write_plugin(fs::path const& directory, std::string const& kind, Registries const& built_in) {
  fs::path const normal = fs::absolute(directory).lexically_normal();
  std::string const name = (normal.has_filename() ? normal : normal.parent_path()).filename().string();
  require_usable(name, directory, built_in);
  std::string const example = example_name(kind);
  auto const renamed = [&](std::string_view text) {
    return replaced(replaced(std::string(text), example, name), pascal_case(example), pascal_case(name));
  };
  fs::create_directories(directory);
  for (TemplateFile const& file : template_files()) {
    if (file.kind == kind) {
      write_file(directory / renamed(file.name), renamed(file.text));
    }
  }
  write_file(directory / "README.md", fmt::format(readme, name, kind));
  return name;
}

}  // namespace heddle
