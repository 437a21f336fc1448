#include "new_plugin.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <heddle/core/base/error.hpp>

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

void require_usable(std::string const& name, fs::path const& directory) {
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
  if (fs::exists(directory) && (!fs::is_directory(directory) || !fs::is_empty(directory))) {
    throw UsageError(fmt::format("{} exists; expected a new directory, or an empty one", directory.string()));
  }
}

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

std::string write_plugin(fs::path const& directory, std::string const& kind) {
  fs::path const normal = fs::absolute(directory).lexically_normal();
  std::string const name = (normal.has_filename() ? normal : normal.parent_path()).filename().string();
  require_usable(name, directory);
  std::string const example = example_name(kind);
  auto const renamed = [&](std::string_view text) {
    return replaced(replaced(std::string(text), example, name), pascal_case(example), pascal_case(name));
  };
  fs::create_directories(directory);
  for (TemplateFile const& file : template_files()) {
    if (file.kind == kind) {
      fs::path const path = directory / renamed(file.name);
      std::ofstream out(path, std::ios::binary);
      out << renamed(file.text);
      if (!out.flush()) {
        throw Error(fmt::format("{}: cannot be written", path.string()));
      }
    }
  }
  return name;
}

}  // namespace heddle
