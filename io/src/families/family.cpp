#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/split.hpp>
#include <boost/json.hpp>
#include <cctype>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/io/families/family.hpp>
#include <map>
#include <optional>
#include <ranges>
#include <set>

#include "families/family_tables.hpp"

namespace heddle {

namespace {

namespace json = boost::json;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  boost::split(parts, text, [=](char letter) { return letter == separator; });
  return parts;
}

bool equal(json::value const& one, json::value const& other) {
  return one.is_number() && other.is_number() ? one.to_number<double>() == other.to_number<double>() : one == other;
}

/// TOML text of a JSON value.
std::string toml_of(json::value const& value) {
  if (value.is_double()) {
    std::string const text = fmt::format("{}", value.get_double());
    return text.find_first_of(".e") == text.npos ? text + ".0" : text;
  }
  return json::serialize(value);
}

/// TOML text without the quotes of a string, which `--set` does not need.
std::string plain(std::string_view text) {
  bool const quoted = text.size() > 1 && text.front() == '"' && text.back() == '"';
  return std::string(quoted ? text.substr(1, text.size() - 2) : text);
}

/// Whether the key is there, with null.
bool is_null(json::object const& config, std::string_view path) {
  std::size_t const dot = path.find('.');
  json::value const* const found = config.if_contains(path.substr(0, dot));
  if (found == nullptr || dot == path.npos) {
    return found != nullptr && found->is_null();
  }
  return found->is_object() && is_null(found->get_object(), path.substr(dot + 1));
}

/// The value of a rule's key, or the one that stands for it; nothing if ours is then not set.
std::optional<json::value> value_of(KeyRule const& rule, Family const& family, json::object const& config) {
  for (std::string_view const name : split(rule.theirs, '|')) {
    if (json::value const* const found = find_key(config, name)) {
      return *found;
    }
    if (rule.null_is_zero && is_null(config, name)) {
      return std::nullopt;
    }
  }
  if (rule.absent.starts_with('@')) {
    std::string_view const other = rule.absent.substr(1);
    auto const source = std::ranges::find(family.keys, other, &KeyRule::theirs);
    return source == family.keys.end() ? std::nullopt : value_of(*source, family, config);
  }
  return rule.absent.empty() ? std::nullopt : std::optional(json::parse(rule.absent));
}

/// Converts a value of config.json to ours, as TOML text.
std::string translated(KeyRule const& rule, Family const& family, json::value const& value) {
  if (rule.values.empty()) {
    if (rule.surplus != 0 && value.is_int64() && value.get_int64() >= 0) {
      return std::to_string(value.get_int64() - rule.surplus);
    }
    return toml_of(value);
  }
  std::vector<std::string_view> accepted;
  for (KeyRule::Value const& known : rule.values) {
    if (equal(json::parse(known.theirs), value)) {
      return std::string(known.ours);
    }
    accepted.push_back(known.theirs);
  }
  throw ConfigError("{}: {} = {} cannot be imported; possible is {}", family.source, split(rule.theirs, '|').front(),
                    json::serialize(value), fmt::join(accepted, ", "));
}

/// The settings that rules gave so far, by our key, each with its rule.
using GivenSettings = std::map<std::string_view, std::pair<KeyRule const*, std::string>>;

/// Adds the setting that a rule gives. Throws ConfigError for a value that cannot be imported, and where another rule
/// gives our key another value.
void add_setting(KeyRule const& rule, Family const& family, json::object const& config, GivenSettings& given,
                 std::vector<std::string>& settings) {
  auto const value = rule.only_written ? std::nullopt : value_of(rule, family, config);
  std::string const ours = value ? translated(rule, family, *value) : "";
  if (rule.ours.empty() || ours.empty()) {
    return;
  }
  auto const [before, is_new] = given.try_emplace(rule.ours, &rule, ours);
  if (is_new) {
    settings.push_back(fmt::format("{}={}", rule.ours, ours));
  } else if (before->second.second != ours) {
    throw ConfigError("{}: {} = {} and {} = {} disagree: both map to {}", family.source,
                      split(before->second.first->theirs, '|').front(), before->second.second,
                      split(rule.theirs, '|').front(), ours, rule.ours);
  }
}

LayerOptions attention_options(ModelConfig const& model, WindowRule const& rule, std::int64_t layer) {
  std::string const stack(rule.stack);
  return layer_options(model.*stack_kind(stack).config, stack, layer, "self_attention");
}

/// The window of a layer; nothing if it has none.
std::optional<std::int64_t> window_of(ModelConfig const& model, WindowRule const& rule, std::int64_t layer) {
  LayerOptions const options = attention_options(model, rule, layer);
  return options.has("window") ? std::optional(options.integer("window", 0)) : std::nullopt;
}

/// The base of the rotations of layers with a window.
double local_base(WindowRule const& rule, json::object const& config) {
  for (std::string_view const name : split(rule.rotary_base, '|')) {
    if (json::value const* const found = find_key(config, name); found != nullptr && found->is_number()) {
      return found->to_number<double>();
    }
  }
  return ModelConfig().rotary_base;
}

/// Adds the settings of the layers that have a window.
void add_windows(WindowRule const& rule, json::object const& config, std::vector<std::string>& settings) {
  json::value const* const types = find_key(config, rule.types);
  json::value const* const window = find_key(config, rule.window);
  for (std::size_t layer = 0; types != nullptr && types->is_array() && layer < types->get_array().size(); ++layer) {
    json::value const& type = types->get_array()[layer];
    bool const local = type == "sliding_attention";
    if ((!local && type != "full_attention") || (local && (window == nullptr || !window->is_int64()))) {
      throw ConfigError(
          "config.json: {} has {}, {} = {}; possible is \"full_attention\", or \"sliding_attention\" with a number",
          rule.types, json::serialize(type), rule.window, window == nullptr ? "null" : json::serialize(*window));
    }
    if (local) {
      std::string const attention = fmt::format("model.{}.layer.{}.self_attention.", rule.stack, layer + 1);
      settings.push_back(fmt::format("{}window={}", attention, window->get_int64() - rule.surplus));
      if (!rule.rotary_base.empty()) {
        settings.push_back(fmt::format("{}rotary_base={}", attention, local_base(rule, config)));
      }
    }
  }
}

/// The layers of a stack of that many that have a mixture of experts.
std::vector<bool> mixture_layers(std::int64_t layers, std::int64_t count) {
  std::int64_t const distance = layers / std::max<std::int64_t>(count, 1);
  std::vector<bool> have;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    have.push_back(distance == 1 || (distance > 1 && layer % distance == 1));
  }
  return have;
}

constexpr char const* mixture = "mixture_of_experts";

/// Adds the sublayers of the layers that have a mixture.
void add_mixtures(MixtureRule const& rule, Family const& family, json::object const& config,
                  std::vector<std::string>& settings) {
  auto const layers = std::ranges::find(family.keys, fmt::format("model.{}_layers", rule.stack), &KeyRule::ours);
  auto const number = layers == family.keys.end() ? std::nullopt : value_of(*layers, family, config);
  std::int64_t const total = number && number->is_int64() ? number->get_int64() : 0;
  if (total > max_foreign_layers) {
    throw ConfigError("config.json: {} = {} cannot be imported; possible are at most {}", layers->theirs, total,
                      max_foreign_layers);
  }
  std::vector<bool> const have = mixture_layers(total, integer_at(config, rule.count, rule.absent));
  std::vector<std::string> sublayers = (ModelConfig().*stack_kind(rule.stack).config).sublayers;
  sublayers.back() = mixture;
  for (std::size_t layer = 0; layer < have.size(); ++layer) {
    if (have[layer]) {
      settings.push_back(
          fmt::format("model.{}.layer.{}.sublayers=[\"{}\"]", rule.stack, layer + 1, fmt::join(sublayers, "\", \"")));
    }
  }
}

/// The value of a key, which is made if it is missing: "a.b" is b in the object a.
json::value& made_key(json::object& config, std::string_view path) {
  std::size_t const dot = path.find('.');
  json::value& value = config[path.substr(0, dot)];
  if (dot == path.npos) {
    return value;
  }
  return made_key(value.is_object() ? value.get_object() : value.emplace_object(), path.substr(dot + 1));
}

/// Writes the layers that have a window. Throws ConfigError where their windows differ.
void write_windows(WindowRule const& rule, ModelConfig const& model, json::object& config) {
  json::array types;
  std::optional<std::int64_t> all;
  for (std::int64_t layer = 0; layer < (model.*stack_kind(rule.stack).config).layers; ++layer) {
    auto const window = window_of(model, rule, layer);
    if (window && all && *window != *all) {
      throw ConfigError(
          "model.{}.layer.{}.self_attention.window = {}: an earlier layer has {}, and {} is "
          "one number",
          rule.stack, layer + 1, *window, *all, rule.window);
    }
    if (window && !rule.rotary_base.empty()) {
      double const base = attention_options(model, rule, layer).number("rotary_base", model.rotary_base);
      made_key(config, split(rule.rotary_base, '|').back()) = base;
    }
    all = window ? window : all;
    types.emplace_back(window ? "sliding_attention" : "full_attention");
  }
  made_key(config, rule.types) = std::move(types);
  if (all) {
    made_key(config, rule.window) = *all + rule.surplus;
  }
}

/// Writes the number of layers that have a mixture. Throws ConfigError where no number gives these layers.
void write_mixtures(MixtureRule const& rule, ModelConfig const& model, json::object& config) {
  StackMember const stack = stack_kind(rule.stack).config;
  std::vector<bool> have;
  for (std::int64_t layer = 0; layer < (model.*stack).layers; ++layer) {
    have.push_back((layer_config(model, stack, layer).*stack).sublayers.back() == mixture);
  }
  for (std::int64_t count = 1; count <= std::ssize(have) + 1; ++count) {  // the last one gives none
    if (mixture_layers(std::ssize(have), count) == have) {
      made_key(config, rule.count) = count;
      return;
    }
  }
  throw ConfigError("model.{}.layer: {} layers have mixtures of experts, which no {} gives", rule.stack,
                    std::ranges::count(have, true), rule.count);
}

/// Our value of a key: of its stack, else of [model]; nothing for an option that is not set.
std::optional<std::string> our_value(std::map<std::string, std::string> const& values, std::string const& key) {
  if (auto const found = values.find(key); found != values.end()) {
    return plain(found->second);
  }
  for (StackKind const& kind : stack_kinds) {
    std::string const table = fmt::format("model.{}.", kind.name);
    if (key.starts_with(table) && key.find('.', table.size()) == key.npos) {
      return our_value(values, "model." + key.substr(table.size()));
    }
  }
  return std::nullopt;
}

/// The values of our keys, with those that stand for options which are not set.
struct OurValues {
  Family const& family;
  ModelConfig const& model;
  std::map<std::string, std::string> given;

  OurValues(Family const& of, Config const& config) : family(of), model(config.model), given(key_values(config)) {}
  /// The value of a key, as the other our_value finds it; nothing if no value stands for it.
  std::optional<std::string> of(std::string const& key) const;
};

std::optional<std::string> OurValues::of(std::string const& key) const {
  auto value = our_value(given, key);
  if (!value) {
    auto const rule =
        std::ranges::find_if(family.keys, [&](KeyRule const& each) { return each.ours == key && each.unset; });
    auto const* const stack = std::ranges::find_if(
        stack_kinds, [&](StackKind const& kind) { return key.starts_with(fmt::format("model.{}.", kind.name)); });
    if (rule != family.keys.end()) {
      value = rule->unset(stack == stack_kinds.end() ? model : layer_config(model, stack->config, -1));
    }
  }
  return value;
}

/// Lines about the keys of ours that stand in the way of an export, by key.
using Obstacles = std::map<std::string, std::string>;

void add_obstacle(Obstacles& obstacles, Family const& family, std::string_view key,
                  std::optional<std::string> const& ours, std::string const& possible) {
  obstacles.try_emplace(std::string(key), fmt::format("{} = {}: a model of the family {} has {}", key,
                                                      ours.value_or("(not set)"), family.model_type, possible));
}

/// The value that an export writes; nothing if it leaves the key out, also for one that theirs cannot have.
std::optional<json::value> their_value(KeyRule const& rule, Family const& family, OurValues const& values,
                                       Obstacles& obstacles) {
  if (rule.ours.empty()) {
    return json::parse(rule.values.front().theirs);
  }
  auto const ours = values.of(std::string(rule.ours));
  if (rule.null_is_zero && (!ours || equal(json::parse(*ours), 0))) {
    return json::value(nullptr);
  }
  auto const known =
      std::ranges::find_if(rule.values, [&](auto const& value) { return plain(value.ours) == ours.value_or(""); });
  if (known != rule.values.end()) {
    return json::parse(known->theirs);
  }
  if (!ours) {
    return std::nullopt;
  }
  if (!rule.values.empty()) {
    std::vector<std::string> possible;
    for (KeyRule::Value const& value : rule.values) {
      std::string const text = value.ours.empty() ? "(not set)" : plain(value.ours);
      if (std::ranges::find(possible, text) == possible.end()) {
        possible.push_back(text);
      }
    }
    add_obstacle(obstacles, family, rule.ours, ours, fmt::format("{}", fmt::join(possible, " or ")));
    return std::nullopt;
  }
  return rule.surplus != 0 ? json::value(std::stoll(*ours) + rule.surplus) : json::parse(*ours);
}

/// The longest texts of an import whose positions are not a table: a model for more would have sequences and
/// micro-batches of as many tokens, which no training and few machines have room for.
constexpr std::int64_t longest_imported = 8192;

/// Whether the angles of positions are computed, and do not follow from the length.
bool has_any_length(std::vector<std::string> const& settings) {
  auto const given = [&](std::string_view start) {
    return std::ranges::any_of(settings, [&](std::string const& each) { return each.starts_with(start); });
  };
  return given("model.positions=rotary") && (given("model.rotary_original_length=") ||
                                             !given("model.rotary_scaling=") || given("model.rotary_scaling=none"));
}

/// A configuration's micro-batch must have room for the longest sequence, of `length` tokens as TOML text.
void add_room(std::string const& length, std::vector<std::string>& settings) {
  std::int64_t tokens = parse_number<std::int64_t>(length).value_or(0);
  if (tokens > longest_imported && has_any_length(settings)) {
    tokens = longest_imported;
    settings.push_back(fmt::format("model.max_length={}", tokens));
  }
  if (tokens > TrainConfig().micro_batch_tokens) {
    for (char const* const key : {"train.batch_tokens", "train.micro_batch_tokens"}) {
      settings.push_back(fmt::format("{}={}", key, tokens));
    }
  }
}

/// Keys that change neither the parameters nor what they compute.
bool is_free(std::string const& key) {
  return is_for_training_only(key) || key == "model.recompute" || key == "model.max_length" ||
         !key.starts_with("model.");
}

/// Adds the keys of ours that the config.json made of them does not give back.
void add_unexpressed(Family const& family, Config const& config, json::object const& made, Obstacles& obstacles) {
  Config const again = parse_config("", "config.json", settings_of(family, made));
  OurValues const before(family, config);
  OurValues const after(family, again);
  std::set<std::string> keys;
  for (OurValues const* const each : {&before, &after}) {
    for (auto const& [key, value] : each->given) {
      keys.insert(key);
    }
  }
  std::vector<std::string> stacks;  // of both: what the family's models lack is not in their way key by key
  std::ranges::copy_if(config.model.stacks, std::back_inserter(stacks), [&](std::string const& stack) {
    return std::ranges::find(again.model.stacks, stack) != again.model.stacks.end();
  });
  auto const is_used = [&](std::string const& key) {
    // A key of one of these stacks, or of [model] unless all of them have their own.
    std::string const name = key.substr(key.find('.') + 1);
    bool const of_stack = std::ranges::any_of(
        stack_kinds, [&](StackKind const& kind) { return name.starts_with(kind.name) && name != kind.name; });
    return of_stack ? std::ranges::any_of(stacks, [&](auto const& stack) { return name.starts_with(stack); })
                    : stacks.empty() || !std::ranges::all_of(stacks, [&](auto const& stack) {
                        return keys.contains(fmt::format("model.{}.{}", stack, name));
                      });
  };
  auto const is_window = [&](std::string const& key) {  // write_windows has written it, or thrown
    return key.ends_with(".self_attention.window") && std::ranges::any_of(family.windows, [&](WindowRule const& rule) {
             return key.starts_with(fmt::format("model.{}.", rule.stack));
           });
  };
  auto const is_mixture = [&](std::string const& key) {  // so has write_mixtures
    return key.ends_with(".sublayers") && std::ranges::any_of(family.mixtures, [&](MixtureRule const& rule) {
             return key.starts_with(fmt::format("model.{}.layer.", rule.stack));
           });
  };
  for (std::string const& key : keys) {
    auto const wanted = before.of(key);
    auto const possible = after.of(key);
    if (!is_free(key) && !is_window(key) && !is_mixture(key) && is_used(key) && wanted != possible) {
      add_obstacle(obstacles, family, key, wanted, possible.value_or("no such key"));
    }
  }
}

/// The config.json of our model, and what stands in its way.
json::object express(Family const& family, Config const& config, Obstacles& obstacles) {
  json::object made{{"architectures", json::array{json::string(family.architecture)}},
                    {"model_type", json::string(family.model_type)},
                    {"torch_dtype", "float32"}};
  OurValues const values(family, config);
  for (KeyRule const& rule : family.keys) {
    std::string_view const name = split(rule.theirs, '|').front();
    bool const written =
        rule.written != nullptr ? rule.written(config.model) : !rule.ours.empty() || name.find('.') == name.npos;
    if (written && find_key(made, name) == nullptr) {
      if (auto value = their_value(rule, family, values, obstacles)) {
        made_key(made, name) = std::move(*value);
      }
    }
  }
  auto const take = [&](auto const& step) {
    try {
      step();
    } catch (ConfigError const& error) {  // which begins with a key
      obstacles.try_emplace(error.what(), error.what());
    }
  };
  for (WindowRule const& rule : family.windows) {
    take([&] { write_windows(rule, config.model, made); });
  }
  for (MixtureRule const& rule : family.mixtures) {
    take([&] { write_mixtures(rule, config.model, made); });
  }
  take([&] { add_unexpressed(family, config, made, obstacles); });
  return made;
}

/// The number of a layer in a name that a pattern with at most one "{}" matches; "" without a layer.
std::optional<std::string> layer_in(std::string_view pattern, std::string const& name) {
  std::size_t const hole = pattern.find("{}");
  if (hole == pattern.npos) {
    return pattern == name ? std::optional(std::string()) : std::nullopt;
  }
  std::string_view const end = pattern.substr(hole + 2);
  if (name.size() <= hole + end.size() || !name.starts_with(pattern.substr(0, hole)) || !name.ends_with(end)) {
    return std::nullopt;
  }
  std::string const number = name.substr(hole, name.size() - hole - end.size());
  bool const digits = std::ranges::all_of(number, [](unsigned char letter) { return std::isdigit(letter) != 0; });
  return digits ? std::optional(number) : std::nullopt;
}

}  // namespace

json::value const* find_key(json::object const& config, std::string_view path) {
  std::size_t const dot = path.find('.');
  json::value const* const found = config.if_contains(path.substr(0, dot));
  if (found == nullptr || found->is_null()) {
    return nullptr;
  }
  if (dot == path.npos) {
    return found;
  }
  return found->is_object() ? find_key(found->get_object(), path.substr(dot + 1)) : nullptr;
}

std::string text_at(json::object const& config, std::string_view path) {
  json::value const* const found = find_key(config, path);
  return found != nullptr && found->is_string() ? json::value_to<std::string>(*found) : "";
}

bool flag_at(json::object const& config, std::string_view path, bool absent) {
  json::value const* const found = find_key(config, path);
  return found != nullptr && found->is_bool() ? found->get_bool() : absent;
}

std::int64_t integer_at(json::object const& config, std::string_view path, std::int64_t absent) {
  json::value const* const found = find_key(config, path);
  return found != nullptr && found->is_int64() ? found->get_int64() : absent;
}

std::vector<std::string> settings_of(Family const& family, json::object const& config) {
  std::vector<std::string> settings(family.settings.begin(), family.settings.end());
  std::vector<std::string> problems;
  auto const take = [&](auto const& step) {
    try {
      step();
    } catch (ConfigError const& error) {
      problems.emplace_back(error.what());
    }
  };
  GivenSettings given;
  for (KeyRule const& rule : family.keys) {
    take([&] { add_setting(rule, family, config, given, settings); });
  }
  for (WindowRule const& rule : family.windows) {
    take([&] { add_windows(rule, config, settings); });
  }
  for (MixtureRule const& rule : family.mixtures) {
    take([&] { add_mixtures(rule, family, config, settings); });
  }
  if (!problems.empty()) {
    throw ConfigError("{}", fmt::join(problems, "\n  "));
  }
  if (auto const length = given.find("model.max_length"); length != given.end()) {
    add_room(length->second.second, settings);
  }
  return settings;
}

void restore_keys(Family const& family, json::object const& theirs, json::object& made) {
  for (KeyRule const& rule : family.keys) {
    std::string_view const name = split(rule.theirs, '|').front();
    json::value const* const before = find_key(theirs, name);
    json::value const* const now = before != nullptr && before->is_number() ? find_key(made, name) : nullptr;
    bool const is_length = rule.ours == "model.max_length" && now != nullptr && *now == longest_imported;
    if ((is_length && before->to_number<std::int64_t>() > longest_imported) ||
        (now != nullptr && name.ends_with("query_pre_attn_scalar"))) {
      made_key(made, name) = *before;
    }
  }
}

std::vector<std::string> obstacles_of(Family const& family, Config const& config) {
  Obstacles obstacles;
  express(family, config, obstacles);
  return {std::views::values(obstacles).begin(), std::views::values(obstacles).end()};
}

json::object config_json(Family const& family, Config const& config) {
  Obstacles obstacles;
  json::object made = express(family, config, obstacles);
  if (!obstacles.empty()) {
    throw ConfigError("{}", fmt::join(std::views::values(obstacles), "\n  "));
  }
  made.erase("heddle");
  return made;
}

TensorOrigin origin_of(Family const& family, ModelConfig const& model, std::string const& parameter) {
  for (TensorRule const& rule : family.tensors) {
    auto const layer = layer_in(rule.ours, parameter);
    if (!layer || (rule.where != nullptr && !rule.where(model))) {
      continue;
    }
    std::vector<std::string> names;
    for (std::string_view const theirs : split(rule.theirs, '|')) {
      std::string& name = names.emplace_back(theirs);
      if (std::size_t const hole = name.find("{}"); hole != name.npos) {
        name.replace(hole, 2, std::to_string(std::stoll(*layer) + family.first_layer));
      }
    }
    return {names.front(), rule.change, {names.begin() + 1, names.end()}, rule.twice};
  }
  throw DataError("models of the family {} have no tensor for the parameter {}", family.model_type, parameter);
}

std::optional<ExpertTensor> expert_tensor(Family const& family, std::string const& tensor) {
  auto const is_digit = [](unsigned char letter) { return std::isdigit(letter) != 0; };
  for (auto begin = std::ranges::find_if(tensor, is_digit); begin != tensor.end();) {
    auto const end = std::find_if_not(begin, tensor.end(), is_digit);
    auto const number = parse_number<std::int64_t>(std::string(begin, end));
    std::string const joined = std::string(tensor.begin(), begin) + "[]" + std::string(end, tensor.end());
    bool const known = std::ranges::any_of(
        family.tensors, [&](TensorRule const& rule) { return layer_in(rule.theirs, joined).has_value(); });
    if (known && number) {
      return ExpertTensor{joined, *number};
    }
    begin = std::find_if(end, tensor.end(), is_digit);
  }
  return std::nullopt;
}

bool is_ignored(Family const& family, std::string const& tensor) {
  return std::ranges::any_of(family.ignored,
                             [&](std::string_view pattern) { return matches_pattern(pattern, tensor); });
}

}  // namespace heddle
