#pragma once

#include <deque>
#include <functional>
#include <heddle/core/config/config.hpp>

/// The configuration as a tree of tables, bound to the structs of a Config. schema.cpp has the only list of its keys;
/// reading, printing, documenting and comparing walk the tree.
namespace heddle {

struct ConfigKey {
  OptionDescription description;
  std::function<std::optional<OptionValue>()> get;  ///< none: not given, in a table of settings
  std::function<void(Setting const&)> set;          ///< takes a value that description.converted has accepted
  ResumeRule resume = ResumeRule::trajectory;
};

/// The setting of a stack that ties its layers: see StackDescription.
inline constexpr char const* tied_layers_key = "tied_layers";

/// Stands in ConfigTable::others for a key that the table does not have, with its value.
inline constexpr char const* given_setting = "KEY = VALUE";

struct ConfigTable {
  std::string path;     ///< "model.decoder.layer.4-6"
  std::string header;   ///< its line in a file: [model.decoder.layer."4-6"]
  std::string meaning;  ///< the meaning of a section
  std::vector<ConfigKey> keys = {};
  KeyLocations* places = nullptr;  ///< records where its keys were given
  /// Makes a key that `keys` does not list; none for a name that cannot be one.
  std::function<std::optional<ConfigKey>(std::string const& name)> other = {};
  std::string others = {};        ///< describes `other` in messages; given_setting stands for the unknown key
  bool holds_settings = false;    ///< its keys override those of other tables, so it is printed only if some are given
  std::string inner_tables = {};  ///< describes the tables in it: lines of comments
};

/// Tables of one kind with names that the file chooses: [optimizer.group."NAME"].
struct NamedTables {
  std::string path;                             ///< "optimizer.group"
  std::function<void(std::string const&)> add;  ///< adds a table with this name
  bool numbered = false;                        ///< a list of tables: names are numbers from 1
};

struct ConfigTree {
  std::deque<ConfigTable> tables;
  std::vector<NamedTables> named;
  std::map<std::string, std::string> aliases;  ///< another spelling of a key → the key: "model.encoder.layers"
};

/// The tree whose keys are members of `config`, which must outlive it.
ConfigTree config_tree(Config& config);

/// The keys of [model] that may differ between layers, and the layer's `sublayers`.
std::vector<ConfigKey> layer_keys(ModelConfig& model, StackConfig& stack);

/// Adds the table of the weights of a stage's corpora.
void add_weights(ConfigTree& tree, DataStage& stage);
/// A key whose value is kept among settings.
ConfigKey key_of_settings(Settings& settings, OptionDescription description, ResumeRule resume);
/// Adds the keys of text that is read in place of a dataset.
void add_text_keys(std::vector<ConfigKey>& keys, ParallelFiles& text);
/// Throws ConfigError where the files of a text are not complete, or are beside a dataset.
void check_text(std::vector<std::string> const& train, ParallelFiles const& text, KeyLocations const& places);
/// Adds the tables of modifiers: of all corpora, and of each.
void add_modifiers(ConfigTree& tree, DataConfig& data);
/// Adds the tables of further validation sets, which have a key for each name.
void add_valid_sets(ConfigTree& tree, DataConfig& data);
/// Adds the tables of metrics that a run has by itself: programs, and a mean.
void add_metrics(ConfigTree& tree, TrainConfig& train);
/// Warnings of validation sets that have no tag, although the model is trained on sources that have one.
std::vector<std::string> untagged_sets(Config const& config);

std::vector<std::string> names_of_keys(std::vector<ConfigKey> const& keys);

/// The lines that explain a key, or a table with its keys.
std::string describe(ConfigKey const& key);
std::string describe(ConfigTable const& table);

/// "4-6", or "4": a range of layers as in the file, counted from 1.
std::string range_name(IndexRange const& layers);

}  // namespace heddle
