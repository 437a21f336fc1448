#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "schema.hpp"

namespace heddle {

namespace {

/// Adds a table that has a key for each name among `values`, and takes more. `table` has its path and meanings.
template <class Value>
void add_names(ConfigTree& tree, ConfigTable table, OptionDescription const& value,
               std::map<std::string, Value>& values, ResumeRule resume = ResumeRule::free,
               std::string const& more_characters = "") {
  auto const key = [&values, value, resume](std::string const& name) {
    auto const get = [&values, name] {
      auto const found = values.find(name);
      return found == values.end() ? std::nullopt : std::optional<OptionValue>(found->second);
    };
    OptionDescription description = value;
    description.name = name;
    auto const set = [&values, name](Setting const& setting) { values[name] = std::get<Value>(setting.value); };
    return ConfigKey{std::move(description), get, set, resume};
  };
  for (auto const& [name, given] : values) {
    table.keys.push_back(key(name));
  }
  // The name is a part of keys in metrics.jsonl: "valid_loss/NAME".
  table.others = more_characters.empty() ? "any name of letters, digits, \"_\" and \"-\"" : "the name of a metric";
  table.other = [key, more_characters](std::string const& name) {
    std::string const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-" + more_characters;
    return name.find_first_not_of(letters) == std::string::npos ? std::optional(key(name)) : std::nullopt;
  };
  tree.tables.push_back(std::move(table));
}

}  // namespace

void add_weights(ConfigTree& tree, DataStage& stage) {
  add_names(
      tree,
      {.path = fmt::format("data.stage.{}.weights", stage.name),
       .header = "[data.stage.weights]",
       .meaning = "shares of the samples: NAME = 0.8; corpora that are not named have none"},
      {.type = OptionDescription::Type::number, .meaning = "the corpus's share, relative to the others'", .max = 1e9},
      stage.weights, ResumeRule::trajectory);
}

void add_valid_sets(ConfigTree& tree, DataConfig& data) {
  using Type = OptionDescription::Type;
  add_names(tree,
            {.path = "data.valid_sets",
             .header = "[data.valid_sets]",
             .meaning = "more validation datasets, by any names: NAME = \"data/NAME/valid.h5\""},
            {.type = Type::string, .meaning = "a validation dataset"}, data.valid_sets);
  add_names(tree,
            {.path = "data.valid_tags",
             .header = "[data.valid_tags]",
             .meaning = "tags of these: NAME = \"<news>\"; default: that of the corpus NAME"},
            {.type = Type::string, .meaning = "text before each of its sources", .may_be_empty = true},
            data.valid_tags);
  add_names(tree,
            {.path = "data.valid_metrics",
             .header = "[data.valid_metrics]",
             .meaning = "metrics of these: NAME = [\"ter\"]; default: train.validate_metrics"},
            {.type = Type::strings, .meaning = "metrics of its translations", .may_be_empty = true},
            data.valid_metrics);
}

void add_metrics(ConfigTree& tree, TrainConfig& train) {
  using Type = OptionDescription::Type;
  add_names(tree,
            {.path = "train.validate_command",
             .header = "[train.validate_command]",
             .meaning = "metrics that are programs: comet = \"python3 comet.py\"; see training-options.md"},
            {.type = Type::string, .meaning = "what the shell runs on translations; it prints a number"},
            train.validate_command);
  add_names(tree,
            {.path = "train.mean_metric",
             .header = "[train.mean_metric]",
             .meaning = "weights of the metrics whose mean is the metric mean: \"bleu/NAME\" = 0.7"},
            {.type = Type::number, .meaning = "the metric's weight", .max = 1e9, .above_min = true}, train.mean_metric,
            ResumeRule::free, "/+");
}

std::vector<std::string> untagged_sets(Config const& config) {
  std::vector<std::string> warnings;
  auto const tagged = std::ranges::find_if(config.data.corpora, [](auto const& corpus) { return !corpus.tag.empty(); });
  if (tagged == config.data.corpora.end() || config.train.validate_every == 0) {
    return warnings;
  }
  auto const check = [&](std::string const& set, std::string const& key, std::string const& tag_key) {
    if (!config.data.validation_corpus(set)) {
      warnings.push_back(
          fmt::format("{} is read without a tag, and {} = {} is before training sources: the model is judged on text "
                      "of another form; set {}, to \"\" where the sources of {} need none",
                      key, tagged->places.of("tag"), to_toml(OptionValue(tagged->tag)), tag_key, key));
    }
  };
  check("", "data.valid", "data.valid_tag");
  for (auto const& [set, path] : config.data.valid_sets) {
    check(set, "data.valid_sets." + set, "data.valid_tags." + set);
  }
  return warnings;
}

std::optional<CorpusConfig> DataConfig::validation_corpus(std::string const& set) const {
  auto const with_tag = [&](std::string const& tag, std::string const& place) {
    return CorpusConfig{.name = set, .tag = tag, .places = {.by_key = {{"tag", place}}}};
  };
  if (set.empty()) {
    bool const given = !valid_tag.empty() || places.given("valid_tag");
    return given ? std::optional(with_tag(valid_tag, places.of("valid_tag"))) : std::nullopt;
  }
  if (auto const own = valid_tags.find(set); own != valid_tags.end()) {
    return with_tag(own->second, "data.valid_tags." + set);
  }
  auto const corpus = std::ranges::find(corpora, set, &CorpusConfig::name);
  return corpus == corpora.end() ? std::nullopt : std::optional(*corpus);
}

}  // namespace heddle
