#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/config/update_rule.hpp>

#include "document.hpp"
#include "schema.hpp"

namespace heddle {
namespace {

// Reads a document's values into the members of a tree.
class ConfigReader {
 public:
  explicit ConfigReader(ConfigTree& tree) : tree_(tree) {}

  /// Throws ConfigError for a path that no table has, and for a value that its key does not accept.
  void read(std::string const& path, ConfigDocument::Entry const& entry) const {
    bool const is_table = entry.node->is_table();
    auto const tables = std::ranges::find(tree_.named, path, &NamedTables::path);
    bool const named = tables != tree_.named.end();
    if (named && tables->numbered) {
      if (toml::array const* const items = entry.node->as_array(); items == nullptr || !items->is_array_of_tables()) {
        throw ConfigError("{} is {}; expected a list of tables, each begun by [[{}]]", entry.place(),
                          describe(*entry.node), path);
      }
      return;
    }
    if (named || std::ranges::find(tree_.tables, path, &ConfigTable::path) != tree_.tables.end()) {
      if (!is_table) {
        fail_table(entry, named ? path + ".\"NAME\"" : path);
      }
      return;
    }
    ConfigTable const& table = table_of(path, entry);
    std::string const name = path.substr(table.path.size() + 1);
    bool const sublayer = table.holds_settings && name.find('.') == std::string::npos;
    auto const known = std::ranges::find(table.keys, name, [](ConfigKey const& key) { return key.description.name; });
    if (known == table.keys.end() && is_table && sublayer) {
      return;  // the table of a sublayer's options
    }
    std::optional<ConfigKey> const key = known != table.keys.end() ? *known
                                         : table.other             ? table.other(name)
                                                                   : std::nullopt;
    if (!key) {
      throw ConfigError("{}: {}", entry.origin, unknown_key(table, name, entry));
    }
    set(*key, entry);
    if (table.places != nullptr) {
      table.places->by_key[name] = entry.place();
    }
  }

 private:
  [[noreturn]] static void fail_table(ConfigDocument::Entry const& entry, std::string const& path) {
    throw ConfigError("{} is {}; expected a section: [{}]", entry.place(), describe(*entry.node), path);
  }

  /// The innermost table that can have the path.
  ConfigTable const& table_of(std::string const& path, ConfigDocument::Entry const& entry) const {
    ConfigTable const* best = nullptr;
    for (ConfigTable const& table : tree_.tables) {
      if (path.starts_with(table.path + ".") && (best == nullptr || table.path.size() > best->path.size())) {
        best = &table;
      }
    }
    for (NamedTables const& named : tree_.named) {
      if (path.starts_with(named.path + ".") && (best == nullptr || named.path.size() > best->path.size())) {
        fail_table(entry, path);  // the tree has all tables of these names
      }
    }
    if (best == nullptr) {
      throw ConfigError("{}: {}", entry.origin, unknown_section(path));
    }
    return *best;
  }

  static void set(ConfigKey const& key, ConfigDocument::Entry const& entry) {
    auto const value = value_of(*entry.node);
    auto const converted = value ? key.description.converted(*value) : std::nullopt;
    if (!converted) {
      throw ConfigError("{} is {}; expected {}", entry.place(), wrong(*entry.node, key.description),
                        key.description.expected(value));
    }
    key.set({*converted, entry.origin, entry.name});
  }

  /// Describes a value that is not accepted; of a list, its first wrong element.
  static std::string wrong(toml::node const& node, OptionDescription const& description) {
    toml::array const* const items = node.as_array();
    for (std::size_t index = 0; items != nullptr && index < items->size(); ++index) {
      toml::array single;
      single.push_back((*items)[index]);
      auto const value = value_of(single);
      if (!value || !description.converted(*value)) {
        return fmt::format("a list whose element {} is {}", index + 1, describe((*items)[index]));
      }
    }
    return describe(node);
  }

  /// "train.steps or …": the sections' keys of that name; "" if there is none.
  std::string qualified(std::string const& name) const {
    std::vector<std::string> names;
    for (ConfigTable const& table : tree_.tables) {
      auto const keys = names_of_keys(table.keys);
      if (table.path.find('.') == std::string::npos && std::ranges::find(keys, name) != keys.end()) {
        names.push_back(fmt::format("{}.{}", table.path, name));
      }
    }
    return fmt::format("{}", fmt::join(names, " or "));
  }

  std::string unknown_section(std::string const& name) const {
    if (std::string const elsewhere = qualified(name); !elsewhere.empty()) {
      return fmt::format("there is no section [{}]; did you mean the key {}?", name, elsewhere);
    }
    std::vector<std::string> sections;
    for (ConfigTable const& table : tree_.tables) {
      if (table.path.find('.') == std::string::npos) {
        sections.push_back(table.path);
      }
    }
    return fmt::format("there is no section [{}]; {}", name, nearest_or_all(name, sections));
  }

  std::string unknown_key(ConfigTable const& table, std::string const& name, ConfigDocument::Entry const& entry) const {
    if (std::string const elsewhere = qualified(name); !elsewhere.empty()) {
      return fmt::format("there is no key {}; did you mean {}?", entry.name, elsewhere);
    }
    std::vector<std::string> const names = names_in(table);
    std::string const meant = nearest_spelling(name, names);
    auto const value = value_of(*entry.node);
    std::vector<std::string> const sublayers = ModelConfig().decoder.sublayers;
    std::string const setting = value && std::ranges::count(sublayers, name) == 0
                                    ? fmt::format("{} = {}", name, to_toml(*value))
                                    : "window = 64";
    std::string const others = boost::replace_all_copy(table.others, given_setting, setting);
    return fmt::format(
        "there is no key {}; {}", entry.name,
        meant.empty() ? nearest_or_all(name, names, others) : fmt::format("did you mean {}.{}?", table.path, meant));
  }

  /// The names of a table's keys and of the tables in it.
  std::vector<std::string> names_in(ConfigTable const& table) const {
    std::vector<std::string> names = names_of_keys(table.keys);
    auto const add = [&](std::string const& path) {
      if (path.starts_with(table.path + ".") && path.find('.', table.path.size() + 1) == std::string::npos) {
        names.push_back(path.substr(table.path.size() + 1));
      }
    };
    for (auto const& [alias, path] : tree_.aliases) {
      add(alias);
    }
    for (ConfigTable const& inner : tree_.tables) {
      add(inner.path);
    }
    for (NamedTables const& inner : tree_.named) {
      add(inner.path);
    }
    return names;
  }

  ConfigTree& tree_;
};

/// Adds the tables whose names the document chooses.
void add_named_tables(ConfigTree const& tree, ConfigDocument const& document) {
  for (NamedTables const& named : tree.named) {
    std::string const prefix = named.path + ".";
    for (int number = 1; named.numbered && document.entries().contains(fmt::format("{}{}", prefix, number)); ++number) {
      named.add(fmt::format("{}", number));
    }
    for (auto const& [path, entry] : document.entries()) {
      if (!named.numbered && path.starts_with(prefix) && path.find('.', prefix.size()) == std::string::npos &&
          entry.node->is_table()) {
        named.add(path.substr(prefix.size()));
      }
    }
  }
}

void check_together(Config const& config, ConfigDocument const& document) {
  // For two conflicting keys, the key that the message names: an override rather than the file's, a given one rather
  // than a default.
  auto const blamed = [&](std::string const& first, std::string const& second) {
    std::string const origin = document.origin(first);
    bool const take_first = origin.starts_with("--set") || !document.entries().contains(second);
    return take_first ? origin : document.origin(second);
  };
  ModelConfig const& model = config.model;
  TrainConfig const& train = config.train;
  if (train.micro_batch_tokens > train.batch_tokens) {
    throw ConfigError(
        "{}: train.micro_batch_tokens = {} is more than train.batch_tokens = {}, of which it is a part; set "
        "train.micro_batch_tokens to {} or less",
        blamed("train.batch_tokens", "train.micro_batch_tokens"), train.micro_batch_tokens, train.batch_tokens,
        train.batch_tokens);
  }
  if (model.max_length > train.micro_batch_tokens) {
    bool const whole = !train.places.given("micro_batch_tokens") && train.batch_tokens == train.micro_batch_tokens;
    std::string const key = whole ? "train.batch_tokens" : "train.micro_batch_tokens";
    bool const both = model.max_length > (whole ? TrainConfig().micro_batch_tokens : train.batch_tokens);
    throw ConfigError(
        "{}: a sentence of model.max_length = {} tokens does not fit into {} = {}; raise this{} or set max_length to "
        "{} or less",
        blamed(key, "model.max_length"), model.max_length, key, train.micro_batch_tokens,
        both ? fmt::format(" and {}", whole ? "train.micro_batch_tokens" : "train.batch_tokens") : "",
        train.micro_batch_tokens);
  }
}

void require_each_once(std::vector<std::string> const& sublayers, std::string const& place) {
  for (auto sublayer = sublayers.begin(); sublayer != sublayers.end(); ++sublayer) {
    if (std::find(sublayers.begin(), sublayer, *sublayer) != sublayer) {
      throw ConfigError("{} names \"{}\" twice; each sublayer may occur once in a layer", place, *sublayer);
    }
  }
}

/// The layers that a range names, such as "4-6" or "2".
IndexRange parse_range(std::string const& name, std::string const& place) {
  std::size_t const dash = name.find('-');
  auto const begin = parse_number<std::int64_t>(name.substr(0, dash));
  auto const end = dash == name.npos ? begin : parse_number<std::int64_t>(name.substr(dash + 1));
  if (!begin || !end || *begin < 1 || *end < *begin) {
    throw ConfigError("{} does not name layers; expected one number or a range such as \"4-6\", counted from 1", place);
  }
  return {*begin - 1, *end};
}

/// Gives the overrides of a stack's layers their ranges and sorts them.
void resolve_ranges(StackConfig& stack, std::string const& stack_name, ConfigDocument const& document) {
  auto const path = [&](LayerOverride const& entry) {
    return fmt::format("model.{}.layer.{}", stack_name, entry.name);
  };
  auto const place = [&](LayerOverride const& entry) {
    return fmt::format("{}: {}", document.origin(path(entry)), path(entry));
  };
  for (LayerOverride& entry : stack.overrides) {
    entry.layers = parse_range(entry.name, place(entry));
    if (entry.layers.end > stack.layers) {
      throw ConfigError("{} names layers that the {} does not have: it has {}", place(entry), stack_name, stack.layers);
    }
    auto const sublayers = entry.settings.find("sublayers");
    if (sublayers != entry.settings.end()) {
      Setting const& given = sublayers->second;
      require_each_once(std::get<std::vector<std::string>>(given.value), given.origin + ": " + given.key);
    }
  }
  std::ranges::sort(stack.overrides, {}, [](LayerOverride const& entry) { return entry.layers.begin; });
  for (std::size_t index = 1; index < stack.overrides.size(); ++index) {
    LayerOverride const* wrong = &stack.overrides[index];
    LayerOverride const* other = &stack.overrides[index - 1];
    if (wrong->layers.begin < other->layers.end) {
      if (document.origin(path(*other)).starts_with("--set")) {
        std::swap(wrong, other);
      }
      throw ConfigError("{} overlaps {} ({}); a layer may be in one range", place(*wrong), path(*other),
                        document.origin(path(*other)));
    }
  }
}

void check_stacks(ModelConfig& model, ConfigDocument const& document) {
  std::vector<std::string> all;
  std::vector<std::string> in_order;
  std::int64_t layers = 0;
  for (auto const& [name, config, predicts] : stack_kinds) {
    all.emplace_back(name);
    StackConfig& stack = model.*config;
    require_each_once(stack.sublayers, model.place(fmt::format("{}_sublayers", name)));
    resolve_ranges(stack, all.back(), document);
    if (std::ranges::find(model.stacks, name) != model.stacks.end()) {
      in_order.emplace_back(name);
      layers += stack.layers;
    }
  }
  if (model.stacks != in_order || in_order.empty()) {
    throw ConfigError("{} is {}; expected {} or a part of it, in this order", model.place("stacks"),
                      to_toml(OptionValue(model.stacks)), to_toml(OptionValue(all)));
  }
  if (layers == 0) {
    throw ConfigError("{} = 0: the model has no layer", model.place(model.stacks.back() + "_layers"));
  }
  // The first stack has nothing to attend to but itself.
  std::string const& first = model.stacks.front();
  if (!model.places.given(first + "_sublayers")) {
    std::erase((model.*stack_kind(first).config).sublayers, "cross_attention");
  }
}

void check_groups(OptimizerConfig& optimizer, ConfigDocument const& document) {
  for (ParameterGroup& group : optimizer.groups) {
    if (group.rule.frozen && group.rule.frozen_until > 0) {
      throw ConfigError("{} beside {} = true, which freezes the group in all steps; set one of the two",
                        group.places.of("unfreeze_at"), group.places.of("frozen"));
    }
    if (!group.places.given("weight_decay")) {
      group.rule.weight_decay = optimizer.weight_decay;
    }
    if (group.parameters.empty()) {
      throw ConfigError("{}: {} names no parameters; for example parameters = [\"encoder.*\"]",
                        document.origin(group.places.section), group.places.section);
    }
  }
}

/// Checks the stages' names of corpora and their ends.
void check_stages(DataConfig const& data, ConfigDocument const& document) {
  for (DataStage const& stage : data.stages) {
    std::string const where = document.origin(stage.places.section) + ": " + stage.places.section;
    auto const is_corpus = [&](std::string const& name) {
      return std::ranges::find(data.corpora, name, &CorpusConfig::name) != data.corpora.end();
    };
    for (auto const& [name, weight] : stage.weights) {
      if (!is_corpus(name)) {
        throw ConfigError("{}.weights.{}: there is no [data.corpus.\"{}\"]", where, name, name);
      }
    }
    auto const reads = [&](std::string const& name) {
      auto const found = stage.weights.find(name);
      return found != stage.weights.end() && found->second > 0;
    };
    auto const first = std::ranges::find_if(stage.weights, [](auto const& share) { return share.second > 0; });
    if (first == stage.weights.end()) {
      throw ConfigError("{} reads no corpus; for example weights = {{ {} = 1.0 }}", where,
                        data.corpora.empty() ? "news" : data.corpora.front().name);
    }
    if (stage.epochs > 0 && !reads(stage.corpus)) {
      throw ConfigError(
          "{}: epochs = {} of which corpus? corpus = \"{}\" is not one that the stage reads; for example "
          "corpus = \"{}\"",
          where, stage.epochs, stage.corpus, first->first);
    }
    if (!stage.has_end() && &stage != &data.stages.back()) {
      throw ConfigError("{} has no end, and stages follow it; set its epochs and corpus, steps or stalled", where);
    }
  }
}

void check_corpora(DataConfig const& data, ConfigDocument const& document) {
  check_text(data.train, data.text, data.places);
  for (CorpusConfig const& corpus : data.corpora) {
    std::string const where = document.origin(corpus.places.section);
    if (corpus.train.empty() && corpus.text.empty()) {
      throw ConfigError("{}: {} names no dataset; for example train = \"data/news/train.h5\"", where,
                        corpus.places.section);
    }
    check_text(corpus.train, corpus.text, corpus.places);
    if (!data.train.empty() || !data.text.empty()) {
      throw ConfigError("{}: {} beside data.train; training takes one dataset, or corpora that are mixed", where,
                        corpus.places.section);
    }
  }
  for (auto const& [set, metrics] : data.valid_metrics) {
    if (!data.valid_sets.contains(set)) {
      std::string const key = "data.valid_metrics." + set;
      throw ConfigError(
          "{}: {} are the metrics of a validation set that data.valid_sets does not have; those of data.valid are "
          "train.validate_metrics",
          document.origin(key), key);
    }
  }
  for (auto const& [set, tag] : data.valid_tags) {
    if (!data.valid_sets.contains(set)) {
      std::string const key = "data.valid_tags." + set;
      throw ConfigError(
          "{}: {} is the tag of a validation set that data.valid_sets does not have; the tag "
          "of data.valid is data.valid_tag",
          document.origin(key), key);
    }
  }
}

/// Checks that the standard input is only what a stream can be, which is read once and in the sender's order.
void check_stream(Config const& config, ConfigDocument const& document) {
  DataConfig const& data = config.data;
  auto const has_stream = [](std::vector<std::string> const& files) { return std::ranges::count(files, "-") > 0; };
  bool const stream = has_stream(data.train);
  constexpr std::string_view alone = "\"-\" is the standard input, which is read once and in its order";
  if (stream && data.train.size() > 1) {
    throw ConfigError("{}: {}; expected it alone, without files", data.places.of("train"), alone);
  }
  for (CorpusConfig const& corpus : data.corpora) {
    if (has_stream(corpus.train)) {
      throw ConfigError("{}: {}, so that it is not mixed; expected files here, or data.train = \"-\" and no corpora",
                        corpus.places.of("train"), alone);
    }
  }
  for (auto const& [set, path] : data.valid_sets) {
    if (path == "-") {
      std::string const key = "data.valid_sets." + set;
      throw ConfigError("{}: {}: {}; expected a file for validations", document.origin(key), key, alone);
    }
  }
  if (data.valid == "-") {
    throw ConfigError("{}: {}; expected a file for validations", data.places.of("valid"), alone);
  }
  if (stream && config.train.epochs > 0) {
    throw ConfigError("{} = {} beside data.train = \"-\": a stream is read once, and training ends with it",
                      config.train.places.of("epochs"), config.train.epochs);
  }
}

/// Freezes what has no adapter, and is in no group.
void complete_adapter(Config& config) {
  AdapterConfig const& adapter = config.model.adapter;
  if (adapter.rank > 0) {
    for (std::string const suffix : adapter_suffixes) {
      config.optimizer.trained.push_back("*" + suffix);
    }
  } else if (!adapter.places.by_key.empty() && !adapter.places.given("rank")) {
    throw ConfigError("{} is given and adapter.rank is not, without which there are no adapters; for example rank = 8",
                      adapter.places.by_key.begin()->second);
  }
  if (adapter.rank > 0 && !adapter.save_base && config.train.initialize_from.empty()) {
    throw ConfigError(
        "{} = false, but train.initialize_from is not set: a checkpoint would lack the frozen parameters, "
        "and could name no other that has them",
        adapter.places.of("save_base"));
  }
}

/// ModelConfig::frozen, by the rules of update_rule.
void find_frozen(Config& config) {
  FrozenParameters& all = config.model.frozen;
  bool const adapters = !config.optimizer.trained.empty();
  all = {.trained = config.optimizer.trained, .rounded = config.train.frozen_precision == FrozenPrecision::bfloat16};
  for (ParameterGroup const& group : config.optimizer.groups) {
    bool const decided_by_adapters = adapters && describes_values(group.rule);
    if (!decided_by_adapters && (group.rule.frozen || adapters)) {
      std::vector<std::string>& patterns = group.rule.frozen ? all.frozen : all.trained;
      patterns.insert(patterns.end(), group.parameters.begin(), group.parameters.end());
    }
  }
}

void check_plugins(PluginsConfig const& plugins, ConfigDocument const& document) {
  auto const is_digest = [](std::string const& text) {
    return text.empty() || (text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos);
  };
  std::string const where = document.origin("plugins.sha256");
  if (!plugins.sha256.empty() && plugins.sha256.size() != plugins.paths.size()) {
    throw ConfigError(
        "{}: plugins.sha256 has {} digests for {} plugins.paths; expected one for each, \"\" for any file", where,
        plugins.sha256.size(), plugins.paths.size());
  }
  auto const wrong = std::ranges::find_if_not(plugins.sha256, is_digest);
  if (wrong != plugins.sha256.end()) {
    throw ConfigError(
        "{}: plugins.sha256 has \"{}\"; expected 64 hexadecimal digits in lower case, as sha256sum prints", where,
        *wrong);
  }
}

/// Resolves defaults that depend on other keys and the ranges of layers, and checks keys that depend on each other.
void complete_and_check(Config& config, ConfigDocument const& document) {
  TrainConfig& train = config.train;
  if (!train.places.given("micro_batch_tokens")) {
    train.micro_batch_tokens = std::min(train.micro_batch_tokens, train.batch_tokens);
  }
  if (train.best_metric.empty()) {
    throw ConfigError("{} = \"\" names no metric; expected \"loss\", for example", train.places.of("best_metric"));
  }
  check_together(config, document);
  check_stacks(config.model, document);
  check_corpora(config.data, document);
  check_stages(config.data, document);
  check_stream(config, document);
  check_groups(config.optimizer, document);
  if (config.optimizer.layer_decay != 1) {
    for (std::string const& stack : config.model.stacks) {
      config.optimizer.layers[stack] = (config.model.*stack_kind(stack).config).layers;
    }
  }
  if (config.optimizer.base_width > 0) {
    for (std::string const& stack : config.model.stacks) {
      config.optimizer.widths[stack] = layer_config(config.model, stack_kind(stack).config, -1).d_model;
    }
  }
  complete_adapter(config);
  find_frozen(config);
  check_plugins(config.plugins, document);
}

void require_given(std::string_view key, bool given, std::string_view example) {
  if (!given) {
    throw ConfigError("{} is not set, and training needs it; for example {} = \"{}\"", key, key, example);
  }
}

}  // namespace

Config parse_config(std::string_view text, std::string_view source_name, std::vector<std::string> const& overrides) {
  Config config;
  ConfigTree empty = config_tree(config);
  ConfigDocument document(text, source_name, empty.aliases);
  for (std::string const& override_text : overrides) {
    document.apply(override_text);
  }
  add_named_tables(empty, document);
  ConfigTree tree = config_tree(config);
  ConfigReader const reader(tree);
  for (auto const& [path, entry] : document.entries()) {
    reader.read(path, entry);
  }
  complete_and_check(config, document);
  return config;
}

Config load_config(std::string const& path, std::vector<std::string> const& overrides) {
  FileText const file = read_file_text(path, std::uintmax_t{16} << 20);
  if (!file.problem.empty()) {
    throw ConfigError(file.problem + "; expected a TOML file, see docs/reference/config.md");
  }
  return parse_config(file.text, path, overrides);
}

void require_supported(Config const& config) {
  require_given("run.directory", !config.run.directory.empty(), "runs/first");
  require_given("data.train", config.data.has_training(), "data/demo/train.h5");
  if (config.train.validate_every > 0) {
    require_given("data.valid", !config.data.valid.empty(), "data/demo/valid.h5");
  } else if (TrainConfig const& train = config.train; train.early_stopping > 0) {
    throw ConfigError(
        "{} = {} beside train.validate_every = 0: without validations nothing stops the run early; set "
        "train.validate_every, or train.early_stopping = 0",
        train.places.of("early_stopping"), train.early_stopping);
  } else if (config.optimizer.plateau_validations > 0) {
    throw ConfigError(
        "{} = {} beside train.validate_every = 0: without validations there is no plateau; set train.validate_every",
        config.optimizer.places.of("plateau_validations"), config.optimizer.plateau_validations);
  } else if (auto const stage = std::ranges::find_if(
                 config.data.stages,
                 [](DataStage const& each) { return each.stalled > 0 && each.epochs == 0 && each.steps == 0; });
             stage != config.data.stages.end()) {
    throw ConfigError(
        "{} = {} beside train.validate_every = 0: without validations the stage never ends; set "
        "train.validate_every, or its epochs or steps",
        stage->places.of("stalled"), stage->stalled);
  } else if (train.validate_at_start) {
    throw ConfigError(
        "{} = true beside train.validate_every = 0, with which nothing is validated; set train.validate_every",
        train.places.of("validate_at_start"));
  }
}

std::vector<std::string> warnings_about(Config const& config) {
  std::vector<std::string> warnings = untagged_sets(config);
  std::int64_t const warmup = config.optimizer.warmup_steps;
  std::int64_t const steps = config.train.steps;
  if (warmup == 0) {
    warnings.emplace_back(
        "optimizer.warmup_steps = 0: the first steps take the whole learning rate, with which Transformers often "
        "diverge; expected some hundreds of steps");
  }
  if (warmup > steps) {
    warnings.push_back(fmt::format(
        "optimizer.warmup_steps = {} is longer than the run, train.steps = {}: the learning rate grows up to the end "
        "and reaches only {:.2g} of optimizer.learning_rate = {}; expected a warm-up of some percent of the run",
        warmup, steps, static_cast<double>(steps) / static_cast<double>(warmup), config.optimizer.learning_rate));
  }
  if (config.train.r_drop > 0 && config.model.dropout == 0 && config.model.attention_dropout == 0 &&
      config.model.activation_dropout == 0) {
    warnings.push_back(fmt::format(
        "{} = {} without dropout: both passes of a sample are equal, so that a step takes twice as long for nothing",
        config.train.places.of("r_drop"), config.train.r_drop));
  }
  if (config.optimizer.rewarm_at == 0 && config.optimizer.rewarm_steps > 0) {
    warnings.push_back(fmt::format("{} = {} without rewarm_at holds from the start, on top of the warm-up",
                                   config.optimizer.places.of("rewarm_steps"), config.optimizer.rewarm_steps));
  }
  if (config.optimizer.average == Average::lawa && config.optimizer.average_every > steps) {
    warnings.push_back(
        fmt::format("{} = {}: the run of {} steps ends before values are kept, so the average is the values",
                    config.optimizer.places.of("average_every"), config.optimizer.average_every, steps));
  }
  if (config.optimizer.rewarm_at > 0 && (config.optimizer.rewarm_steps == 0 || config.optimizer.rewarm_at >= steps)) {
    warnings.push_back(fmt::format("{} = {} has no effect with rewarm_steps = {} and train.steps = {}",
                                   config.optimizer.places.of("rewarm_at"), config.optimizer.rewarm_at,
                                   config.optimizer.rewarm_steps, steps));
  }
  for (ParameterGroup const& group : config.optimizer.groups) {
    if (group.rule.frozen_until >= steps) {
      warnings.push_back(fmt::format("{} = {}: the run ends before, at train.steps = {}, and never trains the group",
                                     group.places.of("unfreeze_at"), group.rule.frozen_until, steps));
    }
  }
  return warnings;
}

}  // namespace heddle
