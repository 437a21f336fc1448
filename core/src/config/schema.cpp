#include "schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/activation_functions.hpp>
#include <heddle/core/base/spelling.hpp>
#include <ranges>
#include <type_traits>

namespace heddle {
namespace {

using Type = OptionDescription::Type;

template <class Member>
OptionDescription typed(OptionDescription description) {
  if constexpr (std::is_same_v<Member, bool>) {
    description.type = Type::boolean;
  } else if constexpr (std::is_integral_v<Member>) {
    description.type = Type::integer;
  } else if constexpr (std::is_same_v<Member, double>) {
    description.type = Type::number;
  } else if constexpr (std::is_same_v<Member, std::vector<std::int64_t>>) {
    description.type = Type::integers;
  } else if constexpr (std::is_same_v<Member, std::vector<std::string>>) {
    description.type = Type::strings;
  } else {
    description.type = Type::string;
  }
  if constexpr (std::is_enum_v<Member>) {
    description.choices.assign(value_names<Member>.begin(), value_names<Member>.end());
  }
  return description;
}

template <class Member>
OptionValue value_of(Member const& member, OptionDescription const& description) {
  if constexpr (std::is_enum_v<Member>) {
    return std::string(name_of(member));
  } else if constexpr (std::is_integral_v<Member> && !std::is_same_v<Member, bool>) {
    return description.or_auto && member == 0 ? OptionValue("auto") : OptionValue(static_cast<std::int64_t>(member));
  } else if constexpr (std::is_same_v<Member, std::vector<std::string>>) {
    return description.one_or_several && member.size() < 2 ? OptionValue(member.empty() ? "" : member.front())
                                                           : OptionValue(member);
  } else {
    return member;
  }
}

template <class Member>
void assign(Member& member, OptionValue const& value) {
  if constexpr (std::is_enum_v<Member>) {
    auto const& names = value_names<Member>;
    member = static_cast<Member>(std::ranges::find(names, std::get<std::string>(value)) - names.begin());
  } else if constexpr (std::is_integral_v<Member> && !std::is_same_v<Member, bool>) {
    auto const* const count = std::get_if<std::int64_t>(&value);
    member = count == nullptr ? 0 : static_cast<Member>(*count);  // "auto" is 0
  } else {
    member = std::get<Member>(value);
  }
}

template <class Member>
ConfigKey key_of(std::string name, Member& member, OptionDescription values, std::string meaning) {
  OptionDescription description = typed<Member>(std::move(values));
  description.name = std::move(name);
  description.meaning = std::move(meaning);
  auto const get = [&member, description] { return value_of(member, description); };
  return {description, get, [&member](Setting const& setting) { assign(member, setting.value); }};
}

/// Adds keys to a table's list: `identity` and `free` with that ResumeRule, `key` with ResumeRule::trajectory.
class Keys {
 public:
  explicit Keys(std::vector<ConfigKey>& keys) : keys_(keys) {}
  template <class Member>
  void key(std::string name, Member& member, OptionDescription values, std::string meaning) const {
    keys_.push_back(key_of(std::move(name), member, std::move(values), std::move(meaning)));
  }
  template <class Member>
  requires(std::is_enum_v<Member> || std::is_same_v<Member, bool>) void key(std::string name, Member& member,
                                                                            std::string meaning) const {
    key(std::move(name), member, {}, std::move(meaning));
  }
  template <class... Arguments>
  void identity(Arguments&&... arguments) const {
    key(std::forward<Arguments>(arguments)...);
    keys_.back().resume = ResumeRule::identity;
  }
  template <class... Arguments>
  void free(Arguments&&... arguments) const {
    key(std::forward<Arguments>(arguments)...);
    keys_.back().resume = ResumeRule::free;
  }
  std::vector<ConfigKey>& list() const { return keys_; }

 private:
  std::vector<ConfigKey>& keys_;
};

OptionDescription at_least(double min) {
  return {.min = min};
}
OptionDescription between(double min, double max) {
  return {.min = min, .max = max};
}
OptionDescription above_zero() {
  return {.above_min = true};
}
OptionDescription inside_zero_and_one() {
  return {.max = 1, .above_min = true, .below_max = true};
}
OptionDescription below_one() {
  return {.max = 1, .below_max = true};
}
OptionDescription non_empty() {
  return {};
}
OptionDescription any() {
  return {.may_be_empty = true};
}

// Steps, samples and tokens are int32 where ranks exchange them, and 32 bits of random numbers' counters (random.hpp).
constexpr double max_steps = 2147483647.0;
constexpr double max_tokens = 2147483647.0;
constexpr double max_width = 1048576;
constexpr double max_ranks = 1048576;
constexpr double max_layers = 4096;
constexpr double max_averaged_values = 64;
OptionDescription const one_or_several{.one_or_several = true};

/// Adds a table to the tree and returns its list of keys.
Keys add_table(ConfigTree& tree, std::string path, std::string header, KeyLocations* places = nullptr) {
  ConfigTable& table = tree.tables.emplace_back();
  table.path = std::move(path);
  table.header = std::move(header);
  table.places = places;
  return Keys(table.keys);
}

Keys add_section(ConfigTree& tree, std::string const& name, std::string meaning, KeyLocations* places = nullptr) {
  Keys const keys = add_table(tree, name, fmt::format("[{}]", name), places);
  tree.tables.back().meaning = std::move(meaning);
  return keys;
}

/// Adds the tables [PATH."NAME"] in the section that was added last: one for each of `items`, which have members `name`
/// and `places`. `add_keys(keys, item)` lists the keys, `example` and `meaning` explain them.
/// With `numbered` they are [[PATH]], a list of tables whose names are their numbers. `add_inner(item)` adds the tables
/// in an item's table.
template <class Item, class AddKeys, class AddInner = void (*)(Item&)>
void add_named_tables(
    ConfigTree& tree, std::string const& path, std::vector<Item>& items, Item example, std::string const& meaning,
    AddKeys const& add_keys, bool numbered = false, AddInner const& add_inner = [](Item&) {}) {
  auto const header = [&](Item const& item) {
    return numbered ? fmt::format("[[{}]]", path) : fmt::format("[{}.{}]", path, to_toml(OptionValue(item.name)));
  };
  ConfigTable shown{.path = path, .header = header(example), .meaning = numbered ? "the first" : "any name"};
  add_keys(Keys(shown.keys), example);
  ConfigTable& parent = *std::ranges::find(tree.tables, path.substr(0, path.find('.')), &ConfigTable::path);
  parent.inner_tables += fmt::format("# {}:\n#   ", meaning);
  for (char const letter : describe(shown)) {
    parent.inner_tables += letter == '\n' ? std::string("\n#   ") : std::string(1, letter);
  }
  parent.inner_tables.resize(parent.inner_tables.size() - 4);
  tree.named.push_back({path,
                        [&items, path](std::string const& name) {
                          items.push_back({.name = name, .places = {.section = fmt::format("{}.{}", path, name)}});
                        },
                        numbered});
  for (Item& item : items) {
    add_keys(add_table(tree, fmt::format("{}.{}", path, item.name), header(item), &item.places), item);
    add_inner(item);
  }
}

/// An option of a sublayer, which is checked when the layers are known: any value. A resumed run keeps it, because it
/// may decide which parameters there are, except for those of training only.
ConfigKey sublayer_option(Settings& settings, std::string const& name) {
  return key_of_settings(settings, {.name = name, .type = Type::any},
                         is_for_training_only(name) ? ResumeRule::trajectory : ResumeRule::identity);
}

/// Adds the table of the settings of a stack or of some of its layers.
void add_settings(ConfigTree& tree, std::string path, std::string header, Settings& settings, bool of_stack) {
  add_table(tree, std::move(path), std::move(header));
  ConfigTable& table = tree.tables.back();
  ModelConfig example;
  std::vector<ConfigKey> const known = layer_keys(example, example.decoder);
  for (ConfigKey const& key : known) {
    // A stack's sublayers are a key of [model], and all its layers have one stream.
    if (key.description.name != (of_stack ? "sublayers" : "d_model")) {
      table.keys.push_back(key_of_settings(settings, key.description, key.resume));
    }
  }
  if (of_stack) {
    table.keys.push_back(key_of_settings(settings,
                                         {.name = tied_layers_key,
                                          .type = Type::integers,
                                          .meaning = "for each layer the number of the one whose parameters it uses",
                                          .min = 1,
                                          .max = max_layers},
                                         ResumeRule::identity));
  }
  for (auto const& [name, setting] : settings) {
    if (name.find('.') != std::string::npos) {
      table.keys.push_back(sublayer_option(settings, name));
    }
  }
  table.holds_settings = true;
  table.others = "an option of a sublayer in its table, such as self_attention = { KEY = VALUE }";
  table.other = [&settings](std::string const& name) {
    return name.find('.') == std::string::npos ? std::nullopt : std::optional(sublayer_option(settings, name));
  };
}

void add_stack(ConfigTree& tree, std::string const& name, StackConfig& stack) {
  std::string const path = "model." + name;
  for (std::string const key : {"layers", "sublayers", "input"}) {
    tree.aliases[fmt::format("{}.{}", path, key)] = fmt::format("{}_{}", path, key);
  }
  add_settings(tree, path, fmt::format("[{}]", path), stack.settings, true);
  tree.named.push_back({path + ".layer", [&stack](std::string const& layers) {
                          stack.overrides.push_back({.layers = {}, .settings = {}, .name = layers});
                        }});
  for (LayerOverride& entry : stack.overrides) {
    std::string const layers = entry.name.empty() ? range_name(entry.layers) : entry.name;
    add_settings(tree, fmt::format("{}.layer.{}", path, layers), fmt::format("[{}.layer.\"{}\"]", path, layers),
                 entry.settings, false);
  }
}

void add_corpus(Keys const& keys, CorpusConfig& corpus) {
  keys.free("train", corpus.train, one_or_several, "a dataset or TSV text, in one or several files");
  add_text_keys(keys.list(), corpus.text);
  keys.key("weight", corpus.weight, {.max = 1e9, .above_min = true},
           "its share of the samples, relative to the other corpora's");
  keys.key("tag", corpus.tag, any(), "text before each source, such as \"<news>\"");
}

void add_stage(Keys const& keys, DataStage& stage) {
  keys.free("title", stage.title, any(), "its name in messages");
  keys.key("epochs", stage.epochs, at_least(0), "end after N passes over `corpus`; 0: not by them");
  keys.key("corpus", stage.corpus, any(), "the corpus that `epochs` counts");
  keys.key("steps", stage.steps, between(0, max_steps), "end after N steps; 0: not by them");
  keys.key("stalled", stage.stalled, at_least(0), "end after N validations without a better one; 0: not by them");
}

void add_paths(ConfigTree& tree, Config& config) {
  Keys const run = add_section(tree, "run", "one training run");
  run.free("directory", config.run.directory, any(),
           "directory of checkpoints, metrics and the resolved configuration");
  Keys const data = add_section(tree, "data", "written by `heddle prepare`", &config.data.places);
  data.free("train", config.data.train, one_or_several,
            "training dataset or TSV text, in one or several files, or \"-\"");
  add_text_keys(data.list(), config.data.text);
  data.free("vocabulary", config.data.vocabulary, one_or_several, "of text: one file or two");
  data.free("valid", config.data.valid, any(), "validation dataset or TSV text; train.best_metric is measured on it");
  data.free("valid_tag", config.data.valid_tag, any(), "text before each source of data.valid, such as \"<news>\"");
  add_named_tables(tree, "data.corpus", config.data.corpora, {.name = "news", .train = {"data/news/train.h5"}},
                   "Instead of data.train: several datasets of one vocabulary that are mixed", add_corpus);
  data.key("temperature", config.data.temperature, at_least(0),
           "above 0: shares of corpora follow their samples^(1 / temperature), times their weights");
  add_named_tables(tree, "data.stage", config.data.stages,
                   {.name = "1", .title = "clean first", .corpus = "news", .epochs = 2},
                   "Spans of the run with their own shares of the corpora, one after another, each with "
                   "weights.NAME = SHARE",
                   add_stage, true, [&tree](DataStage& stage) { add_weights(tree, stage); });
  add_modifiers(tree, config.data);
  add_valid_sets(tree, config.data);
}

void add_model(ConfigTree& tree, ModelConfig& model) {
  Keys const keys = add_section(tree, "model", "the Transformer", &model.places);
  keys.identity("stacks", model.stacks, non_empty(), "both, or one (encoder-only or decoder-only)");
  keys.identity("encoder_layers", model.encoder.layers, between(0, max_layers), "number of encoder layers");
  keys.identity("decoder_layers", model.decoder.layers, between(0, max_layers), "number of decoder layers");
  std::vector<ConfigKey> of_layers = layer_keys(model, model.encoder);
  of_layers.pop_back();  // sublayers: each stack has its own
  auto& all = tree.tables.back().keys;
  all.insert(all.end(), of_layers.begin(), of_layers.end());
  keys.identity("norm", model.norm, "places of the norms of residual sums and sublayers; see Norms");
  keys.identity("embedding_norm", model.embedding_norm, "a norm on the embeddings of each stack");
  keys.identity("token_types", model.token_types, between(0, max_width),
                "rows of a table of token types; the second is that of a pair's second text");
  keys.identity("positions", model.positions, "see Positions");
  keys.identity("position_layout", model.position_layout, "pairs of columns in sinusoidal and rotary positions");
  keys.identity("position_frequencies", model.position_frequencies, "frequencies of sinusoidal positions");
  keys.identity("first_position", model.first_position, between(0, max_width),
                "sinusoidal position of a sequence's first token");
  keys.identity("rotary_base", model.rotary_base, above_zero(),
                "rotary positions: pair i of p turns by base^(-i / p) per token");
  keys.identity("rotary_scaling", model.rotary_scaling, "lower frequencies for longer texts, see Positions");
  keys.identity("rotary_factor", model.rotary_factor, at_least(1), "the number by which frequencies are then divided");
  keys.identity("rotary_original_length", model.rotary_original_length, between(0, max_tokens),
                "length of the texts before scaling; 0: max_length");
  keys.identity("rotary_low_turns", model.rotary_low_turns, above_zero(),
                "llama3, yarn: pairs with fewer turns in that length are scaled");
  keys.identity("rotary_high_turns", model.rotary_high_turns, above_zero(),
                "llama3, yarn: pairs with more turns in that length are not");
  keys.identity("max_distance", model.max_distance, between(1, max_width),
                "maximum relative distance; larger ones are clipped to it");
  keys.identity("position_buckets", model.position_buckets, between(4, max_width),
                "number of ranges of distances in relative_buckets");
  keys.identity("scale_embedding", model.scale_embedding, "multiply embeddings by the root of d_model");
  keys.identity("tie_embeddings", model.tie_embeddings, "share one matrix between embeddings and output projection");
  keys.identity("share_embeddings", model.share_embeddings,
                "share one matrix between the embeddings of both stacks, also if the output has its own");
  keys.identity("separate_embeddings", model.separate_embeddings,
                "a matrix for each stack, also of a joint vocabulary; a tied output has the last stack's");
  keys.identity("output_transform", model.output_transform,
                "a projection, an activation and a norm before the output projection");
  keys.identity("output_bias", model.output_bias, "a bias for each token's logit");
  keys.identity("logit_cap", model.logit_cap, at_least(0), "logits z become cap * tanh(z / cap); 0: no cap");
  keys.identity("max_length", model.max_length, between(2, max_width),
                "maximum sentence length in tokens, including EOS");
  keys.identity("encoder_sublayers", model.encoder.sublayers, non_empty(),
                "sublayers of each encoder layer, by registered name");
  keys.identity("decoder_sublayers", model.decoder.sublayers, non_empty(),
                "sublayers of each decoder layer, by registered name");
  keys.identity("encoder_input", model.encoder.input, non_empty(), "input of the encoder, by registered name");
  keys.identity("decoder_input", model.decoder.input, non_empty(), "input of the decoder, by registered name");
  tree.tables.back().others = "an option of a sublayer, as in [model.decoder] self_attention = { KEY = VALUE }";
  tree.tables.back().inner_tables =
      "# Stacks may differ, and so may layers of a stack, counted from 1:\n"
      "#   [model.decoder]\n"
      "#   layers = 6                       the same key as decoder_layers; so are sublayers and input\n"
      "#   d_model = 256                    one for all its layers; stacks of different width share no table of "
      "tokens\n"
      "#   tied_layers = [1, 1, 2, 2]       for each layer the number of the one whose parameters it uses\n"
      "#   activation = \"gelu\"              d_ff, heads, biases, activation, the dropouts, norm_kind, norm_epsilon, "
      "recompute\n"
      "#   [model.decoder.layer.\"4-6\"]      one number or a range; ranges may not overlap\n"
      "#   self_attention = { head_dim = 64 }   options of a sublayer; `heddle kernels` lists them\n";
  for (StackKind const& kind : stack_kinds) {
    add_stack(tree, std::string(kind.name), model.*kind.config);
  }
}

void add_adapter(ConfigTree& tree, AdapterConfig& adapter) {
  Keys const keys = add_section(tree, "adapter", "low-rank adapters (LoRA) beside frozen weights", &adapter.places);
  keys.identity("rank", adapter.rank, between(0, max_width), "rank of each adapter; 0: there are none");
  keys.identity("alpha", adapter.alpha, above_zero(), "an adapter's output is multiplied by alpha / rank");
  keys.key("dropout", adapter.dropout, below_one(), "on an adapter's input");
  keys.identity("targets", adapter.targets, non_empty(),
                "patterns of the projections that have one, such as \"decoder.*.feed_forward.*\"");
  keys.free("save_base", adapter.save_base,
            "checkpoints have the frozen parameters, too; false: they refer to initialize_from");
}

void add_train(ConfigTree& tree, TrainConfig& train) {
  Keys const keys = add_section(tree, "train", "how the model is trained", &train.places);
  keys.key("steps", train.steps, between(1, max_steps), "optimizer updates");
  keys.key("epochs", train.epochs, at_least(0), "end after N passes over the data; 0: never");
  keys.key("batch_tokens", train.batch_tokens, between(1, max_tokens),
           "tokens in a global batch; each pair counts its longer side");
  keys.free("micro_batch_tokens", train.micro_batch_tokens, between(1, max_tokens),
            "tokens computed at once; default: at most batch_tokens");
  keys.key("precision", train.precision, "of activations; auto: bfloat16 where all ranks have it");
  keys.identity("frozen_precision", train.frozen_precision, "dtype of weights and tables that no step changes");
  keys.key("label_smoothing", train.label_smoothing, below_one(), "probability spread over the whole vocabulary");
  keys.key("r_drop", train.r_drop, at_least(0), "weight of R-Drop's divergence of two passes; 0: one pass");
  keys.key("teacher", train.teacher, one_or_several, "runs or checkpoints whose distributions the model learns, too");
  keys.key("teacher_weight", train.teacher_weight, between(0, 1), "their part of the loss; labels have the rest");
  keys.key("z_loss", train.z_loss, at_least(0), "adds z_loss * log²Z, Z the sum of exp(logits)");
  keys.key("task", train.task, any(), "registered name (see train.md); default: the task of model.stacks");
  keys.key("mask_rate", train.mask_rate, inside_zero_and_one(), "fraction of tokens that masking tasks mask");
  keys.key("noise", train.noise, "denoising with sentinels for spans as in T5, or one <mask> for each as in BART");
  keys.key("span_length", train.span_length, {.min = 1, .max = 100}, "mean tokens of a masked span in denoising");
  keys.identity("seed", train.seed, between(0, 9007199254740992.0), "seed of initial weights, batch order and dropout");
  keys.free("deterministic", train.deterministic, "bitwise the same on any number of data ranks");
  keys.free("validate_every", train.validate_every, at_least(0), "steps between validations; 0: never");
  keys.free("validate_at_start", train.validate_at_start, "validate before the first step, too; it is never the best");
  keys.free("validate_bleu", train.validate_bleu, "translate the validation set and report BLEU");
  keys.free("validate_metrics", train.validate_metrics, any(),
            "metrics: bleu, bleu_zh, bleu_char, chrf, chrf++, ter or a plug-in's; in place of validate_bleu");
  keys.free("validate_beam_size", train.validate_beam_size, at_least(1), "beam size of these translations; 1: greedy");
  keys.free("validate_command_seconds", train.validate_command_seconds, above_zero(),
            "end a program of [train.validate_command] after N seconds");
  keys.free("best_metric", train.best_metric, one_or_several,
            "loss, a metric, \"bleu/SET\" or mean; the first chooses the best checkpoint");
  keys.free("early_stopping", train.early_stopping, at_least(0),
            "stop after N validations without a better best_metric; 0: never");
  keys.free("early_stopping_on", train.early_stopping_on, "which metrics of best_metric are without a better value");
  keys.free("noise_scale", train.noise_scale, "write the gradients' noise scale, where ranks divide only the data");
  keys.free("log_every", train.log_every, at_least(1), "steps between lines of metrics.jsonl");
  keys.free("reserve_memory", train.reserve_memory,
            "allocate the planned memory before the first step, and refuse a run that does not fit");
  keys.free("initialize_from", train.initialize_from, any(),
            "a run, its checkpoints or one checkpoint, with whose parameters a new run starts");
  keys.free("initialize_missing", train.initialize_missing, any(),
            "patterns of parameters that may be missing there and then start new; * matches any text");
  keys.free("initialize_rename", train.initialize_rename, any(),
            "\"THERE -> HERE\": names of parameters, with one * or none on both sides; \"THERE ->\": not taken");
  keys.free("check_every_steps", train.check_every_steps, at_least(0), "steps between checks of replicas; 0: at saves");
  keys.free("hang_seconds", train.hang_seconds, at_least(0), "exit with 86 after N without progress; 0: never");
  add_metrics(tree, train);
}

void add_group(Keys const& keys, ParameterGroup& group) {
  keys.key("parameters", group.parameters, non_empty(), "patterns of parameter names; * matches any text");
  keys.key("learning_rate_factor", group.rule.learning_rate_factor, at_least(0),
           "factor of the schedule's learning rate");
  keys.key("weight_decay", group.rule.weight_decay, at_least(0), "their decay; default: optimizer.weight_decay");
  keys.key("frozen", group.rule.frozen, "not updated, and not part of the gradient's norm");
  keys.key("unfreeze_at", group.rule.frozen_until, between(0, max_steps),
           "frozen in the run's first N steps; step N + 1 is the first that trains them");
  keys.key("zero_last_row", group.rule.zero_last_row,
           "each update sets their last row to zero: the embedding that Marian's decoder starts from");
  keys.key("name", group.rule.name, any(), "update rule; \"\": optimizer.name");
}

/// Lets the table that was added with this path take the options of update rules, which are checked when the rules are
/// known. A name near another key's name is a misspelling.
void take_rule_options(ConfigTree& tree, std::string const& path, Settings& options) {
  ConfigTable& table = *std::ranges::find(tree.tables, path, &ConfigTable::path);
  std::vector<std::string> const names = names_of_keys(table.keys);
  auto const option = [&options](std::string const& name) {
    return key_of_settings(options, {.name = name, .type = Type::any}, ResumeRule::trajectory);
  };
  std::ranges::transform(std::views::keys(options), std::back_inserter(table.keys), option);
  table.others = "an option of the update rule or the schedule, which `heddle kernels` lists";
  table.other = [names, option](std::string const& name) {
    bool const misspelled = name.find('.') != std::string::npos || !nearest_spelling(name, names).empty();
    return misspelled ? std::nullopt : std::optional(option(name));
  };
}

void add_optimizer(ConfigTree& tree, OptimizerConfig& optimizer) {
  Keys const keys = add_section(tree, "optimizer", "how parameters are updated", &optimizer.places);
  keys.key("name", optimizer.name, non_empty(), "update rule; `heddle kernels` lists them and their options");
  keys.key("rest", optimizer.rest, any(), "beside a rule over matrices: that of all else; \"\": see optimizers.md");
  keys.key("learning_rate", optimizer.learning_rate, at_least(0), "the peak, at the end of the warm-up");
  keys.key("schedule", optimizer.schedule, non_empty(), "see `heddle kernels`: cosine, wsd, …");
  keys.key("warmup_steps", optimizer.warmup_steps, at_least(0), "steps of linear growth from 0");
  keys.key("rewarm_at", optimizer.rewarm_at, at_least(0), "after this step the rate grows from 0 again");
  keys.key("rewarm_steps", optimizer.rewarm_steps, at_least(0), "it grows in this many steps; 0: it does not");
  keys.key("plateau_validations", optimizer.plateau_validations, at_least(0),
           "lower the rate after N without improvement; 0: never");
  keys.key("plateau_factor", optimizer.plateau_factor, inside_zero_and_one(), "by this factor, on top of the schedule");
  keys.key("weight_decay", optimizer.weight_decay, at_least(0), "decay of the parameters towards 0");
  keys.key("clip_norm", optimizer.clip_norm, at_least(0), "clip gradients to this global norm; 0 disables clipping");
  keys.free("average", optimizer.average, "of the parameters, kept beside them");
  keys.free("average_decay", optimizer.average_decay, below_one(), "the average's share in its next value");
  keys.free("average_every", optimizer.average_every, at_least(1), "lawa: keep the values of each N-th step");
  keys.free("average_count", optimizer.average_count, between(2, max_averaged_values),
            "lawa: average the newest N of them");
  keys.key("layer_decay", optimizer.layer_decay, {.max = 1, .above_min = true},
           "the rate's factor from a layer to the one below");
  keys.key("base_width", optimizer.base_width, between(0, max_width),
           "the rate is that of this d_model; 0: of this model");
  add_named_tables(tree, "optimizer.group", optimizer.groups, {.name = "slow", .parameters = {"encoder.*"}},
                   "Per-group overrides of the optimizer; no parameter may be in two groups", add_group);
  take_rule_options(tree, "optimizer", optimizer.options);
  for (ParameterGroup& group : optimizer.groups) {
    take_rule_options(tree, "optimizer.group." + group.name, group.rule.options);
  }
}

void add_parallel(ConfigTree& tree, ParallelConfig& parallel) {
  Keys const keys =
      add_section(tree, "parallel", "the grid of ranks: pipeline x data x context x tensor", &parallel.places);
  keys.free("tensor", parallel.tensor, between(1, max_ranks), "ranks that split each layer's heads and columns");
  keys.free("pipeline", parallel.pipeline, between(1, max_ranks), "stages of layers");
  keys.free("context", parallel.context, between(1, max_ranks), "ranks that split each sequence's tokens");
  keys.free("data", parallel.data, OptionDescription{.min = 1, .max = max_ranks, .or_auto = true},
            "replicas; \"auto\": all other ranks");
  keys.free("sequence_parallel", parallel.sequence_parallel, "tensor ranks split the tokens between layers");
  keys.free("context_mode", parallel.context_mode, "how context ranks exchange keys and values");
  keys.free("pipeline_schedule", parallel.pipeline_schedule, "order of micro-batches in a stage");
  keys.free("zero_bubble", parallel.zero_bubble, "stages compute gradients of weights while they would wait");
  keys.free("stage_layers", parallel.stage_layers, between(1, 2 * max_layers), "layers of each stage; []: cut by cost");
  keys.free("shard_optimizer", parallel.shard_optimizer, "data ranks split the optimizer state (ZeRO-1)");
  keys.free("shard_parameters", parallel.shard_parameters,
            "data ranks split parameters and gradients, too, gathered layer by layer (ZeRO-3)");
  keys.free("shard_min_parameters", parallel.shard_min_parameters, at_least(1),
            "numbers of a rank's sublayer or table below which it stays whole");
  keys.free("shard_ranks", parallel.shard_ranks, between(0, max_ranks),
            "data ranks in a row that split parameters, others have copies (HSDP); 0: all of them");
  keys.free("encoder_tensor", parallel.encoder_tensor, between(0, max_ranks),
            "of context x tensor, ranks that split the encoder's heads, others its sequences; 0: tensor");
  keys.free("expert", parallel.expert, between(1, max_ranks), "data ranks in a row that split each mixture's experts");
  keys.free("checked", parallel.checked, "compare the ranks' calls before each collective; slow, for debugging");
}

void add_checkpoint(ConfigTree& tree, CheckpointConfig& checkpoint) {
  Keys const keys = add_section(tree, "checkpoint", "checkpoints in run.directory");
  keys.free("every_steps", checkpoint.every_steps, at_least(0),
            "steps between checkpoints; 0: only at the end and on SIGUSR1");
  keys.free("keep", checkpoint.keep, at_least(2), "newest checkpoints that are kept");
  keys.free("writers", checkpoint.writers, at_least(0), "ranks that write tensors; 0: one on each node");
  keys.free("async", checkpoint.async, "write while training continues, from a copy in memory_directory");
  keys.free("memory_every_steps", checkpoint.memory_every_steps, at_least(0),
            "steps between copies in memory_directory, for a restart; 0: none");
  keys.free("memory_directory", checkpoint.memory_directory, non_empty(), "a file system in memory, on each node");
}

ConfigKey key_of_operation(KernelChoices& kernels, std::string const& operation) {
  OptionDescription const description{
      .name = operation, .type = Type::string, .meaning = "implementation, or auto (fastest that supports the call)"};
  return {description, [&kernels, operation] { return kernels.of(operation); },
          [&kernels, operation](Setting const& setting) {
            kernels.choose(operation, std::get<std::string>(setting.value), setting.origin);
          }};
}

void add_extensions(ConfigTree& tree, Config& config) {
  tree.aliases["kernels.adam"] = "kernels.update";  // in the files of version 0.1 and before
  Keys const kernels =
      add_section(tree, "kernels", "which implementation computes an operation; `heddle kernels` lists them");
  ConfigTable& table = tree.tables.back();
  for (auto const& [operation, choice] : config.kernels.operations()) {
    table.keys.push_back(key_of_operation(config.kernels, operation));
  }
  // Plug-ins that are loaded later may add operations.
  table.other = [&](std::string const& name) { return key_of_operation(config.kernels, name); };
  kernels.free("cache", config.kernels.cache, any(), "file of times from `heddle kernels --benchmark`; \"\": none");
  Keys const plugins = add_section(tree, "plugins", "shared libraries with kernels and layers");
  plugins.key("paths", config.plugins.paths, any(), "loaded in this order before anything is built");
  plugins.free("sha256", config.plugins.sha256, any(), "digests that these files must have; \"\": any");
}

}  // namespace

std::vector<ConfigKey> layer_keys(ModelConfig& model, StackConfig& stack) {
  std::vector<ConfigKey> list;
  Keys const keys(list);
  keys.identity("d_model", model.d_model, between(1, max_width), "width of the residual stream");
  keys.identity("d_ff", model.d_ff, between(1, max_width), "inner width of the feed-forward sublayers");
  keys.identity("heads", model.heads, between(1, max_layers), "attention heads; a divisor of d_model, or set head_dim");
  keys.identity("biases", model.biases, "in the projections of attention and feed-forward sublayers");
  keys.identity("activation", model.activation, non_empty(), activation_help().c_str());
  keys.key("dropout", model.dropout, below_one(), "on embeddings and on each sublayer's output");
  keys.key("attention_dropout", model.attention_dropout, below_one(), "on attention weights");
  keys.key("activation_dropout", model.activation_dropout, below_one(), "inside the feed-forward sublayers");
  keys.identity("norm_kind", model.norm_kind, non_empty(),
                "kind of all norms: layer (LayerNorm), rms (RMSNorm, which has no bias), or a plug-in's");
  keys.identity("norm_epsilon", model.norm_epsilon, above_zero(),
                "added to the variance or mean square before the root");
  keys.free("recompute", model.recompute, "activations to recompute in the backward pass");
  keys.identity("sublayers", stack.sublayers, non_empty(), "by registered name");
  return list;
}

ConfigTree config_tree(Config& config) {
  ConfigTree tree;
  add_paths(tree, config);
  add_model(tree, config.model);
  add_adapter(tree, config.model.adapter);
  add_train(tree, config.train);
  add_optimizer(tree, config.optimizer);
  add_parallel(tree, config.parallel);
  add_checkpoint(tree, config.checkpoint);
  add_extensions(tree, config);
  return tree;
}

}  // namespace heddle
