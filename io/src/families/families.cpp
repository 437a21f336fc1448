#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <iterator>
#include <utility>

#include "families/family_tables.hpp"

namespace heddle {

namespace {

namespace json = boost::json;

std::string list_of_families() {
  std::string names;
  for (Family const& family : families()) {
    names.append(names.empty() ? "" : ", ").append(family.model_type);
  }
  return names;
}

/// Models that cannot be imported, by their model_type, and why.
constexpr auto impossible_models = std::to_array<std::array<std::string_view, 2>>(
    {{"albert", "its layers share their weights"},
     {"deberta", "its attention keeps positions apart from tokens"},
     {"deberta-v2", "its attention keeps positions apart from tokens"},
     {"deepseek_v2", "it is a mixture of experts"},
     {"deepseek_v3", "it is a mixture of experts"},
     {"electra", "it finds replaced tokens, and does not predict masked ones"},
     {"falcon", "its attention and feed-forward sublayers are parallel"},
     {"gemma3", "it reads images; the models of text alone (gemma3_text) can be imported"},
     {"gpt_bigcode", "its heads share keys and values that are joined to the queries"},
     {"gpt_neox", "its attention and feed-forward sublayers are parallel"},
     {"gptj", "its attention and feed-forward sublayers are parallel"},
     {"longt5", "its encoder attends within blocks"},
     {"modernbert", "its first layer has no norm before its attention"},
     {"nllb-moe",
      "its class in transformers 5.24 uses two of its experts only, so that an import could not be compared; the "
      "dense models of NLLB-200 can be imported"},
     {"phimoe", "it is a mixture of experts"},
     {"phi4_multimodal", "it reads images and sounds"},
     {"phi4mm", "it reads images and sounds"},
     {"phi3_v", "it reads images"},
     {"phi3small", "it attends to blocks of tokens"},
     {"phi", "its attention and feed-forward sublayers are parallel"},
     {"qwen2_moe", "it is a mixture of experts"},
     {"qwen3_moe", "it is a mixture of experts"},
     {"t5gemma2", "its decoder attends to its own tokens and the encoder's in one softmax"},
     {"t5gemma_2", "its decoder attends to its own tokens and the encoder's in one softmax"}});

}  // namespace

void add(TensorRules& rules, std::string const& theirs, std::string const& ours, TensorChange const& change) {
  rules.push_back({theirs + ".weight", ours + ".weight", change});
  rules.push_back({theirs + ".bias", ours + ".bias"});
}

void add_attention(TensorRules& rules, std::string const& theirs, std::string const& ours,
                   ProjectionNames const& names) {
  ProjectionNames const own{"q", "k", "v", "out"};
  for (std::size_t index = 0; index < own.size(); ++index) {
    add(rules, theirs + "." + names.at(index), ours + "." + own.at(index));
  }
}

KeyRule fixed(std::string theirs, std::string_view value) {
  return {std::move(theirs), "", value, {{value, ""}}};
}

std::vector<KeyRule::Value> plain_activations() {
  return {{"\"relu\"", "relu"},          {"\"gelu\"", "gelu"},
          {"\"gelu_new\"", "gelu_tanh"}, {"\"gelu_pytorch_tanh\"", "gelu_tanh"},
          {"\"silu\"", "silu"},          {"\"swish\"", "silu"}};
}

void set_own_key(json::object& config, std::string_view key, json::value value) {
  std::size_t const dot = key.find('.');
  json::value& own = config[key.substr(0, dot)];
  (own.is_object() ? own.get_object() : own.emplace_object())[key.substr(dot + 1)] = std::move(value);
}

std::int64_t layers_at(json::object const& config, char const* key, std::int64_t absent) {
  return std::min(integer_at(config, key, absent), max_foreign_layers);
}

void set_layer_types(json::object& config, std::int64_t usual_layers,
                     std::function<bool(std::int64_t layer)> const& has_window) {
  if (find_key(config, "layer_types") != nullptr) {
    return;
  }
  json::array types;
  for (std::int64_t layer = 0; layer < layers_at(config, "num_hidden_layers", usual_layers); ++layer) {
    types.emplace_back(has_window(layer) ? "sliding_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
}

std::span<Family const> families() {
  static std::vector<Family> const all = [] {
    std::vector<Family> joined = encoder_decoder_families();
    for (auto const& kind : {decoder_families, layer_norm_families, gemma_families, encoder_families}) {
      std::ranges::move(kind(), std::back_inserter(joined));
    }
    return joined;
  }();
  return all;
}

Family const& family_of(json::object const& config) {
  json::value const* const type = find_key(config, "model_type");
  if (type == nullptr || !type->is_string()) {
    throw DataError("config.json has no model_type; expected one of: " + list_of_families());
  }
  std::string_view const name = type->get_string();
  auto const found = std::ranges::find(families(), name, &Family::model_type);
  if (found == families().end()) {
    auto const* const known =
        std::ranges::find_if(impossible_models, [&](auto const& each) { return name == each[0]; });
    throw DataError(
        "config.json: models of the type {} cannot be imported{}", json::serialize(*type),
        known != impossible_models.end() ? fmt::format(": {}", (*known)[1]) : "; possible are: " + list_of_families());
  }
  if (json::value const* const quantized = find_key(config, "quantization_config")) {
    throw ConfigError(
        "config.json: quantization_config = {}: quantized weights cannot be imported; take the model that they were "
        "made of, or remove the key where the tensors are float32, bfloat16 or float16 themselves",
        json::serialize(*quantized).substr(0, 200));
  }
  return *found;
}

Family const& family_named(std::string const& model_type) {
  auto const found = std::ranges::find(families(), model_type, &Family::model_type);
  if (found == families().end()) {
    throw UsageError("there is no family \"{}\"; expected one of: {}", model_type, list_of_families());
  }
  return *found;
}

}  // namespace heddle
