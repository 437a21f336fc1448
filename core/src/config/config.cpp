#include <algorithm>
#include <filesystem>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <sstream>
#include <system_error>

#include "reader.hpp"

namespace heddle {
namespace {

/// A value in few words for a message: what it is and, where short, how it was written.
std::string describe(toml::node const& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return node.as_array()->empty() ? "an empty list" : "a list";
    case toml::node_type::string:
      return fmt::format("the text {}", config_values::toml_string(**node.as_string()));
    case toml::node_type::integer:
      return fmt::format("the integer {}", **node.as_integer());
    case toml::node_type::floating_point:
      return fmt::format("the number {}", **node.as_floating_point());
    case toml::node_type::boolean:
      return fmt::format("the truth value {}", **node.as_boolean());
    default:
      return "a date or time";
  }
}

/// Which sections and keys there are, in order.
class KeyNames {
 public:
  KeyNames() {
    Config config;
    config_keys::visit_config(*this, config);
  }

  void section(char const* name, char const*) { sections_.push_back({name, {}}); }
  template <class Member, class Check>
  void key(char const* name, Member const&, Check const&, char const*) {
    sections_.back().keys.emplace_back(name);
  }

  /// Throws for the first section or key of the document that does not exist.
  void require_known(ConfigDocument const& document) const {
    for (auto const& [name, node] : document.table()) {
      std::string const section(name.str());
      std::string const where = document.at(name.source().begin);
      Section const* const known = find(section);
      if (known == nullptr) {
        throw ConfigError(fmt::format("{}: {}", where, unknown_section(section)));
      }
      if (!node.is_table()) {
        throw ConfigError(
            fmt::format("{}: {} is {}; expected a section: [{}]", where, section, describe(node), section));
      }
      for (auto const& [key_name, value] : *node.as_table()) {
        std::string const key(key_name.str());
        if (!knows(*known, key)) {
          throw ConfigError(fmt::format("{}: {}", document.origin(section, key), unknown_key(*known, key)));
        }
      }
    }
  }

  /// Throws for a section and key that do not exist; `where` begins the message.
  void require_known(std::string const& section, std::string const& key, std::string const& where) const {
    Section const* const known = find(section);
    if (known == nullptr) {
      throw ConfigError(fmt::format("{}: {}", where, unknown_section(section)));
    }
    if (!knows(*known, key)) {
      throw ConfigError(fmt::format("{}: {}", where, unknown_key(*known, key)));
    }
  }

 private:
  struct Section {
    std::string name;
    std::vector<std::string> keys;
  };

  /// Plug-ins that are loaded later may add operations to [kernels].
  static bool knows(Section const& section, std::string const& key) {
    return section.name == "kernels" || std::find(section.keys.begin(), section.keys.end(), key) != section.keys.end();
  }

  Section const* find(std::string const& name) const {
    auto const found =
        std::find_if(sections_.begin(), sections_.end(), [&](Section const& section) { return section.name == name; });
    return found == sections_.end() ? nullptr : &*found;
  }

  /// "train.steps, …": the keys of that name in all sections; "" where there is none.
  std::string qualified(std::string const& key) const {
    std::string names;
    for (Section const& section : sections_) {
      if (std::find(section.keys.begin(), section.keys.end(), key) != section.keys.end()) {
        names += fmt::format("{}{}.{}", names.empty() ? "" : " or ", section.name, key);
      }
    }
    return names;
  }

  std::string unknown_section(std::string const& name) const {
    std::vector<std::string> names;
    for (Section const& section : sections_) {
      names.push_back(section.name);
    }
    std::string const elsewhere = qualified(name);
    if (!elsewhere.empty()) {
      return fmt::format("there is no section [{}]; did you mean the key {}?", name, elsewhere);
    }
    return fmt::format("there is no section [{}]; {}", name, meant(name, names));
  }

  std::string unknown_key(Section const& section, std::string const& key) const {
    std::string const elsewhere = qualified(key);
    return fmt::format("there is no key {}.{}; {}", section.name, key,
                       elsewhere.empty() ? meant(key, section.keys) : fmt::format("did you mean {}?", elsewhere));
  }

  static std::string meant(std::string const& name, std::vector<std::string> const& names) {
    std::string const nearest = nearest_spelling(name, names);
    return nearest.empty() ? fmt::format("expected one of: {}", fmt::join(names, ", "))
                           : fmt::format("did you mean {}?", nearest);
  }

  std::vector<Section> sections_;
};

/// A value as the command line has it: TOML, or a text without its quotes.
toml::table parse_override_value(std::string const& value, std::string const& where) {
  try {
    return toml::parse("value = " + value);
  } catch (toml::parse_error const&) {
    // Not TOML, so a bare text; a mistyped list or string is better told than taken for one.
    if (value.empty() || value.find_first_of("[\"'{") == 0 || value.find('\n') != std::string::npos) {
      throw ConfigError(where + ": the value is no TOML value; for example 3, 0.1, true, \"text\", [\"a\", \"b\"]");
    }
  }
  try {
    return toml::parse("value = " + config_values::toml_string(value));
  } catch (toml::parse_error const& error) {
    throw ConfigError(fmt::format("{}: {}", where, error.description()));
  }
}

std::string divisors(std::int64_t number, std::int64_t most) {
  std::string text;
  for (std::int64_t divisor = 1; divisor <= std::min(number, most); ++divisor) {
    if (number % divisor == 0) {
      text += fmt::format("{}{}", text.empty() ? "" : ", ", divisor);
    }
  }
  return text;
}

/// What no key alone can tell.
void check_together(Config const& config, ConfigDocument const& document) {
  // Of two keys that do not go together, the one to be pointed at: an override rather than the file's, given rather
  // than not.
  using Key = std::array<char const*, 2>;
  auto const blamed = [&](Key const& first, Key const& second) {
    std::string const origin = document.origin(first[0], first[1]);
    bool const take_first = origin.starts_with("--set") || document.find(second[0], second[1]) == nullptr;
    return take_first ? origin : document.origin(second[0], second[1]);
  };
  ModelConfig const& model = config.model;
  if (model.d_model % model.heads != 0) {
    throw ConfigError(fmt::format("{}: model.heads = {} does not divide model.d_model = {}; heads may be {}",
                                  blamed({"model", "d_model"}, {"model", "heads"}), model.heads, model.d_model,
                                  divisors(model.d_model, 4096)));
  }
  TrainConfig const& train = config.train;
  if (train.micro_batch_tokens > train.batch_tokens) {
    throw ConfigError(fmt::format(
        "{}: train.micro_batch_tokens = {} is more than train.batch_tokens = {}, of which it is a part; set "
        "it to {} or less",
        blamed({"train", "batch_tokens"}, {"train", "micro_batch_tokens"}), train.micro_batch_tokens,
        train.batch_tokens, train.batch_tokens));
  }
  if (model.max_length > train.micro_batch_tokens) {
    throw ConfigError(fmt::format(
        "{}: a sentence of model.max_length = {} tokens does not fit into train.micro_batch_tokens = {}; raise this "
        "or set max_length to {} or less",
        blamed({"train", "micro_batch_tokens"}, {"model", "max_length"}), model.max_length, train.micro_batch_tokens,
        train.micro_batch_tokens));
  }
}

/// A sublayer's parameters are named after it, so each occurs once in a layer.
void check_sublayers(char const* key, std::vector<std::string> const& sublayers, ConfigDocument const& document) {
  for (auto sublayer = sublayers.begin(); sublayer != sublayers.end(); ++sublayer) {
    if (std::find(sublayers.begin(), sublayer, *sublayer) != sublayer) {
      throw ConfigError(fmt::format("{}: model.{} names {} twice; each sublayer may occur once in a layer",
                                    document.origin("model", key), key, config_values::toml_string(*sublayer)));
    }
  }
}

/// An entry for every operation that [kernels] names, and where it does.
void add_operations(KernelChoices& kernels, ConfigDocument const& document) {
  toml::table const* const keys = document.table()["kernels"].as_table();
  if (keys == nullptr) {
    return;
  }
  for (auto const& [name, value] : *keys) {
    std::string const operation(name.str());
    if (operation != "cache") {
      kernels.choose(operation, "auto", document.origin("kernels", operation));
    }
  }
}

}  // namespace

ConfigDocument::ConfigDocument(std::string_view text, std::string_view source_name) : source_name_(source_name) {
  try {
    table_ = toml::parse(text);
  } catch (toml::parse_error const& error) {
    throw ConfigError(fmt::format("{}: no valid TOML: {}", at(error.source().begin), error.description()));
  }
}

void ConfigDocument::apply(std::string const& override_text) {
  std::string const where = "--set " + override_text;
  std::size_t const equals = override_text.find('=');
  std::size_t const dot = override_text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
    throw ConfigError(where + ": expected section.key=value, for example train.steps=1000");
  }
  auto const trimmed = [](std::string text) {
    text.erase(0, std::min(text.find_first_not_of(" \t"), text.size()));
    text.erase(text.find_last_not_of(" \t") + 1);
    return text;
  };
  std::string const section = trimmed(override_text.substr(0, dot));
  std::string const key = trimmed(override_text.substr(dot + 1, equals - dot - 1));
  KeyNames().require_known(section, key, where);
  toml::table value = parse_override_value(trimmed(override_text.substr(equals + 1)), where);
  toml::node const* const given = value.get("value");
  if (given == nullptr || value.size() != 1) {
    throw ConfigError(where + ": expected one value");
  }
  table_.emplace<toml::table>(section).first->second.as_table()->insert_or_assign(key, *given);
  overridden_[section + "." + key] = where;
}

toml::node const* ConfigDocument::find(std::string const& section, std::string const& key) const {
  toml::table const* const keys = table_[section].as_table();
  return keys == nullptr ? nullptr : keys->get(key);
}

std::string ConfigDocument::origin(std::string const& section, std::string const& key) const {
  auto const found = overridden_.find(section + "." + key);
  if (found != overridden_.end()) {
    return found->second;
  }
  toml::table const* const keys = table_[section].as_table();
  if (keys != nullptr) {
    auto const entry = keys->find(key);
    if (entry != keys->end()) {
      return at(entry->first.source().begin);
    }
  }
  return source_name_;
}

std::string ConfigDocument::at(toml::source_position const& position) const {
  return position ? fmt::format("{}:{}:{}", source_name_, position.line, position.column) : source_name_;
}

void ConfigReader::fail(char const* name, toml::node const& node, std::string const& right) const {
  throw ConfigError(fmt::format("{}: {}.{} is {}; expected {}", document_.origin(section_, name), section_, name,
                                describe(node), right));
}

Config parse_config(std::string_view text, std::string_view source_name, std::vector<std::string> const& overrides) {
  ConfigDocument document(text, source_name);
  KeyNames().require_known(document);
  for (std::string const& override_text : overrides) {
    document.apply(override_text);
  }
  Config config;
  add_operations(config.kernels, document);
  ConfigReader reader(document);
  config_keys::visit_config(reader, config);
  if (document.find("train", "micro_batch_tokens") == nullptr) {
    config.train.micro_batch_tokens = std::min(config.train.micro_batch_tokens, config.train.batch_tokens);
  }
  check_together(config, document);
  check_sublayers("encoder_sublayers", config.model.encoder_sublayers, document);
  check_sublayers("decoder_sublayers", config.model.decoder_sublayers, document);
  return config;
}

Config load_config(std::string const& path, std::vector<std::string> const& overrides) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) {
    std::string const reason = file ? "it is a directory" : std::generic_category().message(errno);
    throw ConfigError(fmt::format("{}: cannot be read: {}; expected a TOML file, see docs/config.md", path, reason));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return parse_config(text.str(), path, overrides);
}

}  // namespace heddle
