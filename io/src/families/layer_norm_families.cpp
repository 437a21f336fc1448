#include <algorithm>
#include <boost/json.hpp>
#include <iterator>
#include <string>

#include "families/family_tables.hpp"

// Decoder-only models with LayerNorm before their sublayers and a feed-forward sublayer without a gate, GPT-2's heirs.

namespace heddle {

namespace {

namespace json = boost::json;
using Rules = TensorRules;

Rules tensors_of_opt(TableNames const& tables) {
  std::string const all = "model.decoder.";
  std::string const theirs = all + "layers.{}.";
  std::string const ours = "decoder.layers.{}.";
  Rules rules{{all + "embed_positions.weight", "decoder.positions.weight", {.skipped_rows = 2}}};
  add_tables(rules, tables, "decoder");
  add_attention(rules, theirs + "self_attn", ours + "self_attention", {"q_proj", "k_proj", "v_proj", "out_proj"});
  add(rules, theirs + "self_attn_layer_norm", ours + "self_attention.norm");
  add(rules, theirs + "fc1", ours + "feed_forward.up");
  add(rules, theirs + "fc2", ours + "feed_forward.down");
  add(rules, theirs + "final_layer_norm", ours + "feed_forward.norm");
  add(rules, all + "final_layer_norm", "decoder.norm");
  return rules;
}

/// OPT (Zhang et al. 2022), except the one of 350 million parameters.
Family opt() {
  TableNames const tables{.shared = "model.decoder.embed_tokens.weight", .output = "lm_head.weight"};
  return {.model_type = "opt",
          .architecture = "OPTForCausalLM",
          .settings = {"model.stacks=[\"decoder\"]", "model.norm=pre", "model.norm_kind=layer",
                       "model.positions=learned", "model.scale_embedding=false", "model.norm_epsilon=1e-5"},
          .keys = {{"hidden_size", "model.d_model", "768"},
                   {"word_embed_proj_dim", "model.d_model", "@hidden_size"},
                   {"ffn_dim", "model.d_ff", "3072"},
                   {"num_hidden_layers", "model.decoder_layers", "12"},
                   {"num_attention_heads", "model.heads", "12"},
                   {"max_position_embeddings", "model.max_length", "2048"},
                   {"activation_function", "model.activation", "\"relu\"", plain_activations()},
                   {"dropout", "model.dropout", "0.1"},
                   {"attention_dropout", "model.attention_dropout", "0.0"},
                   {"enable_bias", "model.biases", "true"},
                   fixed("do_layer_norm_before", "true"),
                   fixed("_remove_final_layer_norm", "false"),
                   fixed("layer_norm_elementwise_affine", "true"),
                   {"tie_word_embeddings", "model.tie_embeddings", "true"}},
          .tensors = tensors_of_opt(tables),
          .tables = tables,
          .optional_prefix = "model."};
}

/// StarCoder 2 (Lozhkov et al. 2024).
Family starcoder2() {
  Rules rules;
  std::string const theirs = "model.layers.{}.";
  std::string const ours = "decoder.layers.{}.";
  add_tables(rules, causal_tables, "decoder");
  add_attention(rules, theirs + "self_attn", ours + "self_attention", {"q_proj", "k_proj", "v_proj", "o_proj"});
  add(rules, theirs + "input_layernorm", ours + "self_attention.norm");
  add(rules, theirs + "mlp.c_fc", ours + "feed_forward.up");
  add(rules, theirs + "mlp.c_proj", ours + "feed_forward.down");
  add(rules, theirs + "post_attention_layernorm", ours + "feed_forward.norm");
  add(rules, "model.norm", "decoder.norm");
  Family family{.model_type = "starcoder2",
                .architecture = "Starcoder2ForCausalLM",
                .settings = {"model.stacks=[\"decoder\"]", "model.norm=pre", "model.norm_kind=layer",
                             "model.positions=rotary", "model.position_layout=halves", "model.scale_embedding=false"},
                .keys = {{"hidden_size", "model.d_model", "3072"},
                         {"intermediate_size", "model.d_ff", "12288"},
                         {"num_hidden_layers", "model.decoder_layers", "30"},
                         {"num_attention_heads", "model.heads", "24"},
                         {"num_key_value_heads", "model.decoder.self_attention.kv_heads", "2", {}, 0, all_heads},
                         {"head_dim", "model.decoder.self_attention.head_dim", "", {}, 0, columns_of_head},
                         {"norm_epsilon", "model.norm_epsilon", "1e-5"},
                         {"use_bias", "model.biases", "true"},
                         {"hidden_act", "model.activation", "\"gelu_pytorch_tanh\"", plain_activations()},
                         {"residual_dropout", "model.dropout", "0.0"},
                         {.theirs = "embedding_dropout", .ours = "model.dropout", .only_written = true},
                         {"attention_dropout", "model.attention_dropout", "0.0"},
                         {"max_position_embeddings", "model.max_length", "4096"},
                         {"sliding_window", "model.decoder.self_attention.window", "", {}, 1},
                         {"tie_word_embeddings", "model.tie_embeddings", "true"}},
                .tensors = std::move(rules),
                .ignored = {"*.rotary_emb.inv_freq"},
                .tables = causal_tables};
  std::ranges::move(rotary_keys(), std::back_inserter(family.keys));
  return family;
}

/// A feed-forward sublayer is four times as wide as the model.
void set_width(json::object& config, char const* width, std::int64_t absent) {
  set_own_key(config, feed_forward_key, 4 * integer_at(config, width, absent));
}

bool is_four_times_as_wide(ModelConfig const& model) {
  return model.d_ff == 4 * model.d_model;
}

/// Adds the parts of a projection that gives queries, keys and values.
void add_joined(Rules& rules, std::string const& theirs, std::string const& ours, bool by_head) {
  int part = 0;
  for (std::string const projection : {".q", ".k", ".v"}) {
    TensorChange const change{.part = part++, .parts = 3, .group = by_head ? head_width : nullptr};
    rules.push_back({theirs + ".weight", ours + projection + ".weight", change});
    rules.push_back({theirs + ".bias", ours + projection + ".bias", change});
  }
}

/// MPT (MosaicML 2023), whose norms have no biases.
Family mpt() {
  TableNames const tables{.shared = "transformer.wte.weight", .output = "lm_head.weight"};
  std::string const theirs = "transformer.blocks.{}.";
  std::string const ours = "decoder.layers.{}.";
  Rules rules;
  add_tables(rules, tables, "decoder");
  add_joined(rules, theirs + "attn.Wqkv", ours + "self_attention", false);
  add(rules, theirs + "attn.out_proj", ours + "self_attention.out");
  add(rules, theirs + "ffn.up_proj", ours + "feed_forward.up");
  add(rules, theirs + "ffn.down_proj", ours + "feed_forward.down");
  for (auto const& [norm, of] : {std::pair(theirs + "norm_1", ours + "self_attention.norm"),
                                 {theirs + "norm_2", ours + "feed_forward.norm"},
                                 {"transformer.norm_f", "decoder.norm"}}) {
    rules.push_back({norm + ".weight", of + ".weight"});
    rules.push_back({"", of + ".bias"});
  }
  return {
      .model_type = "mpt",
      .architecture = "MptForCausalLM",
      .settings = {"model.stacks=[\"decoder\"]", "model.norm=pre", "model.norm_kind=layer", "model.positions=alibi",
                   "model.scale_embedding=false", "model.biases=false", "model.activation=gelu"},
      .keys =
          {{"d_model", "model.d_model", "2048"},
           fixed("expansion_ratio", "4"),
           {.theirs = feed_forward_key, .ours = "model.d_ff", .written = is_four_times_as_wide},
           {"n_layers", "model.decoder_layers", "24"},
           {"n_heads", "model.heads", "16"},
           {"max_seq_len", "model.max_length", "2048"},
           {"layer_norm_epsilon", "model.norm_epsilon", "1e-5"},
           // transformers 5 takes only whole numbers here: an export leaves them out.
           {.theirs = "attn_config.attn_pdrop", .ours = "model.dropout", .absent = "0.0", .written = never},
           {.theirs = "attn_config.attn_pdrop", .ours = "model.attention_dropout", .absent = "0.0", .written = never},
           fixed("attn_config.alibi", "true"),
           fixed("attn_config.alibi_bias_max", "8"),
           fixed("attn_config.attn_type", "\"multihead_attention\""),
           fixed("attn_config.clip_qkv", "null"),
           fixed("attn_config.softmax_scale", "null"),
           fixed("attn_config.prefix_lm", "false"),
           fixed("attn_config.qk_ln", "false"),
           fixed("logit_scale", "null"),
           fixed("no_bias", "true"),
           {"tie_word_embeddings", "model.tie_embeddings", "true"}},
      .tensors = std::move(rules),
      .complete = [](json::object& config, ForeignTensors const&) { set_width(config, "d_model", 2048); },
      .tables = tables,
      .aliases = {{"num_attention_heads", "n_heads"}, {"hidden_size", "d_model"}, {"num_hidden_layers", "n_layers"}}};
}

/// BLOOM (BigScience Workshop 2022).
Family bloom() {
  TableNames const tables{.shared = "transformer.word_embeddings.weight", .output = "lm_head.weight"};
  std::string const theirs = "transformer.h.{}.";
  std::string const ours = "decoder.layers.{}.";
  Rules rules;
  add_tables(rules, tables, "decoder");
  add(rules, "transformer.word_embeddings_layernorm", "decoder.embedding_norm");
  add_joined(rules, theirs + "self_attention.query_key_value", ours + "self_attention", true);
  add(rules, theirs + "self_attention.dense", ours + "self_attention.out");
  add(rules, theirs + "input_layernorm", ours + "self_attention.norm");
  add(rules, theirs + "mlp.dense_h_to_4h", ours + "feed_forward.up");
  add(rules, theirs + "mlp.dense_4h_to_h", ours + "feed_forward.down");
  add(rules, theirs + "post_attention_layernorm", ours + "feed_forward.norm");
  add(rules, "transformer.ln_f", "decoder.norm");
  return {.model_type = "bloom",
          .architecture = "BloomForCausalLM",
          .settings = {"model.stacks=[\"decoder\"]", "model.norm=pre", "model.norm_kind=layer", "model.positions=alibi",
                       "model.scale_embedding=false", "model.activation=gelu_tanh", "model.embedding_norm=true"},
          .keys = {{"hidden_size", "model.d_model", "64"},
                   {.theirs = feed_forward_key, .ours = "model.d_ff", .written = is_four_times_as_wide},
                   {"n_layer", "model.decoder_layers", "2"},
                   {"n_head", "model.heads", "8"},
                   {"seq_length", "model.max_length", "2048"},
                   {"layer_norm_epsilon", "model.norm_epsilon", "1e-5"},
                   fixed("apply_residual_connection_post_layernorm", "false"),
                   {"hidden_dropout", "model.dropout", "0.0"},
                   {"attention_dropout", "model.attention_dropout", "0.0"},
                   {"tie_word_embeddings", "model.tie_embeddings", "true"}},
          .tensors = std::move(rules),
          .complete = [](json::object& config, ForeignTensors const&) { set_width(config, "hidden_size", 64); },
          .tables = tables,
          .optional_prefix = "transformer.",
          .aliases = {{"n_embed", "hidden_size"}, {"num_hidden_layers", "n_layer"}, {"num_attention_heads", "n_head"}}};
}

}  // namespace

std::vector<Family> layer_norm_families() {
  return {opt(), starcoder2(), mpt(), bloom()};
}

}  // namespace heddle
