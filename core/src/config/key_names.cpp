#include "key_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>

namespace heddle {
namespace {

/// Tables within a section.
bool is_table(std::string const& section, std::string const& key) {
  bool const stack = section == "model" && std::any_of(stack_kinds.begin(), stack_kinds.end(),
                                                       [&](StackKind const& kind) { return kind.name == key; });
  return stack || (section == "optimizer" && key == "group");
}

}  // namespace

bool KeyNames::knows(Section const& section, std::string const& key) {
  return section.name == "kernels" || std::find(section.keys.begin(), section.keys.end(), key) != section.keys.end();
}

KeyNames::KeyNames() {
  Config config;
  config_keys::visit_config(*this, config);
}

KeyNames::Section const* KeyNames::find(std::string const& name) const {
  auto const found =
      std::find_if(sections_.begin(), sections_.end(), [&](Section const& section) { return section.name == name; });
  return found == sections_.end() ? nullptr : &*found;
}

std::string KeyNames::qualified(std::string const& key) const {
  std::string names;
  for (Section const& section : sections_) {
    if (std::find(section.keys.begin(), section.keys.end(), key) != section.keys.end()) {
      names += fmt::format("{}{}.{}", names.empty() ? "" : " or ", section.name, key);
    }
  }
  return names;
}

std::string KeyNames::unknown_section(std::string const& name) const {
  std::vector<std::string> names;
  for (Section const& section : sections_) {
    names.push_back(section.name);
  }
  std::string const elsewhere = qualified(name);
  if (!elsewhere.empty()) {
    return fmt::format("there is no section [{}]; did you mean the key {}?", name, elsewhere);
  }
  return fmt::format("there is no section [{}]; {}", name, nearest_or_all(name, names));
}

std::string KeyNames::unknown_key(Section const& section, std::string const& key) const {
  std::string const elsewhere = qualified(key);
  // Options of sublayers are known only when the layers are.
  std::string_view const others =
      section.name == "model" ? ", or a sublayer's options in a stack's table, such as [model.decoder.self_attention]"
                              : "";
  return fmt::format(
      "there is no key {}.{}; {}", section.name, key,
      elsewhere.empty() ? nearest_or_all(key, section.keys, others) : fmt::format("did you mean {}?", elsewhere));
}

void KeyNames::require_known(ConfigDocument const& document) const {
  for (auto const& [name, node] : document.table()) {
    std::string const section(name.str());
    std::string const where = document.at(name.source().begin);
    Section const* const known = find(section);
    if (known == nullptr) {
      throw ConfigError(fmt::format("{}: {}", where, unknown_section(section)));
    }
    if (!node.is_table()) {
      throw ConfigError(fmt::format("{}: {} is {}; expected a section: [{}]", where, section, describe(node), section));
    }
    for (auto const& [key_name, value] : *node.as_table()) {
      std::string const key(key_name.str());
      if (is_table(section, key)) {
        continue;
      }
      if (!knows(*known, key)) {
        throw ConfigError(fmt::format("{}: {}", document.origin(section, key), unknown_key(*known, key)));
      }
    }
  }
}

void KeyNames::require_known(std::string const& section, std::string const& key, std::string const& where) const {
  Section const* const known = find(section);
  if (known == nullptr) {
    throw ConfigError(fmt::format("{}: {}", where, unknown_section(section)));
  }
  if (!is_table(section, parts_of(key).front()) && !knows(*known, key)) {
    throw ConfigError(fmt::format("{}: {}", where, unknown_key(*known, key)));
  }
}

}  // namespace heddle
