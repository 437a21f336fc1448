#include <algorithm>
#include <boost/json.hpp>
#include <iterator>
#include <string>

#include "families/family_tables.hpp"

namespace heddle {

namespace {

namespace json = boost::json;
using Rules = TensorRules;

bool is_llama3(ModelConfig const& model) {
  return model.rotary_scaling == RotaryScaling::llama3;
}
bool is_yarn(ModelConfig const& model) {
  return model.rotary_scaling == RotaryScaling::yarn;
}
bool has_original_length(ModelConfig const& model) {
  return (is_llama3(model) || is_yarn(model)) && model.rotary_original_length > 0;
}

Rules tensors_of_llama(std::string_view model_type) {
  Rules rules;
  add_tables(rules, causal_tables, "decoder");
  std::string const theirs = "model.layers.{}.";
  std::string const ours = "decoder.layers.{}.";
  add_attention(rules, theirs + "self_attn", ours + "self_attention", {"q_proj", "k_proj", "v_proj", "o_proj"});
  for (std::string const norm : {"q_norm", "k_norm"}) {
    add(rules, theirs + "self_attn." + norm, ours + "self_attention." + norm);
  }
  add_gated_feed_forward(rules, theirs + "mlp", ours + "feed_forward");
  if (model_type == "olmo2") {
    add(rules, theirs + "post_attention_layernorm", ours + "self_attention.output_norm");
    add(rules, theirs + "post_feedforward_layernorm", ours + "feed_forward.output_norm");
  } else {
    add(rules, theirs + "input_layernorm", ours + "self_attention.norm");
    add(rules, theirs + "post_attention_layernorm", ours + "feed_forward.norm");
  }
  add(rules, "model.norm", "decoder.norm");
  return rules;
}

/// Llama (Touvron et al. 2023) and the models with its layers.
Family llama(std::string_view model_type, std::string_view architecture) {
  bool const olmo = model_type == "olmo2";
  Family family{
      .model_type = model_type,
      .architecture = architecture,
      .settings = {"model.stacks=[\"decoder\"]", olmo ? "model.norm=output" : "model.norm=pre", "model.norm_kind=rms",
                   "model.positions=rotary", "model.position_layout=halves", "model.biases=false",
                   "model.scale_embedding=false", "model.dropout=0.0"},
      .keys =
          {{"hidden_size", "model.d_model"},
           {"intermediate_size", "model.d_ff"},
           {"num_hidden_layers", "model.decoder_layers"},
           {"num_attention_heads", "model.heads"},
           {"num_key_value_heads", "model.decoder.self_attention.kv_heads", "@num_attention_heads", {}, 0, all_heads},
           {"head_dim",
            "model.decoder.self_attention.head_dim",
            model_type == "qwen3" ? "128" : "",
            {},
            0,
            columns_of_head},
           {"rms_norm_eps", "model.norm_epsilon", olmo ? "1e-5" : "1e-6"},
           fixed("mlp_bias", "false"),
           {"attention_dropout", "model.attention_dropout", "0.0"},
           {"max_position_embeddings", "model.max_length", "2048"},
           {"tie_word_embeddings", "model.tie_embeddings", "false"},
           {"hidden_act",
            "model.activation",
            "\"silu\"",
            {{"\"silu\"", "swiglu"},
             {"\"gelu\"", "geglu"},
             {"\"gelu_pytorch_tanh\"", "geglu_tanh"},
             {"\"relu\"", "reglu"}}}},
      .tensors = tensors_of_llama(model_type),
      .ignored = {"*.rotary_emb.inv_freq"},
      .tables = causal_tables};
  std::ranges::move(rotary_keys(), std::back_inserter(family.keys));
  if (model_type == "qwen2") {
    family.settings.emplace_back("model.decoder.self_attention.biases=qkv");
  } else {
    family.keys.push_back(
        {"attention_bias", "model.decoder.self_attention.biases", "false", {{"false", ""}, {"true", "\"all\""}}});
  }
  if (olmo) {
    family.settings.emplace_back("model.decoder.self_attention.joint_query_key_norm=true");
  }
  return family;
}

/// Mistral (Jiang et al. 2023): one window for all layers.
Family mistral() {
  Family family = llama("mistral", "MistralForCausalLM");
  family.keys.push_back({"sliding_window", "model.decoder.self_attention.window", "", {}, 1});
  return family;
}

LayerOptions experts_of(ModelConfig const& model) {
  return layer_options(model.decoder, "decoder", -1, "mixture_of_experts");
}
std::string all_experts(ModelConfig const& model) {
  return std::to_string(experts_of(model).integer("experts", 8));
}
std::string experts_per_token(ModelConfig const& model) {
  return std::to_string(experts_of(model).integer("experts_per_token", 2));
}
std::string sums_to_one(ModelConfig const& model) {
  return experts_of(model).integer("experts_per_token", 2) > 1 ? "true" : "false";
}
std::string always_softmax(ModelConfig const& /*model*/) {
  return "softmax";
}

/// Mixtral (Jiang et al. 2024): Mistral with a mixture of experts in each layer, whose weights sum to 1.
Family mixtral() {
  Family family = mistral();
  family.model_type = "mixtral";
  family.architecture = "MixtralForCausalLM";
  family.settings.emplace_back("model.decoder_sublayers=[\"self_attention\", \"mixture_of_experts\"]");
  std::string const options = "model.decoder.mixture_of_experts.";
  for (KeyRule& rule : family.keys) {
    rule.absent = rule.theirs == "rms_norm_eps"              ? "1e-5"
                  : rule.theirs == "max_position_embeddings" ? "131072"
                                                             : rule.absent;
  }
  family.keys.push_back({"num_local_experts", options + "experts", "8", {}, 0, all_experts});
  family.keys.push_back({"num_experts_per_tok", options + "experts_per_token", "2", {}, 0, experts_per_token});
  family.keys.push_back({"heddle.normalize_weights", options + "normalize_weights", "true", {}, 0, sums_to_one, never});
  family.keys.push_back({"heddle.scoring", options + "scoring", "\"softmax\"", {}, 0, always_softmax, never});
  std::erase_if(family.tensors,
                [](TensorRule const& rule) { return rule.ours.find("feed_forward") != rule.ours.npos; });
  std::string const theirs = "model.layers.{}.";
  std::string const ours = "decoder.layers.{}.mixture_of_experts";
  add(family.tensors, theirs + "post_attention_layernorm", ours + ".norm");
  family.tensors.push_back({theirs + "block_sparse_moe.gate.weight", ours + ".router.weight"});
  family.tensors.push_back({"", ours + ".router.balance_bias"});
  for (auto const& [name, projection] : {std::pair{"w1", ".gate"}, {"w3", ".up"}, {"w2", ".down"}}) {
    family.tensors.push_back(
        {theirs + "block_sparse_moe.experts.[]." + name + ".weight", ours + projection + ".weight"});
  }
  return family;
}

/// Phi-3 (Abdin et al. 2024): Mistral with joined projections.
Family phi3() {
  Family family = llama("phi3", "Phi3ForCausalLM");
  std::erase(family.settings, "model.dropout=0.0");
  for (KeyRule& rule : family.keys) {
    rule.absent = rule.theirs == "rms_norm_eps"              ? "1e-5"
                  : rule.theirs == "max_position_embeddings" ? "4096"
                                                             : rule.absent;
    if (rule.ours == "model.rotary_scaling") {  // other kinds are longrope to its class
      rule.values = {{"\"default\"", "none"}};
    }
  }
  family.keys.push_back({"sliding_window", "model.decoder.self_attention.window", "", {}, 1});
  family.keys.push_back({"resid_pdrop", "model.dropout", "0.0"});
  family.keys.push_back({.theirs = "embd_pdrop", .ours = "model.dropout", .only_written = true});
  for (TensorRule& rule : family.tensors) {
    int part = 0;
    for (std::string const projection :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"}) {
      bool const attends = part < 3;
      if (std::size_t const place = rule.theirs.find(projection); place != rule.theirs.npos) {
        rule.theirs.replace(place, projection.size(), attends ? "self_attn.qkv_proj" : "mlp.gate_up_proj");
        rule.change = {.part = attends ? part : part - 3, .parts = attends ? 3 : 2};
      }
      ++part;
    }
  }
  return family;
}

/// The layers with a window follow from other keys where there is no list of them.
void complete_qwen(json::object& config, ForeignTensors const& /*tensors*/) {
  bool const has_windows = flag_at(config, "use_sliding_window", false);
  std::int64_t const first = has_windows ? layers_at(config, "max_window_layers", 28) : max_foreign_layers;
  if (!has_windows) {
    config["layer_types"] = nullptr;
  }
  set_layer_types(config, 32, [=](std::int64_t layer) { return layer >= first; });
}

/// Qwen 2 and 2.5 (Qwen Team 2024), with biases of queries, keys and values only; Qwen 3 (Qwen Team 2025), with norms
/// of each head's queries and keys instead.
Family qwen(std::string_view model_type, std::string_view architecture) {
  Family family = llama(model_type, architecture);
  if (model_type == "qwen3") {
    family.settings.emplace_back("model.decoder.self_attention.query_key_norm=true");
  }
  family.keys.push_back({"use_sliding_window", "", "false", {{"true", ""}, {"false", ""}}});
  family.windows = {{"decoder", "layer_types", "sliding_window", 1}};
  family.complete = complete_qwen;
  return family;
}

constexpr TableNames gpt2_tables{.shared = "transformer.wte.weight", .output = "lm_head.weight"};

Rules tensors_of_gpt2() {
  std::string const all = "transformer.";
  Rules rules{{all + "wpe.weight", "decoder.positions.weight"}};
  add_tables(rules, gpt2_tables, "decoder");
  auto const add_transposed = [&](std::string const& theirs, std::string const& ours, int part = 0, int parts = 1) {
    rules.push_back({all + "h.{}." + theirs + ".weight",
                     "decoder.layers.{}." + ours + ".weight",
                     {.transposed = true, .part = part, .parts = parts}});
    rules.push_back(
        {all + "h.{}." + theirs + ".bias", "decoder.layers.{}." + ours + ".bias", {.part = part, .parts = parts}});
  };
  add_transposed("attn.c_attn", "self_attention.q", 0, 3);
  add_transposed("attn.c_attn", "self_attention.k", 1, 3);
  add_transposed("attn.c_attn", "self_attention.v", 2, 3);
  add_transposed("attn.c_proj", "self_attention.out");
  add_transposed("mlp.c_fc", "feed_forward.up");
  add_transposed("mlp.c_proj", "feed_forward.down");
  add(rules, all + "h.{}.ln_1", "decoder.layers.{}.self_attention.norm");
  add(rules, all + "h.{}.ln_2", "decoder.layers.{}.feed_forward.norm");
  add(rules, all + "ln_f", "decoder.norm");
  return rules;
}

/// A feed-forward sublayer is four times as wide as the model unless n_inner says otherwise.
void complete_gpt2(json::object& config, ForeignTensors const& /*tensors*/) {
  if (find_key(config, "n_inner") == nullptr) {
    config["n_inner"] = 4 * integer_at(config, "n_embd", 768);
  }
}

/// GPT-2 (Radford et al. 2019).
Family gpt2() {
  return {.model_type = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .settings = {"model.stacks=[\"decoder\"]", "model.norm=pre", "model.norm_kind=layer",
                       "model.positions=learned", "model.scale_embedding=false"},
          .keys = {{"n_embd", "model.d_model", "768"},
                   {"n_inner", "model.d_ff"},
                   {"n_layer", "model.decoder_layers", "12"},
                   {"n_head", "model.heads", "12"},
                   {"n_positions", "model.max_length", "1024"},
                   {"layer_norm_epsilon", "model.norm_epsilon", "1e-5"},
                   {"activation_function", "model.activation", "\"gelu_new\"", plain_activations()},
                   {"resid_pdrop", "model.dropout", "0.1"},
                   {.theirs = "embd_pdrop", .ours = "model.dropout", .only_written = true},
                   {"attn_pdrop", "model.attention_dropout", "0.1"},
                   fixed("scale_attn_weights", "true"),
                   fixed("scale_attn_by_inverse_layer_idx", "false"),
                   fixed("add_cross_attention", "false"),
                   {"tie_word_embeddings", "model.tie_embeddings", "true"}},
          .tensors = tensors_of_gpt2(),
          .ignored = {"*.attn.bias", "*.attn.masked_bias"},
          .complete = complete_gpt2,
          .tables = gpt2_tables,
          .optional_prefix = "transformer.",
          .aliases = {{"hidden_size", "n_embd"},
                      {"max_position_embeddings", "n_positions"},
                      {"num_attention_heads", "n_head"},
                      {"num_hidden_layers", "n_layer"}}};
}

}  // namespace

void add_gated_feed_forward(TensorRules& rules, std::string const& theirs, std::string const& ours) {
  for (std::string const projection : {"gate", "up", "down"}) {
    add(rules, theirs + "." + projection + "_proj", ours + "." + projection);
  }
}

std::vector<KeyRule> rotary_keys() {
  // To transformers 5 the rope_theta among the parameters counts; older versions read the one beside them.
  return {
      {.theirs = "rope_scaling.rope_theta|rope_parameters.rope_theta|rope_theta",
       .ours = "model.rotary_base",
       .absent = "10000.0",
       .written = never},
      {.theirs = "rope_theta", .ours = "model.rotary_base", .only_written = true},
      {.theirs = "rope_scaling.rope_type|rope_scaling.type|rope_parameters.rope_type",
       .ours = "model.rotary_scaling",
       .absent = "\"default\"",
       .values = {{"\"default\"", "none"}, {"\"linear\"", "linear"}, {"\"llama3\"", "llama3"}, {"\"yarn\"", "yarn"}},
       .written = is_scaled},
      {.theirs = "rope_scaling.factor|rope_parameters.factor", .ours = "model.rotary_factor", .written = is_scaled},
      {.theirs = "rope_scaling.original_max_position_embeddings|rope_parameters.original_max_position_embeddings",
       .ours = "model.rotary_original_length",
       .written = has_original_length},
      {.theirs = "rope_scaling.low_freq_factor|rope_parameters.low_freq_factor",
       .ours = "model.rotary_low_turns",
       .written = is_llama3},
      {.theirs = "rope_scaling.high_freq_factor|rope_parameters.high_freq_factor",
       .ours = "model.rotary_high_turns",
       .written = is_llama3},
      {.theirs = "rope_scaling.beta_slow|rope_parameters.beta_slow",
       .ours = "model.rotary_low_turns",
       .written = is_yarn},
      {.theirs = "rope_scaling.beta_fast|rope_parameters.beta_fast",
       .ours = "model.rotary_high_turns",
       .written = is_yarn},
      fixed("rope_scaling.attention_factor|rope_parameters.attention_factor", "null"),
      fixed("rope_scaling.mscale|rope_parameters.mscale", "null"),
      fixed("rope_scaling.mscale_all_dim|rope_parameters.mscale_all_dim", "null"),
      fixed("rope_scaling.truncate|rope_parameters.truncate", "true"),
      fixed("rope_scaling.partial_rotary_factor|rope_parameters.partial_rotary_factor|partial_rotary_factor", "1.0")};
}

std::vector<Family> decoder_families() {
  return {gpt2(),
          llama("llama", "LlamaForCausalLM"),
          mistral(),
          mixtral(),
          qwen("qwen2", "Qwen2ForCausalLM"),
          qwen("qwen3", "Qwen3ForCausalLM"),
          llama("olmo2", "Olmo2ForCausalLM"),
          phi3()};
}

}  // namespace heddle
