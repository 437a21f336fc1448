#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <iterator>
#include <string>

#include "families/family_tables.hpp"

// Gemma (Gemma Team 2024), Gemma 2 (Gemma Team 2024), Gemma 3 (Gemma Team 2025) and T5Gemma (Zhang et al. 2025).

namespace heddle {

namespace {

namespace json = boost::json;
using Rules = TensorRules;

/// Gemma's norms multiply by 1 + weight.
constexpr TensorChange gemma_norm{.added = 1};

/// The first Gemma's files say "gelu" where they mean its approximation.
std::vector<KeyRule::Value> activations(bool first = false) {
  return {{"\"gelu_pytorch_tanh\"", "geglu_tanh"},
          {"\"gelu_new\"", "geglu_tanh"},
          {"\"gelu\"", first ? "geglu_tanh" : "geglu"},
          {"\"silu\"", "swiglu"},
          {"\"relu\"", "reglu"}};
}

/// The factor of a stack's queries: Gemma divides scores by the root of query_pre_attn_scalar, Heddle by the root of
/// head_dim.
double scale_of_queries(json::object const& config, std::string const& stack) {
  auto const number = [&](std::string const& key) {
    json::value const* const found = find_key(config, stack + key);
    if (found != nullptr && (!found->is_number() || found->to_number<double>() <= 0)) {
      throw ConfigError("config.json: {}{} = {}: expected a number above 0", stack, key, json::serialize(*found));
    }
    return found == nullptr ? 256 : found->to_number<double>();
  };
  return std::sqrt(number("head_dim") / number("query_pre_attn_scalar"));
}

/// A sublayer's norms, before and after it.
void add_sandwich(Rules& rules, std::string const& theirs, std::string const& ours, std::string const& before,
                  std::string const& after) {
  add(rules, theirs + before, ours + ".norm", gemma_norm);
  add(rules, theirs + after, ours + ".output_norm", gemma_norm);
}

void add_scaled_attention(Rules& rules, std::string const& theirs, std::string const& ours,
                          double (*scale)(json::object const& config)) {
  rules.push_back({theirs + ".q_proj.weight", ours + ".q.weight", {.scale = scale}});
  add_attention(rules, theirs, ours, {"q_proj", "k_proj", "v_proj", "o_proj"});
}

/// The windows of every other layer, from the first on, unless the list is there.
void complete_layer_types(json::object& config) {
  set_layer_types(config, 26, [](std::int64_t layer) { return layer % 2 == 0; });
  config.emplace("sliding_window", 4096);
}

/// Gemma (1), Gemma 2 and 3.
Rules tensors_of_gemma(int version) {
  Rules rules;
  add_tables(rules, causal_tables, "decoder");
  std::string const theirs = "model.layers.{}.";
  std::string const ours = "decoder.layers.{}.";
  if (version == 3) {  // the norm of the queries has their scale
    auto const scale = [](json::object const& config) { return scale_of_queries(config, ""); };
    add(rules, theirs + "self_attn.q_norm", ours + "self_attention.q_norm", {.added = 1, .scale = scale});
    add(rules, theirs + "self_attn.k_norm", ours + "self_attention.k_norm", gemma_norm);
    add_attention(rules, theirs + "self_attn", ours + "self_attention", {"q_proj", "k_proj", "v_proj", "o_proj"});
  }
  if (version == 2) {
    add_scaled_attention(rules, theirs + "self_attn", ours + "self_attention",
                         [](json::object const& config) { return scale_of_queries(config, ""); });
  }
  if (version > 1) {
    add_sandwich(rules, theirs, ours + "self_attention", "input_layernorm", "post_attention_layernorm");
    add_sandwich(rules, theirs, ours + "feed_forward", "pre_feedforward_layernorm", "post_feedforward_layernorm");
  } else {
    add_attention(rules, theirs + "self_attn", ours + "self_attention", {"q_proj", "k_proj", "v_proj", "o_proj"});
    add(rules, theirs + "input_layernorm", ours + "self_attention.norm", gemma_norm);
    add(rules, theirs + "post_attention_layernorm", ours + "feed_forward.norm", gemma_norm);
  }
  add_gated_feed_forward(rules, theirs + "mlp", ours + "feed_forward");
  add(rules, "model.norm", "decoder.norm", gemma_norm);
  return rules;
}

Family gemma(std::string_view model_type, std::string_view architecture) {
  bool const second = model_type == "gemma2";
  Family family{
      .model_type = model_type,
      .architecture = architecture,
      .settings = {"model.stacks=[\"decoder\"]", second ? "model.norm=both" : "model.norm=pre", "model.norm_kind=rms",
                   "model.positions=rotary", "model.position_layout=halves", "model.biases=false",
                   "model.scale_embedding=true", "model.dropout=0.0"},
      .keys = {{"hidden_size", "model.d_model", second ? "2304" : "3072"},
               {"intermediate_size", "model.d_ff", second ? "9216" : "24576"},
               {"num_hidden_layers", "model.decoder_layers", second ? "26" : "28"},
               {"num_attention_heads", "model.heads", second ? "8" : "16"},
               {"num_key_value_heads", "model.decoder.self_attention.kv_heads", second ? "4" : "16", {}, 0, all_heads},
               {"head_dim", "model.decoder.self_attention.head_dim", "256", {}, 0, columns_of_head},
               {"rms_norm_eps", "model.norm_epsilon", "1e-6"},
               {"attention_bias", "model.decoder.self_attention.biases", "false", {{"false", ""}, {"true", "\"all\""}}},
               {"attention_dropout", "model.attention_dropout", "0.0"},
               {"max_position_embeddings", "model.max_length", "8192"},
               {"tie_word_embeddings", "model.tie_embeddings", "true"},
               {second ? "hidden_activation" : "hidden_act", "model.activation", "\"gelu_pytorch_tanh\"",
                activations(!second)}},
      .tensors = tensors_of_gemma(second ? 2 : 1),
      .ignored = {"*.rotary_emb.inv_freq"},
      .tables = causal_tables};
  std::ranges::move(rotary_keys(), std::back_inserter(family.keys));
  family.keys.push_back(fixed("use_bidirectional_attention", "false"));
  if (!second) {  // earlier versions of transformers read this key first
    family.keys.push_back({"hidden_activation", "model.activation", "", activations(true)});
  }
  if (second) {
    // An export's queries have the usual scale.
    family.keys.push_back({.theirs = "query_pre_attn_scalar",
                           .ours = "model.decoder.self_attention.head_dim",
                           .unset = columns_of_head,
                           .only_written = true});
    family.keys.push_back({.theirs = "attn_logit_softcapping",
                           .ours = "model.decoder.self_attention.soft_cap",
                           .absent = "50.0",
                           .null_is_zero = true});
    family.keys.push_back(
        {.theirs = "final_logit_softcapping", .ours = "model.logit_cap", .absent = "30.0", .null_is_zero = true});
    family.windows = {{"decoder", "layer_types", "sliding_window", 1}};
    family.complete = [](json::object& config, ForeignTensors const&) { complete_layer_types(config); };
  }
  return family;
}

/// Every sixth layer of Gemma 3 has no window, unless the list is there.
void complete_gemma3(json::object& config, ForeignTensors const& /*tensors*/) {
  std::int64_t const pattern = std::max<std::int64_t>(layers_at(config, "sliding_window_pattern", 6), 1);
  set_layer_types(config, 26, [=](std::int64_t layer) { return (layer + 1) % pattern != 0; });
  config.emplace("sliding_window", 4096);
}

/// The texts' part of Gemma 3 (Gemma Team 2025): Gemma 2 with norms of queries and keys in place of caps, whose layers
/// with a window have rotations of their own.
Family gemma3() {
  Family family = gemma("gemma2", "Gemma3ForCausalLM");
  family.model_type = "gemma3_text";
  family.settings.emplace_back("model.decoder.self_attention.query_key_norm=true");
  family.tensors = tensors_of_gemma(3);
  family.complete = complete_gemma3;
  family.windows.front().rotary_base = "rope_parameters.sliding_attention.rope_theta|rope_local_base_freq";
  std::erase_if(family.keys, [](KeyRule const& rule) {
    return rule.theirs.find("rope_") != rule.theirs.npos || rule.theirs == "attn_logit_softcapping" ||
           rule.theirs == "final_logit_softcapping" || rule.theirs == "max_position_embeddings";
  });
  std::vector<KeyRule> const own{
      {"max_position_embeddings", "model.max_length", "131072"},
      fixed("attn_logit_softcapping", "null"),
      {.theirs = "final_logit_softcapping", .ours = "model.logit_cap", .null_is_zero = true},
      {.theirs = "rope_parameters.full_attention.rope_theta|rope_theta",
       .ours = "model.rotary_base",
       .absent = "1000000.0",
       .written = never},
      {.theirs = "rope_theta", .ours = "model.rotary_base", .only_written = true},
      fixed("rope_parameters.sliding_attention.rope_type", "\"default\""),
      {.theirs = "rope_scaling.rope_type|rope_scaling.type|rope_parameters.full_attention.rope_type",
       .ours = "model.rotary_scaling",
       .absent = "\"default\"",
       .values = {{"\"default\"", "none"}, {"\"linear\"", "linear"}},
       .written = is_scaled},
      {.theirs = "rope_scaling.factor|rope_parameters.full_attention.factor",
       .ours = "model.rotary_factor",
       .written = is_scaled}};
  family.keys.insert(family.keys.end(), own.begin(), own.end());
  return family;
}

Rules tensors_of_t5gemma() {
  Rules rules{{"model.encoder.embed_tokens.weight", "encoder.embedding.weight"},
              {"model.decoder.embed_tokens.weight|lm_head.out_proj.weight", "decoder.embedding.weight", {}, tied},
              {"model.decoder.embed_tokens.weight", "decoder.embedding.weight", {}, untied},
              {"lm_head.out_proj.weight", "output.weight"}};
  for (std::string const stack : {"encoder", "decoder"}) {
    std::string const theirs = "model." + stack + ".layers.{}.";
    std::string const ours = stack + ".layers.{}.";
    auto const scale = stack == "encoder"
                           ? +[](json::object const& config) { return scale_of_queries(config, "encoder."); }
                           : +[](json::object const& config) { return scale_of_queries(config, "decoder."); };
    add_scaled_attention(rules, theirs + "self_attn", ours + "self_attention", scale);
    add_sandwich(rules, theirs, ours + "self_attention", "pre_self_attn_layernorm", "post_self_attn_layernorm");
    add_scaled_attention(rules, theirs + "cross_attn", ours + "cross_attention", scale);
    add_sandwich(rules, theirs, ours + "cross_attention", "pre_cross_attn_layernorm", "post_cross_attn_layernorm");
    add_gated_feed_forward(rules, theirs + "mlp", ours + "feed_forward");
    add_sandwich(rules, theirs, ours + "feed_forward", "pre_feedforward_layernorm", "post_feedforward_layernorm");
    add(rules, "model." + stack + ".norm", stack + ".norm", gemma_norm);
  }
  return rules;
}

void complete_t5gemma(json::object& config, ForeignTensors const& /*tensors*/) {
  for (char const* const stack : {"encoder", "decoder"}) {
    json::value& keys = config[stack];
    complete_layer_types(keys.is_object() ? keys.get_object() : keys.emplace_object());
  }
}

std::vector<KeyRule> keys_of_t5gemma() {
  std::vector<KeyRule> keys{fixed("is_encoder_decoder", "true")};
  auto const add = [&](std::initializer_list<KeyRule> more) { keys.insert(keys.end(), more); };
  for (std::string const stack : {"encoder", "decoder"}) {
    std::string const theirs = stack + ".";
    std::string const ours = "model." + stack;
    add({{theirs + "hidden_size", ours + ".d_model", "2304"},
         {theirs + "intermediate_size", ours + ".d_ff", "9216"},
         {theirs + "num_hidden_layers", ours + "_layers", "26"},
         {theirs + "num_attention_heads", ours + ".heads", "8"},
         {theirs + "rms_norm_eps", "model.norm_epsilon", "1e-6"},
         {theirs + "hidden_activation", "model.activation", "\"gelu_pytorch_tanh\"", activations()},
         {.theirs = fmt::format("{0}rope_scaling.rope_theta|{0}rope_parameters.rope_theta|{0}rope_theta", theirs),
          .ours = "model.rotary_base",
          .absent = "10000.0",
          .written = never},
         {.theirs = theirs + "rope_theta", .ours = "model.rotary_base", .only_written = true},
         fixed(fmt::format("{0}rope_scaling.rope_type|{0}rope_scaling.type|{0}rope_parameters.rope_type", theirs),
               "\"default\""),
         fixed(theirs + "use_bidirectional_attention", "false"),
         fixed(theirs + "attention_bias", "false"),
         {theirs + "max_position_embeddings", "model.max_length", "8192"}});
  }
  add({{.theirs = "encoder.final_logit_softcapping",
        .ours = "model.logit_cap",
        .null_is_zero = true,
        .only_written = true},
       {.theirs = "decoder.final_logit_softcapping", .ours = "model.logit_cap", .absent = "30.0", .null_is_zero = true},
       {"dropout_rate", "model.dropout", "0.0"},
       {"dropout_rate", "model.activation_dropout", "0.0"},
       {"attention_dropout", "model.attention_dropout", "0.0"},
       {"tie_word_embeddings", "model.tie_embeddings", "true"}});
  for (auto const& [stack, sublayer] :
       {std::pair("encoder", "self_attention"), {"decoder", "self_attention"}, {"decoder", "cross_attention"}}) {
    std::string const theirs = fmt::format("{}.", stack);
    std::string const ours = fmt::format("model.{}.{}.", stack, sublayer);
    add({{theirs + "num_key_value_heads", ours + "kv_heads", "4", {}, 0, all_heads},
         {theirs + "head_dim", ours + "head_dim", "256", {}, 0, columns_of_head},
         {.theirs = theirs + "query_pre_attn_scalar",
          .ours = ours + "head_dim",
          .unset = columns_of_head,
          .only_written = true},
         {.theirs = theirs + "attn_logit_softcapping",
          .ours = ours + "soft_cap",
          .absent = "50.0",
          .null_is_zero = true}});
  }
  return keys;
}

Family t5gemma() {
  return {
      .model_type = "t5gemma",
      .architecture = "T5GemmaForConditionalGeneration",
      .settings = {"model.norm=both", "model.norm_kind=rms", "model.positions=rotary", "model.position_layout=halves",
                   "model.biases=false", "model.scale_embedding=true", "model.separate_embeddings=true"},
      .keys = keys_of_t5gemma(),
      .tensors = tensors_of_t5gemma(),
      .ignored = {"*.rotary_emb.inv_freq"},
      .complete = complete_t5gemma,
      // transformers 5 counts the tokens on a side of the encoder's windows, and all tokens of the decoder's.
      .windows = {{"encoder", "encoder.layer_types", "encoder.sliding_window"},
                  {"decoder", "decoder.layer_types", "decoder.sliding_window", 1}},
      .tables = {.shared = "model.decoder.embed_tokens.weight", .output = "lm_head.out_proj.weight"}};
}

}  // namespace

std::vector<Family> gemma_families() {
  return {gemma("gemma", "GemmaForCausalLM"), gemma("gemma2", "Gemma2ForCausalLM"), gemma3(), t5gemma()};
}

}  // namespace heddle
