#include <string>

#include "exchange/family_tables.hpp"

namespace heddle {

namespace {

using Rules = TensorRules;

/// Gemma's norms multiply by 1 + weight.
Rules tensors_of_llama(double added_to_norms) {
  TensorChange const norm{.added = added_to_norms};
  Rules rules{{"model.embed_tokens.weight", "embedding.weight", {}, tied},
              {"model.embed_tokens.weight", "decoder.embedding.weight", {}, untied},
              {"lm_head.weight", "output.weight"}};
  std::string const theirs = "model.layers.{}.";
  std::string const ours = "decoder.layers.{}.";
  add_attention(rules, theirs + "self_attn", ours + "self_attention", {"q_proj", "k_proj", "v_proj", "o_proj"});
  add(rules, theirs + "input_layernorm", ours + "self_attention.norm", norm);
  for (std::string const projection : {"gate", "up", "down"}) {
    add(rules, theirs + "mlp." + projection + "_proj", ours + "feed_forward." + projection);
  }
  add(rules, theirs + "post_attention_layernorm", ours + "feed_forward.norm", norm);
  add(rules, "model.norm", "decoder.norm", norm);
  return rules;
}

/// Llama (Touvron et al. 2023), Mistral (Jiang et al. 2023), Gemma (Gemma Team 2024).
Family llama(std::string_view model_type, std::string_view architecture) {
  bool const gemma = model_type == "gemma";
  Family family{
      .model_type = model_type,
      .architecture = architecture,
      .settings = {"model.stacks=[\"decoder\"]", "model.norm=pre", "model.norm_kind=rms", "model.positions=rotary",
                   "model.position_layout=halves", "model.biases=false",
                   gemma ? "model.scale_embedding=true" : "model.scale_embedding=false", "model.dropout=0.0"},
      .keys =
          {{"hidden_size", "model.d_model"},
           {"intermediate_size", "model.d_ff"},
           {"num_hidden_layers", "model.decoder_layers"},
           {"num_attention_heads", "model.heads"},
           {"num_key_value_heads", "model.decoder.self_attention.kv_heads", "@num_attention_heads", {}, 0, all_heads},
           {"head_dim", "model.decoder.self_attention.head_dim", "", {}, 0, columns_of_head},
           {"rms_norm_eps", "model.norm_epsilon", "1e-6"},
           {"rope_theta|rope_parameters.rope_theta", "model.rotary_base", "10000.0"},
           {"rope_scaling.rope_type|rope_scaling.type|rope_parameters.rope_type",
            "",
            "\"default\"",
            {{"\"default\"", ""}}},
           {"attention_bias", "", "false", {{"false", ""}}},
           {"mlp_bias", "", "false", {{"false", ""}}},
           {"attention_dropout", "model.attention_dropout", "0.0"},
           {"max_position_embeddings", "model.max_length", "2048"},
           {"tie_word_embeddings", "model.tie_embeddings", gemma ? "true" : "false"}},
      .tensors = tensors_of_llama(gemma ? 1 : 0),
      .ignored = {"lm_head.weight", "*.rotary_emb.inv_freq"}};
  if (gemma) {
    family.keys.push_back(
        {"hidden_activation|hidden_act",
         "model.activation",
         "\"gelu_pytorch_tanh\"",
         {{"\"gelu_pytorch_tanh\"", "geglu_tanh"}, {"\"gelu\"", "geglu_tanh"}, {"\"gelu_new\"", "geglu_tanh"}}});
  } else {
    family.keys.push_back({"hidden_act",
                           "model.activation",
                           "\"silu\"",
                           {{"\"silu\"", "swiglu"},
                            {"\"gelu\"", "geglu"},
                            {"\"gelu_pytorch_tanh\"", "geglu_tanh"},
                            {"\"relu\"", "reglu"}}});
  }
  if (model_type == "mistral") {
    family.keys.push_back({"sliding_window", "model.decoder.self_attention.window", "", {}, 1});
  }
  return family;
}

}  // namespace

std::vector<Family> decoder_families() {
  return {llama("llama", "LlamaForCausalLM"), llama("mistral", "MistralForCausalLM"),
          llama("gemma", "GemmaForCausalLM")};
}

}  // namespace heddle
