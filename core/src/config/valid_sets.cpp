#include "schema.hpp"

namespace heddle {

void add_valid_sets(ConfigTree& tree, std::map<std::string, std::string>& sets) {
  ConfigTable& table = tree.tables.emplace_back();
  table.path = "data.valid_sets";
  table.header = "[data.valid_sets]";
  table.meaning = "more validation datasets, by any names: NAME = \"data/NAME/valid.h5\"";
  auto const key = [&sets](std::string const& name) {
    auto const get = [&sets, name] {
      auto const found = sets.find(name);
      return found == sets.end() ? std::nullopt : std::optional<OptionValue>(found->second);
    };
    OptionDescription description{.name = name, .type = OptionDescription::Type::string};
    description.meaning = "a validation dataset";
    auto const set = [&sets, name](Setting const& setting) { sets[name] = std::get<std::string>(setting.value); };
    return ConfigKey{std::move(description), get, set, ResumeRule::free};
  };
  for (auto const& [name, path] : sets) {
    table.keys.push_back(key(name));
  }
  // The name is a key without quotes here, and a part of keys in metrics.jsonl: "valid_loss/NAME".
  table.others = "any name of letters, digits, \"_\" and \"-\"";
  table.other = [key](std::string const& name) {
    constexpr char const* letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    return name.find_first_not_of(letters) == std::string::npos ? std::optional(key(name)) : std::nullopt;
  };
}

}  // namespace heddle
