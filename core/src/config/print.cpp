#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <iterator>

#include "schema.hpp"

namespace heddle {
namespace {

constexpr std::size_t column = 34;  ///< where the comment of a key starts
constexpr std::size_t width = 120;

struct KeyValue {
  std::string name;
  OptionValue value;
  ResumeRule resume;
};

/// Every key that has a value.
std::vector<KeyValue> values_of(Config config) {
  std::vector<KeyValue> values;
  for (ConfigTable const& table : config_tree(config).tables) {
    for (ConfigKey const& key : table.keys) {
      if (auto const value = key.get()) {
        values.push_back({fmt::format("{}.{}", table.path, key.description.name), *value, key.resume});
      }
    }
  }
  return values;
}

/// The key from which one of a stack's or of some layers' table has its value where it is not set there: "model.d_ff"
/// of "model.decoder.d_ff", and that of "model.decoder.layer.4-6.d_ff"; "" for other keys.
std::string inherited_from(std::string const& name) {
  constexpr std::string_view of_layers = ".layer.";
  if (std::size_t const at = name.find(of_layers); at != std::string::npos) {
    std::size_t const key = name.find('.', at + of_layers.size());
    return key == std::string::npos ? "" : name.substr(0, at) + name.substr(key);
  }
  for (StackKind const& kind : stack_kinds) {
    std::string const table = fmt::format("model.{}.", kind.name);
    if (name.starts_with(table)) {
      return "model." + name.substr(table.size());
    }
  }
  return "";
}

/// The value that a key has among these, its own or an inherited one.
std::string effective_value(std::vector<KeyValue> const& values, std::string name) {
  for (; !name.empty(); name = inherited_from(name)) {
    if (auto const found = std::ranges::find(values, name, &KeyValue::name); found != values.end()) {
      return to_toml(found->value);
    }
  }
  return "(not set)";
}

std::string_view on_resuming(ResumeRule rule) {
  return rule == ResumeRule::identity     ? "keeps it"
         : rule == ResumeRule::trajectory ? "may change it, and is then another run"
                                          : "may change it";
}

/// The lines about a key or a section, also about those in a stack's or a group's table; "" if there is none.
std::string explained(ConfigTree const& tree, std::string const& name) {
  auto const section = std::find_if(tree.tables.rbegin(), tree.tables.rend(), [&](ConfigTable const& table) {
    return !table.holds_settings && (name + ".").starts_with(table.path + ".");  // an inner table follows its section
  });
  if (section == tree.tables.rend() || section->path == name) {
    return section == tree.tables.rend() ? "" : describe(*section);
  }
  std::string const rest = name.substr(section->path.size() + 1);
  std::string const inner = section->path + "." + rest.substr(0, rest.find('.'));
  std::string text;
  for (ConfigKey const& key : section->keys) {
    if (key.description.name == rest.substr(rest.rfind('.') + 1)) {
      text += describe(key) + fmt::format("# a run that resumes {}\n", on_resuming(key.resume));
    }
  }
  bool const named = std::ranges::find(tree.named, inner, &NamedTables::path) != tree.named.end();
  auto const table = std::ranges::find(tree.tables, inner, &ConfigTable::path);
  if (!named && table == tree.tables.end()) {
    return inner == name ? text : "";
  }
  if (text.empty() && table != tree.tables.end()) {  // a key that only a stack has
    for (ConfigKey const& key : table->keys) {
      if (name == fmt::format("{}.{}", inner, key.description.name) && !key.get()) {
        text = fmt::format("# {}: {}\n# a run that resumes {}\n", key.description.accepted(), key.description.meaning,
                           on_resuming(key.resume));
      }
    }
  }
  // An option of a sublayer has a longer name than a key of a stack.
  bool const known = inner == name || named || tree.aliases.contains(name) || std::ranges::count(rest, '.') > 1;
  return known || !text.empty() ? text + section->inner_tables : "";
}

}  // namespace

std::vector<std::string> names_of_keys(std::vector<ConfigKey> const& keys) {
  std::vector<std::string> names;
  std::ranges::transform(keys, std::back_inserter(names), [](ConfigKey const& key) { return key.description.name; });
  return names;
}

std::string describe(ConfigKey const& key) {
  OptionDescription const& description = key.description;
  std::string const assignment = fmt::format("{} = {}", description.name, to_toml(key.get().value()));
  std::string const comment = fmt::format("# {}: {}", description.accepted(), description.meaning);
  bool const beside = assignment.size() < column && column + comment.size() < width;
  return beside ? fmt::format("{:<{}}{}\n", assignment, column, comment) : fmt::format("{}\n{}\n", comment, assignment);
}

std::string describe(ConfigTable const& table) {
  std::string text = fmt::format("{:<{}}# {}\n", table.header, column, table.meaning);
  for (ConfigKey const& key : table.keys) {
    text += describe(key);
  }
  return text + table.inner_tables;
}

std::string to_toml(Config const& config) {
  Config copy = config;
  std::string text;
  auto const quoted = [](std::string const& name) {
    return name.find_first_of("/+") == std::string::npos ? name : to_toml(OptionValue(name));
  };
  for (ConfigTable const& table : config_tree(copy).tables) {
    std::string lines;
    for (ConfigKey const& key : table.keys) {
      if (auto const value = key.get()) {
        lines += fmt::format("{} = {}\n", quoted(key.description.name), to_toml(*value));
      }
    }
    if (!lines.empty() || table.path.find('.') == std::string::npos) {
      text += fmt::format("{}{}\n{}", text.empty() ? "" : "\n", table.header, lines);
    }
  }
  return text;
}

std::string describe_config() {
  Config defaults;
  std::string text;
  for (ConfigTable const& table : config_tree(defaults).tables) {
    if (!table.holds_settings) {
      text += (text.empty() ? "" : "\n") + describe(table);
    }
  }
  return text;
}

std::string explain_config(std::string const& name) {
  Config defaults;
  ConfigTree const tree = config_tree(defaults);
  if (std::string text = explained(tree, name); !text.empty()) {
    return text;
  }
  std::vector<std::string> names;
  std::vector<std::string> near;
  for (ConfigTable const& table : tree.tables) {
    names.push_back(table.path);
    for (ConfigKey const& key : table.keys) {
      names.push_back(fmt::format("{}.{}", table.path, key.description.name));
      if (key.description.name == name && !table.holds_settings) {
        near.push_back(names.back());
      }
    }
  }
  std::string const meant = nearest_spelling(name, names);
  if (near.empty() && !meant.empty()) {
    near.push_back(meant);
  }
  throw UsageError(
      "there is no key or section {}; {}{}", name,
      near.empty() ? std::string("`heddle config --defaults` shows all")
                   : fmt::format("did you mean {}?", fmt::join(near, " or ")),
      name.starts_with("optimizer.") ? " `heddle kernels` lists update rules and schedules with their options" : "");
}

std::map<std::string, std::string> key_values(Config const& config) {
  std::map<std::string, std::string> texts;
  for (auto const& [name, value, resume] : values_of(config)) {
    texts[name] = to_toml(value);
  }
  return texts;
}

bool is_for_training_only(std::string_view key) {
  constexpr std::array options{".guided_alignment_weight", ".load_balance_loss", ".router_z_loss", ".capacity_factor",
                               ".balance_bias_rate"};
  return key.ends_with("dropout") ||
         std::ranges::any_of(options, [&](char const* option) { return key.ends_with(option); });
}

std::vector<ConfigDifference> differences(Config const& before, Config const& after) {
  std::vector<KeyValue> const old_values = values_of(before);
  std::vector<KeyValue> const new_values = values_of(after);
  std::vector<ConfigDifference> found;
  for (auto const& [name, value, resume] : new_values) {
    std::string const old_value = effective_value(old_values, name);
    if (old_value != to_toml(value)) {
      found.push_back({name, old_value, to_toml(value), resume});
    }
  }
  for (auto const& [name, value, resume] : old_values) {
    std::string const new_value = effective_value(new_values, name);
    bool const listed = std::ranges::find(new_values, name, &KeyValue::name) != new_values.end();
    if (!listed && new_value != to_toml(value)) {
      found.push_back({name, to_toml(value), new_value, resume});
    }
  }
  return found;
}

}  // namespace heddle
