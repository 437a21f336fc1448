#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <string>

#include "families/family_tables.hpp"

namespace heddle {

namespace {

namespace json = boost::json;
using Rules = TensorRules;
using Names = ProjectionNames;

/// T5 v1.0 multiplies the decoder's output by d_model^-0.5; here the last norm does.
double scale_of_t5(json::object const& config) {
  json::value const& type = config.at("model_type");
  bool const scaled = (type == "t5" || type == "umt5" || type == "switch_transformers") &&
                      flag_at(config, "scale_decoder_outputs", flag_at(config, "tie_word_embeddings", true));
  json::value const* const width = find_key(config, "d_model");
  return scaled ? 1 / std::sqrt(width == nullptr ? 512 : width->to_number<double>()) : 1;
}

/// Keeps whether the output is scaled, which follows from tie_word_embeddings as it was written.
void complete_t5(json::object& config, ForeignTensors const& /*tensors*/) {
  config.emplace("scale_decoder_outputs", flag_at(config, "tie_word_embeddings", true));
}

constexpr TableNames t5_tables{.shared = "shared.weight",
                               .encoder = "encoder.embed_tokens.weight",
                               .decoder = "decoder.embed_tokens.weight",
                               .output = "lm_head.weight"};
constexpr TableNames fairseq_tables{.shared = "model.shared.weight",
                                    .encoder = "model.encoder.embed_tokens.weight",
                                    .decoder = "model.decoder.embed_tokens.weight",
                                    .output = "lm_head.weight"};

Rules tensors_of_t5() {
  Rules rules;
  add_tables(rules, t5_tables);
  Names const names{"q", "k", "v", "o"};
  for (std::string const stack : {"encoder", "decoder"}) {
    std::string const ours = stack + ".layers.{}.";
    std::string const theirs = stack + ".block.{}.layer.";
    std::string const bias = "layer.0.SelfAttention.relative_attention_bias.weight";
    rules.push_back({stack + ".block.0." + bias, stack + ".attention_bias.weight", {.transposed = true}});
    rules.push_back({stack + ".block.{}." + bias, ours + "self_attention.attention_bias.weight", {.transposed = true}});
    add_attention(rules, theirs + "0.SelfAttention", ours + "self_attention", names);
    add(rules, theirs + "0.layer_norm", ours + "self_attention.norm");
    if (stack == "decoder") {
      add_attention(rules, theirs + "1.EncDecAttention", ours + "cross_attention", names);
      add(rules, theirs + "1.layer_norm", ours + "cross_attention.norm");
    }
    std::string const last = stack == "decoder" ? "2." : "1.";
    std::string const dense = theirs + last + "DenseReluDense.";
    rules.push_back({dense + "wi.weight", ours + "feed_forward.up.weight", {}, plain});
    rules.push_back({dense + "wi_0.weight", ours + "feed_forward.gate.weight", {}, gated});
    rules.push_back({dense + "wi_1.weight", ours + "feed_forward.up.weight", {}, gated});
    add(rules, dense + "wo", ours + "feed_forward.down");
    add(rules, theirs + last + "layer_norm", ours + "feed_forward.norm");
  }
  add(rules, "encoder.final_layer_norm", "encoder.norm");
  add(rules, "decoder.final_layer_norm", "decoder.norm", {.scale = scale_of_t5});
  return rules;
}

/// Whether the rows of a table are the sinusoids of Marian in transformers: all sines, then all cosines. Files in lower
/// precision have them rounded, and so does transformers.
bool has_sinusoids(ForeignTensors const& tensors, std::string const& name) {
  ForeignTensor const& table = tensors.tensors().at(name);
  std::int64_t const columns = table.shape.size() == 2 ? table.shape.back() : 0;
  if (columns == 0 || columns % 2 != 0) {
    return false;
  }
  double const tolerance = table.dtype == "float32" ? 1e-4 : 1e-2;
  std::vector<float> row(static_cast<std::size_t>(columns));
  std::vector<double> frequencies;
  for (std::int64_t pair = 0; pair < columns / 2; ++pair) {
    frequencies.push_back(std::pow(10'000, -2 * static_cast<double>(pair) / static_cast<double>(columns)));
  }
  for (std::int64_t position = 0; position < table.shape.front(); ++position) {
    tensors.read(name, {position * columns, (position + 1) * columns}, row);
    for (std::size_t pair = 0; pair < frequencies.size(); ++pair) {
      double const angle = static_cast<double>(position) * frequencies[pair];
      if (std::abs(row[pair] - std::sin(angle)) > tolerance ||
          std::abs(row[pair + frequencies.size()] - std::cos(angle)) > tolerance) {
        return false;
      }
    }
  }
  return true;
}

/// Throws ConfigError for an odd width, for which transformers has sines and cosines of other columns, unless the files
/// have the table. A table that differs from the sinusoids is a table of learned positions.
void complete_positions(json::object& config, ForeignTensors const& tensors) {
  std::int64_t const width = integer_at(config, "d_model", 0);
  bool learned = false;
  for (std::string const stack : {"encoder", "decoder"}) {
    auto const table = tensors.tensors().find("model." + stack + ".embed_positions.weight");
    bool const given = table != tensors.tensors().end();
    learned = learned || (given && !has_sinusoids(tensors, table->first));
    if (!given && width % 2 != 0) {
      throw ConfigError("config.json: d_model = {} cannot be imported; positions need an even number", width);
    }
  }
  set_own_key(config, positions_key, learned ? "learned" : "sinusoidal");
}

/// T5 (Raffel et al. 2020), T5 v1.1, Flan-T5, UL2 (Tay et al. 2022), MADLAD-400 (Kudugunta et al. 2023), ByT5 (Xue et
/// al. 2022); mT5 (Xue et al. 2021); UMT5 (Chung et al. 2023), each of whose layers has biases of its own.
Family t5(std::string_view model_type, std::string_view architecture) {
  Family family{
      .model_type = model_type,
      .architecture = architecture,
      .settings = {"model.norm=pre", "model.norm_kind=rms", "model.biases=false", "model.positions=relative_buckets",
                   "model.scale_embedding=false", "model.encoder.self_attention.score=dot_product",
                   "model.decoder.self_attention.score=dot_product", "model.decoder.cross_attention.score=dot_product"},
      .keys = {fixed("is_encoder_decoder", "true"),
               {"d_model", "model.d_model", "512"},
               {"d_ff", "model.d_ff", "2048"},
               {"num_heads", "model.heads", "8"},
               {"num_layers", "model.encoder_layers", "6"},
               {"num_decoder_layers", "model.decoder_layers", "@num_layers"},
               {"d_kv", "model.encoder.self_attention.head_dim", "64", {}, 0, columns_of_head},
               {"d_kv", "model.decoder.self_attention.head_dim", "64", {}, 0, columns_of_head},
               {"d_kv", "model.decoder.cross_attention.head_dim", "64", {}, 0, columns_of_head},
               {"relative_attention_num_buckets", "model.position_buckets", "32"},
               {"relative_attention_max_distance", "model.max_distance", "128"},
               {"layer_norm_epsilon", "model.norm_epsilon", "1e-6"},
               {"dropout_rate", "model.dropout", "0.1"},
               {"feed_forward_proj",
                "model.activation",
                "\"relu\"",
                {{"\"relu\"", "relu"},
                 {"\"gated-gelu\"", "geglu_tanh"},
                 {"\"gated-silu\"", "swiglu"},
                 {"\"gated-relu\"", "reglu"},
                 {"\"gelu\"", "gelu"},
                 {"\"silu\"", "silu"}}},
               {"tie_word_embeddings", "model.tie_embeddings", "true"},
               {separate_tables_key, "model.separate_embeddings", "false"},
               {shared_inputs_key, "model.share_embeddings", "false"},
               {"n_positions", "model.max_length", "512"}},
      .tensors = tensors_of_t5(),
      .ignored = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"},
      .complete = complete_t5,
      .tables = t5_tables,
      .aliases = {{"hidden_size", "d_model"},
                  {"num_attention_heads", "num_heads"},
                  {"num_hidden_layers", "num_layers"},
                  {"head_dim", "d_kv"}}};
  if (model_type == "umt5") {
    family.settings.insert(family.settings.end(), {"model.encoder.self_attention.own_positions=true",
                                                   "model.decoder.self_attention.own_positions=true"});
  }
  if (model_type != "t5") {
    for (KeyRule& rule : family.keys) {  // its class has other defaults
      rule.absent = rule.theirs == "d_ff"                ? "1024"
                    : rule.theirs == "num_layers"        ? "8"
                    : rule.theirs == "num_heads"         ? "6"
                    : rule.theirs == "feed_forward_proj" ? "\"gated-gelu\""
                                                         : rule.absent;
    }
  }
  return family;
}

template <StackMember stack>
std::string experts_in(ModelConfig const& model) {
  return std::to_string(layer_options(model.*stack, "", -1, "mixture_of_experts").integer("experts", 8));
}

/// Switch Transformers (Fedus et al. 2021): T5 with mixtures of experts in some layers, each token in one expert. Here
/// no expert drops tokens; transformers drops those beyond expert_capacity in a sequence.
Family switch_transformers() {
  Family family = t5("switch_transformers", "SwitchTransformersForConditionalGeneration");
  for (KeyRule& rule : family.keys) {
    rule.absent = rule.theirs == "d_model" ? "768" : rule.theirs == "d_ff" ? "2048" : rule.absent;
    rule.absent = rule.theirs == "num_layers" || rule.theirs == "num_heads" ? "12" : rule.absent;
    if (rule.theirs == "feed_forward_proj") {
      rule = {"dense_act_fn", "model.activation", "\"relu\"", plain_activations()};
    }
  }
  family.keys.push_back(
      {"num_experts", "model.encoder.mixture_of_experts.experts", "8", {}, 0, experts_in<&ModelConfig::encoder>});
  family.keys.push_back(
      {"num_experts", "model.decoder.mixture_of_experts.experts", "8", {}, 0, experts_in<&ModelConfig::decoder>});
  family.keys.push_back(fixed("router_bias", "false"));
  family.settings.insert(family.settings.end(), {"model.encoder.mixture_of_experts.experts_per_token=1",
                                                 "model.decoder.mixture_of_experts.experts_per_token=1"});
  family.mixtures = {{"encoder", "num_sparse_encoder_layers", 3}, {"decoder", "num_sparse_decoder_layers", 3}};
  std::string const dense = "DenseReluDense";
  for (TensorRule& rule : family.tensors) {
    if (std::size_t const place = rule.theirs.find(dense); place != rule.theirs.npos) {
      rule.theirs.replace(place, dense.size(), "mlp");
    }
  }
  for (std::string const stack : {"encoder", "decoder"}) {
    std::string const theirs = stack + ".block.{}.layer." + (stack == "decoder" ? "2." : "1.");
    std::string const ours = stack + ".layers.{}.mixture_of_experts.";
    family.tensors.push_back({theirs + "layer_norm.weight", ours + "norm.weight"});
    family.tensors.push_back({theirs + "mlp.router.classifier.weight", ours + "router.weight"});
    family.tensors.push_back({"", ours + "router.balance_bias"});
    family.tensors.push_back({theirs + "mlp.experts.expert_[].wi.weight", ours + "up.weight"});
    family.tensors.push_back({theirs + "mlp.experts.expert_[].wo.weight", ours + "down.weight"});
  }
  return family;
}

/// The names of fairseq (Ott et al. 2019), as transformers has them.
Rules tensors_of_fairseq(bool computed_positions, TableNames const& tables) {
  Rules rules{{"final_logits_bias", "output.bias", {.one_row = true}}};
  add_tables(rules, tables);
  Names const names{"q_proj", "k_proj", "v_proj", "out_proj"};
  for (std::string const stack : {"encoder", "decoder"}) {
    std::string const ours = stack + ".layers.{}.";
    std::string const theirs = "model." + stack + ".layers.{}.";
    rules.push_back({"model." + stack + ".embed_positions.weight",
                     stack + ".positions.weight",
                     {.skipped_rows = computed_positions ? 0 : 2}});
    add(rules, "model." + stack + ".layernorm_embedding", stack + ".embedding_norm");
    add_attention(rules, theirs + "self_attn", ours + "self_attention", names);
    add(rules, theirs + "self_attn_layer_norm", ours + "self_attention.norm");
    add_attention(rules, theirs + "encoder_attn", ours + "cross_attention", names);
    add(rules, theirs + "encoder_attn_layer_norm", ours + "cross_attention.norm");
    add(rules, theirs + "fc1", ours + "feed_forward.up");
    add(rules, theirs + "fc2", ours + "feed_forward.down");
    add(rules, theirs + "final_layer_norm", ours + "feed_forward.norm");
    add(rules, "model." + stack + ".layer_norm", stack + ".norm");
  }
  return rules;
}

std::vector<KeyRule> keys_of_fairseq() {
  return {fixed("is_encoder_decoder", "true"),
          {"tie_word_embeddings", "model.tie_embeddings", "true"},
          {separate_tables_key, "model.separate_embeddings", "false"},
          {"d_model", "model.d_model", "1024"},
          {"encoder_layers", "model.encoder_layers", "12"},
          {"decoder_layers", "model.decoder_layers", "12"},
          {"encoder_attention_heads", "model.encoder.heads", "16"},
          {"encoder_attention_heads", "model.heads", "16"},
          {"decoder_attention_heads", "model.decoder.heads", "16"},
          {"encoder_ffn_dim", "model.encoder.d_ff", "4096"},
          {"encoder_ffn_dim", "model.d_ff", "4096"},
          {"decoder_ffn_dim", "model.decoder.d_ff", "4096"},
          {"activation_function", "model.activation", "\"gelu\"", plain_activations()},
          {"dropout", "model.dropout", "0.1"},
          {"attention_dropout", "model.attention_dropout", "0.0"},
          {"activation_dropout", "model.activation_dropout", "0.0"},
          {"max_position_embeddings", "model.max_length", "1024"},
          {"scale_embedding", "model.scale_embedding", "false"}};
}

/// Marian (Junczys-Dowmunt et al. 2018) and OPUS-MT (Tiedemann & Thottingal 2020), as transformers converts them; BART
/// (Lewis et al. 2020), Pegasus (Zhang et al. 2020), mBART (Liu et al. 2020; Tang et al. 2020); M2M100 (Fan et al.
/// 2021), NLLB (NLLB Team 2022).
Family fairseq(std::string_view model_type, std::string_view architecture, std::vector<std::string_view> settings) {
  std::vector<KeyRule> keys = keys_of_fairseq();
  if (model_type == "m2m_100") {  // its classes have other defaults
    for (KeyRule& rule : keys) {
      rule.absent = rule.theirs == "activation_function" ? "\"relu\""
                    : rule.theirs == "scale_embedding"   ? "true"
                    : rule.theirs == "attention_dropout" ? "0.1"
                                                         : rule.absent;
    }
    keys.push_back({"pad_token_id", "model.first_position", "1", {}, -1});
  }
  if (model_type == "marian") {
    keys.push_back({.theirs = "share_encoder_decoder_embeddings",
                    .ours = "model.separate_embeddings",
                    .values = {{"true", "false"}, {"false", "true"}},
                    .only_written = true});
    keys.push_back(fixed("normalize_before", "false"));
    keys.push_back(fixed("add_final_layer_norm", "false"));
    keys.push_back(
        {"normalize_embedding", "model.embedding_norm", "false", {{"false", "false"}}});  // its class has none
    keys.push_back(fixed("static_position_embeddings", "true"));
  }
  TableNames tables = fairseq_tables;
  tables.output_is_decoders = model_type == "marian";
  bool const computed_positions = model_type == "marian" || model_type == "pegasus";
  if (computed_positions) {
    settings.insert(settings.end(), {"model.position_layout=halves", "model.position_frequencies=paper"});
    keys.push_back({positions_key,
                    "model.positions",
                    "\"sinusoidal\"",
                    {{"\"sinusoidal\"", "sinusoidal"}, {"\"learned\"", "learned"}}});
  }
  return {.model_type = model_type,
          .architecture = architecture,
          .settings = std::move(settings),
          .keys = std::move(keys),
          .tensors = tensors_of_fairseq(computed_positions, tables),
          // The sinusoids of Marian and Pegasus, which complete_positions has compared; those of M2M100, which nothing
          // reads.
          .ignored = {computed_positions ? "model.*.embed_positions.weight" : "model.*.embed_positions.weights",
                      model_type == "m2m_100" ? "final_logits_bias" : "*.version"},
          .complete = computed_positions ? complete_positions : nullptr,
          .tables = tables,
          .sinusoids = model_type != "pegasus" ? std::vector<std::string>()
                                               : std::vector<std::string>{"model.encoder.embed_positions.weight",
                                                                          "model.decoder.embed_positions.weight"},
          .aliases = {{"hidden_size", "d_model"},
                      {"num_attention_heads", "encoder_attention_heads"},
                      {"num_hidden_layers", "encoder_layers"}}};
}

}  // namespace

std::vector<Family> encoder_decoder_families() {
  return {
      t5("t5", "T5ForConditionalGeneration"),
      t5("mt5", "MT5ForConditionalGeneration"),
      t5("umt5", "UMT5ForConditionalGeneration"),
      switch_transformers(),
      fairseq("marian", "MarianMTModel", {"model.norm=post", "model.output_bias=true"}),
      fairseq("bart", "BartForConditionalGeneration",
              {"model.norm=post", "model.positions=learned", "model.embedding_norm=true", "model.output_bias=true"}),
      fairseq("pegasus", "PegasusForConditionalGeneration", {"model.norm=pre", "model.output_bias=true"}),
      fairseq("mbart", "MBartForConditionalGeneration",
              {"model.norm=pre", "model.positions=learned", "model.embedding_norm=true", "model.output_bias=true"}),
      fairseq("m2m_100", "M2M100ForConditionalGeneration",
              {"model.norm=pre", "model.positions=sinusoidal", "model.position_layout=halves"})};
}

}  // namespace heddle
