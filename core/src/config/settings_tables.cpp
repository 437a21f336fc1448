#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>

#include "schema.hpp"

namespace heddle {

namespace {

ConfigKey key_of_files(std::string name, std::vector<std::string>& files, std::string meaning) {
  OptionDescription description{.name = std::move(name),
                                .type = OptionDescription::Type::strings,
                                .meaning = std::move(meaning),
                                .one_or_several = true};
  auto const get = [&files] {
    return std::optional(files.size() < 2 ? OptionValue(files.empty() ? "" : files.front()) : OptionValue(files));
  };
  auto const set = [&files](Setting const& setting) { files = std::get<std::vector<std::string>>(setting.value); };
  return {std::move(description), get, set, ResumeRule::free};
}

/// A rate, or an option of a modifier, which is checked when the data are opened: any value.
ConfigKey key_of_modifier(Settings& settings, std::string const& name) {
  return key_of_settings(
      settings,
      {.name = name, .type = OptionDescription::Type::any, .meaning = "a rate, 0 to 1, or a table of options"},
      ResumeRule::trajectory);
}

void add_modifier_table(ConfigTree& tree, std::string path, std::string header, Settings& settings) {
  ConfigTable table{.path = std::move(path), .header = std::move(header), .meaning = "changes to samples, with rates"};
  for (auto const& [name, setting] : settings) {
    table.keys.push_back(key_of_modifier(settings, name));
  }
  table.holds_settings = true;
  table.others = "NAME = RATE or NAME = { rate = RATE, OPTION = VALUE }";
  table.other = [&settings](std::string const& name) { return std::optional(key_of_modifier(settings, name)); };
  tree.tables.push_back(std::move(table));
}

/// Adds to `into` the modifiers among `of_all` that it does not have.
void add_missing(Settings& into, Settings const& of_all) {
  Settings const own = into;
  for (auto const& [name, setting] : of_all) {
    std::string const modifier = name.substr(0, name.find('.'));
    bool const known = std::ranges::any_of(
        own, [&](auto const& each) { return each.first.substr(0, each.first.find('.')) == modifier; });
    if (!known) {
      into.insert({name, setting});
    }
  }
}

}  // namespace

ConfigKey key_of_settings(Settings& settings, OptionDescription description, ResumeRule resume) {
  std::string const name = description.name;
  auto const get = [&settings, name] {
    auto const found = settings.find(name);
    return found == settings.end() ? std::nullopt : std::optional(found->second.value);
  };
  return {std::move(description), get, [&settings, name](Setting const& setting) { settings[name] = setting; }, resume};
}

void add_text_keys(std::vector<ConfigKey>& keys, ParallelFiles& text) {
  keys.push_back(key_of_files("source", text.source, "instead of train: sentences"));
  keys.push_back(key_of_files("target", text.target, "its translations, line by line"));
  keys.push_back(key_of_files("alignments", text.alignments, "links of words, \"0-0 1-2\"; \"\": none"));
}

void add_modifiers(ConfigTree& tree, DataConfig& data) {
  std::ranges::find(tree.tables, "data", &ConfigTable::path)->inner_tables +=
      "# Changes to the samples of all corpora, or of one ([data.corpus.\"news\".modifiers]), with their rates; see\n"
      "# docs/guide/data.md:\n"
      "#   [data.modifiers]\n"
      "#   upper_case = 0.05\n"
      "#   typos = { rate = 0.1, char_swap = 0.2 }\n";
  add_modifier_table(tree, "data.modifiers", "[data.modifiers]", data.modifiers);
  for (CorpusConfig& corpus : data.corpora) {
    add_modifier_table(tree, fmt::format("data.corpus.{}.modifiers", corpus.name),
                       fmt::format("[data.corpus.{}.modifiers]", to_toml(OptionValue(corpus.name))), corpus.modifiers);
  }
}

void check_text(std::vector<std::string> const& train, ParallelFiles const& text, KeyLocations const& places) {
  if (text.empty()) {
    return;
  }
  if (text.source.size() != text.target.size() || text.source.empty()) {
    char const* const key = text.source.empty() ? "target" : "source";
    throw ConfigError("{}: source has {} files and target {}; expected as many of each, one sentence a line",
                      places.of(text.source.empty() && text.target.empty() ? "alignments" : key), text.source.size(),
                      text.target.size());
  }
  if (!text.alignments.empty() && text.alignments.size() != text.source.size()) {
    throw ConfigError("{}: {} files of alignments for {} of text; expected one for each", places.of("alignments"),
                      text.alignments.size(), text.source.size());
  }
  if (!train.empty()) {
    throw ConfigError("{} beside {}; training takes one of the two", places.of("source"), places.of("train"));
  }
}

std::vector<CorpusConfig> DataConfig::training() const {
  std::vector<CorpusConfig> all = corpora;
  if (all.empty()) {
    all.push_back({.name = "", .train = train, .text = text, .places = places});
  }
  for (CorpusConfig& corpus : all) {
    add_missing(corpus.modifiers, modifiers);
  }
  return all;
}

}  // namespace heddle
