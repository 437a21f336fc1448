#include "groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>

#include "key_names.hpp"
#include "read_value.hpp"

namespace heddle {
namespace {

/// Fills a group from its table: a visitor of visit_group_keys.
class GroupReader {
 public:
  /// `path` is the table's, "group.slow".
  GroupReader(ConfigDocument const& document, std::string path, toml::table const& table)
      : document_(document), path_(std::move(path)), table_(table) {}

  template <class Member, class Check>
  void key(char const* name, Member& member, Check const& check, char const*) {
    names_.emplace_back(name);
    toml::node const* const node = table_.get(name);
    if (node == nullptr) {
      return;
    }
    std::optional<OptionValue> const value = value_of(*node);
    if (!value || !config_values::read(*value, member, check)) {
      throw ConfigError(fmt::format("{}.{} is {}; expected {}", place(name), name, describe(*node),
                                    config_values::words_of<Member>(check)));
    }
  }

  /// To be called when all keys have been read.
  void require_known() const {
    for (auto const& [key, node] : table_) {
      std::string const name(key.str());
      if (std::find(names_.begin(), names_.end(), name) == names_.end()) {
        throw ConfigError(fmt::format("{}: there is no key optimizer.{}.{}; {}", origin(name), path_, name,
                                      nearest_or_all(name, names_)));
      }
    }
  }

  std::string origin(std::string const& name) const { return document_.origin("optimizer", path_ + "." + name); }

 private:
  std::string place(std::string const& name) const { return fmt::format("{}: optimizer.{}", origin(name), path_); }

  ConfigDocument const& document_;
  std::string path_;
  toml::table const& table_;
  std::vector<std::string> names_;
};

[[noreturn]] void refuse(ConfigDocument const& document, std::string const& path, std::string const& problem) {
  throw ConfigError(fmt::format("{}: optimizer.{} {}", document.origin("optimizer", path), path, problem));
}

ParameterGroup read_group(ConfigDocument const& document, std::string const& name, toml::node const& node,
                          OptimizerConfig const& optimizer) {
  if (name.empty() || name.find('.') != std::string::npos) {
    refuse(document, "group",
           fmt::format("has a group named {}; a name has letters and no dot", config_values::toml_string(name)));
  }
  std::string const path = "group." + name;
  if (!node.is_table()) {
    refuse(document, path, fmt::format("is {}; expected a section: [optimizer.{}]", describe(node), path));
  }
  ParameterGroup group{.name = name, .parameters = {}, .rule = {.weight_decay = optimizer.weight_decay}};
  GroupReader reader(document, path, *node.as_table());
  config_keys::visit_group_keys(reader, group);
  reader.require_known();
  if (group.parameters.empty()) {
    refuse(document, path, "names no parameters; for example parameters = [\"encoder.*\"]");
  }
  group.origin = reader.origin("parameters");
  return group;
}

}  // namespace

void read_groups(ConfigDocument const& document, OptimizerConfig& optimizer) {
  toml::node const* const groups = document.find("optimizer", "group");
  if (groups == nullptr) {
    return;
  }
  if (!groups->is_table()) {
    refuse(document, "group", fmt::format("is {}; expected sections: [optimizer.group.\"NAME\"]", describe(*groups)));
  }
  for (auto const& [name, node] : *groups->as_table()) {
    optimizer.groups.push_back(read_group(document, std::string(name.str()), node, optimizer));
  }
}

}  // namespace heddle
