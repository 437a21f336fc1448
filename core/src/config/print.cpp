#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/config/explain.hpp>
#include <sstream>

#include "keys.hpp"
#include "stacks.hpp"
#include "values.hpp"

namespace heddle {
namespace config_values {

std::string toml_string(std::string_view text) {
  std::string result = "\"";
  for (char const letter : text) {
    auto const code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      result += '\\';
      result += letter;
    } else if (code < 0x20 || code == 0x7f) {
      result += fmt::format("\\u{:04x}", code);
    } else {
      result += letter;
    }
  }
  return result + '"';
}

std::string describe(OptionValue const& value) {
  struct Describer {
    std::string operator()(bool held) const { return fmt::format("the truth value {}", held); }
    std::string operator()(std::int64_t held) const { return fmt::format("the integer {}", held); }
    std::string operator()(double held) const {
      return fmt::format("the number {}", text_of(held, config_keys::Range{}));
    }
    std::string operator()(std::string const& held) const { return fmt::format("the text {}", toml_string(held)); }
    std::string operator()(std::vector<std::int64_t> const& held) const {
      return held.empty() ? "an empty list" : "a list";
    }
    std::string operator()(std::vector<std::string> const& held) const {
      return held.empty() ? "an empty list" : "a list";
    }
  };
  return std::visit(Describer{}, value);
}

std::string text_of(double value, config_keys::Range const& range) {
  static_cast<void>(range);
  std::string const text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string text_of(std::vector<std::int64_t> const& value, config_keys::Range const& range) {
  static_cast<void>(range);
  return fmt::format("[{}]", fmt::join(value, ", "));
}

}  // namespace config_values

namespace {

/// Prints each key as a line of TOML.
class Printer {
 public:
  void section(char const* name, char const*) { text_ += fmt::format("{}[{}]\n", text_.empty() ? "" : "\n", name); }

  template <class Member, class Check>
  void key(char const* name, Member const& member, Check const& check, char const*) {
    text_ += fmt::format("{} = {}\n", name, config_values::text_of(member, check));
  }

  void stacks(ModelConfig const& model) { text_ += stacks_to_toml(model); }

  void groups(OptimizerConfig const& optimizer) {
    for (ParameterGroup const& group : optimizer.groups) {
      text_ += fmt::format("\n[optimizer.group.{}]\n", config_values::toml_string(group.name));
      config_keys::visit_group_keys(*this, group);
    }
  }

  std::string const& result() const { return text_; }

 private:
  std::string text_;
};

/// Prints like Printer, with the accepted values and the key's meaning in a comment beside or above each key.
class Describer {
 public:
  void section(char const* name, char const* meaning) {
    text_ += fmt::format("{}{:<{}}# {}\n", text_.empty() ? "" : "\n", fmt::format("[{}]", name), column, meaning);
  }

  template <class Member, class Check>
  void key(char const* name, Member const& member, Check const& check, char const* meaning) {
    std::string const assignment = fmt::format("{} = {}", name, config_values::text_of(member, check));
    std::string const comment = fmt::format("# {}: {}", config_values::words_of<Member>(check), meaning);
    bool const beside = assignment.size() < column && column + comment.size() < width;
    text_ +=
        beside ? fmt::format("{:<{}}{}\n", assignment, column, comment) : fmt::format("{}\n{}\n", comment, assignment);
  }

  void stacks(ModelConfig const&) {
    text_ +=
        "# Stacks may differ, and so may layers of a stack, counted from 1:\n"
        "#   [model.decoder]\n"
        "#   layers = 6                       as decoder_layers; so is sublayers\n"
        "#   activation = \"gelu\"              d_ff, heads, biases, activation, the dropouts, norm_kind, "
        "norm_epsilon, recompute\n"
        "#   [model.decoder.layer.\"4-6\"]      one number or a range; ranges may not overlap\n"
        "#   self_attention = { head_dim = 64 }   options of a sublayer; `heddle kernels` lists them\n";
  }

  void groups(OptimizerConfig const&) {
    text_ +=
        "# Groups of parameters may be updated otherwise; no parameter may be in two:\n"
        "#   [optimizer.group.\"slow\"]         a name of your choice\n";
    Describer keys;
    ParameterGroup const example{.name = "slow", .parameters = {"encoder.*"}, .rule = {}};
    config_keys::visit_group_keys(keys, example);
    std::istringstream lines(keys.text_);
    for (std::string line; std::getline(lines, line);) {
      text_ += "#   " + line + '\n';
    }
  }

  std::string const& result() const { return text_; }

 private:
  static constexpr std::size_t column = 34;  ///< of a comment beside its key
  static constexpr std::size_t width = 120;
  std::string text_;
};

/// Describes one key or one section, and collects the names of all.
class Explainer {
 public:
  explicit Explainer(std::string wanted) : wanted_(std::move(wanted)) {}

  void section(char const* name, char const* meaning) {
    section_ = name;
    names_.push_back(section_);
    if (wanted_ == section_) {
      describer_.section(name, meaning);
    }
  }

  template <class Member, class Check>
  void key(char const* name, Member const& member, Check const& check, char const* meaning) {
    names_.push_back(fmt::format("{}.{}", section_, name));
    if (wanted_ == section_ || wanted_ == names_.back()) {
      describer_.key(name, member, check, meaning);
    }
  }

  void stacks(ModelConfig const& model) {
    if (wanted_ == section_) {
      describer_.stacks(model);
    }
  }
  void groups(OptimizerConfig const& optimizer) {
    if (wanted_ == section_) {
      describer_.groups(optimizer);
    }
  }

  std::string const& result() const { return describer_.result(); }
  std::vector<std::string> const& names() const { return names_; }

 private:
  std::string wanted_;
  std::string section_;
  std::vector<std::string> names_;
  Describer describer_;
};

/// Every key with its value.
class Keys {
 public:
  struct Key {
    std::string name;
    OptionValue value;
  };

  void section(char const* name, char const*) { section_ = name; }

  template <class Member, class Check>
  void key(char const* name, Member const& member, Check const& check, char const*) {
    bool or_auto = false;
    if constexpr (std::is_same_v<Check, config_keys::Range>) {
      or_auto = check.or_auto;
    }
    keys_.push_back({fmt::format("{}.{}", section_, name), config_values::value_of(member, or_auto)});
  }

  void stacks(ModelConfig const& model) {
    for (StackKind const& kind : stack_kinds) {
      add(fmt::format("model.{}", kind.name), model.*kind.config);
    }
  }

  void groups(OptimizerConfig const& optimizer) {
    std::string const section = section_;
    for (ParameterGroup const& group : optimizer.groups) {
      section_ = fmt::format("{}.group.{}", section, group.name);
      config_keys::visit_group_keys(*this, group);
    }
    section_ = section;
  }

  std::vector<Key> const& result() const { return keys_; }

 private:
  void add(std::string const& name, StackConfig const& stack) {
    add(name, stack.settings);
    for (LayerOverride const& entry : stack.overrides) {
      add(fmt::format("{}.layer.{}", name, range_name(entry.layers)), entry.settings);
    }
  }
  void add(std::string const& name, Settings const& settings) {
    for (auto const& [key, setting] : settings) {
      keys_.push_back({fmt::format("{}.{}", name, key), setting.value});
    }
  }

  std::string section_;
  std::vector<Key> keys_;
};

template <class Visitor>
auto visited(Config const& config) {
  Visitor visitor;
  config_keys::visit_config(visitor, config);
  return visitor.result();
}

/// The name that `names_of` has for a value.
template <class Enum>
std::string_view listed_name(Enum value) {
  return config_keys::names_of<Enum>.at(static_cast<std::size_t>(value));
}

}  // namespace

std::string_view name_of(NormPlacement value) {
  return listed_name(value);
}
std::string_view name_of(Recompute value) {
  return listed_name(value);
}
std::string_view name_of(Positions value) {
  return listed_name(value);
}
std::string_view name_of(Precision value) {
  return listed_name(value);
}
std::string_view name_of(OptimizerName value) {
  return listed_name(value);
}
std::string_view name_of(Schedule value) {
  return listed_name(value);
}
std::string_view name_of(ContextMode value) {
  return listed_name(value);
}
std::string_view name_of(PipelineSchedule value) {
  return listed_name(value);
}

std::string to_toml(Config const& config) {
  return visited<Printer>(config);
}

std::string describe_config() {
  return visited<Describer>(Config{});
}

namespace {

Explainer explained(std::string const& name) {
  Explainer explainer(name);
  Config const defaults;
  config_keys::visit_config(explainer, defaults);
  return explainer;
}

/// Explains a key of a stack or layer ("model.decoder.layer.4-6.d_ff", also the options of a sublayer) or of a group of
/// parameters; empty if it is neither.
std::string explain_part(std::string const& name) {
  Describer block;
  auto const is_in = [&](std::string const& place) { return name == place || name.starts_with(place + "."); };
  if (is_in("optimizer.group")) {
    block.groups({});
    return block.result();
  }
  for (StackKind const& kind : stack_kinds) {
    std::string const place = fmt::format("model.{}", kind.name);
    if (!is_in(place)) {
      continue;
    }
    std::string const rest = name.substr(std::min(name.size(), place.size() + 1));
    std::string const key = explained("model." + rest.substr(rest.rfind('.') + 1)).result();
    bool const own = rest.empty() || rest == "layers" || rest == "sublayers" || rest.find('.') != std::string::npos;
    block.stacks({});
    return own || !key.empty() ? key + block.result() : "";
  }
  return "";
}

}  // namespace

std::string explain_config(std::string const& name) {
  Explainer const explainer = explained(name);
  if (!explainer.result().empty()) {
    return explainer.result();
  }
  if (std::string part = explain_part(name); !part.empty()) {
    return part;
  }
  std::vector<std::string> near;
  for (std::string const& known : explainer.names()) {
    if (known.ends_with("." + name)) {
      near.push_back(known);
    }
  }
  std::string const meant = nearest_spelling(name, explainer.names());
  if (near.empty() && !meant.empty()) {
    near.push_back(meant);
  }
  throw UsageError(fmt::format("there is no key or section {}; {}", name,
                               near.empty() ? std::string("`heddle config --defaults` shows all")
                                            : fmt::format("did you mean {}?", fmt::join(near, " or "))));
}

std::vector<ConfigDifference> differences(Config const& before, Config const& after) {
  std::vector<Keys::Key> const old_keys = visited<Keys>(before);
  std::vector<Keys::Key> const new_keys = visited<Keys>(after);
  std::vector<ConfigDifference> found;
  auto const value_in = [](std::vector<Keys::Key> const& keys, std::string const& name) {
    auto const key = std::find_if(keys.begin(), keys.end(), [&](Keys::Key const& each) { return each.name == name; });
    return key == keys.end() ? nullptr : &key->value;
  };
  for (Keys::Key const& key : new_keys) {
    OptionValue const* const old_value = value_in(old_keys, key.name);
    if (old_value == nullptr || *old_value != key.value) {
      found.push_back({key.name, old_value == nullptr ? "(not set)" : to_toml(*old_value), to_toml(key.value)});
    }
  }
  for (Keys::Key const& key : old_keys) {
    if (value_in(new_keys, key.name) == nullptr) {
      found.push_back({key.name, to_toml(key.value), "(not set)"});
    }
  }
  return found;
}

}  // namespace heddle
