#include <string>

#include "families/family_tables.hpp"

namespace heddle {

namespace {

using Rules = TensorRules;

constexpr TableNames bert_tables{.shared = "bert.embeddings.word_embeddings.weight",
                                 .output = "cls.predictions.decoder.weight"};
constexpr TableNames roberta_tables{.shared = "roberta.embeddings.word_embeddings.weight",
                                    .output = "lm_head.decoder.weight"};

/// BERT's first files call a norm's weight gamma and its bias beta.
void add_bert_norm(Rules& rules, std::string const& theirs, std::string const& ours) {
  rules.push_back({theirs + ".weight|" + theirs + ".gamma", ours + ".weight"});
  rules.push_back({theirs + ".bias|" + theirs + ".beta", ours + ".bias"});
}

Rules tensors_of_bert(std::string const& body) {
  bool const bert = body == "bert";
  std::string const embeddings = body + ".embeddings.";
  Rules rules{{embeddings + "position_embeddings.weight", "encoder.positions.weight", {.skipped_rows = bert ? 0 : 2}},
              {embeddings + "token_type_embeddings.weight", "encoder.token_types.weight"}};
  add_bert_norm(rules, embeddings + "LayerNorm", "encoder.embedding_norm");
  std::string const theirs = body + ".encoder.layer.{}.";
  std::string const ours = "encoder.layers.{}.";
  add_attention(rules, theirs + "attention", ours + "self_attention",
                {"self.query", "self.key", "self.value", "output.dense"});
  add_bert_norm(rules, theirs + "attention.output.LayerNorm", ours + "self_attention.norm");
  add(rules, theirs + "intermediate.dense", ours + "feed_forward.up");
  add(rules, theirs + "output.dense", ours + "feed_forward.down");
  add_bert_norm(rules, theirs + "output.LayerNorm", ours + "feed_forward.norm");
  add_tables(rules, bert ? bert_tables : roberta_tables, "encoder");
  std::string const head = bert ? "cls.predictions." : "lm_head.";
  add(rules, head + (bert ? "transform.dense" : "dense"), "output.transform");
  add_bert_norm(rules, head + (bert ? "transform.LayerNorm" : "layer_norm"), "output.norm");
  rules.push_back({head + "bias|" + head + "decoder.bias", "output.bias", {}, tied});
  rules.push_back({head + "decoder.bias|" + head + "bias", "output.bias", {}, untied, true});
  return rules;
}

/// BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019), XLM-R (Conneau et al. 2020), CamemBERT (Martin et al. 2020),
/// each with the head that predicts masked tokens. RoBERTa's head always has GELU, and its positions begin after the id
/// of the padding.
Family bert(std::string_view model_type, std::string_view architecture) {
  bool const roberta = model_type != "bert";
  Family family{
      .model_type = model_type,
      .architecture = architecture,
      .settings = {"model.stacks=[\"encoder\"]", "model.norm=post", "model.positions=learned",
                   "model.embedding_norm=true", "model.scale_embedding=false", "model.output_transform=true",
                   "model.output_bias=true"},
      .keys = {fixed("is_decoder", "false"),
               fixed("add_cross_attention", "false"),
               fixed("position_embedding_type", "\"absolute\""),
               {"hidden_size", "model.d_model", "768"},
               {"intermediate_size", "model.d_ff", "3072"},
               {"num_hidden_layers", "model.encoder_layers", "12"},
               {"num_attention_heads", "model.heads", "12"},
               {"layer_norm_eps", "model.norm_epsilon", "1e-12"},
               {"hidden_dropout_prob", "model.dropout", "0.1"},
               {"attention_probs_dropout_prob", "model.attention_dropout", "0.1"},
               {"type_vocab_size", "model.token_types", "2"},
               {"max_position_embeddings", "model.max_length", roberta ? "514" : "512", {}, roberta ? 2 : 0},
               {"tie_word_embeddings", "model.tie_embeddings", "true"},
               {"hidden_act", "model.activation", "\"gelu\"", plain_activations()}},
      .tensors = tensors_of_bert(roberta ? "roberta" : "bert"),
      .ignored = {"*.embeddings.position_ids", "*.embeddings.token_type_ids", "*.pooler.*", "cls.seq_relationship.*"},
      .tables = roberta ? roberta_tables : bert_tables};
  if (roberta) {
    family.keys.back().values = {{"\"gelu\"", "gelu"}};
    family.keys.push_back(fixed("pad_token_id", "1"));
  }
  return family;
}

/// DistilBERT (Sanh et al. 2019): BERT without types of tokens.
Family distilbert() {
  TableNames const tables{.shared = "distilbert.embeddings.word_embeddings.weight", .output = "vocab_projector.weight"};
  std::string const theirs = "distilbert.transformer.layer.{}.";
  std::string const ours = "encoder.layers.{}.";
  Rules rules{{"distilbert.embeddings.position_embeddings.weight", "encoder.positions.weight"},
              {"vocab_projector.bias", "output.bias"}};
  add_tables(rules, tables, "encoder");
  add(rules, "distilbert.embeddings.LayerNorm", "encoder.embedding_norm");
  add_attention(rules, theirs + "attention", ours + "self_attention", {"q_lin", "k_lin", "v_lin", "out_lin"});
  add(rules, theirs + "sa_layer_norm", ours + "self_attention.norm");
  add(rules, theirs + "ffn.lin1", ours + "feed_forward.up");
  add(rules, theirs + "ffn.lin2", ours + "feed_forward.down");
  add(rules, theirs + "output_layer_norm", ours + "feed_forward.norm");
  add(rules, "vocab_transform", "output.transform");
  add(rules, "vocab_layer_norm", "output.norm");
  Family family = bert("bert", "DistilBertForMaskedLM");
  family.model_type = "distilbert";
  family.settings.emplace_back("model.norm_epsilon=1e-12");
  family.keys = {{"dim", "model.d_model", "768"},
                 {"hidden_dim", "model.d_ff", "3072"},
                 {"n_layers", "model.encoder_layers", "6"},
                 {"n_heads", "model.heads", "12"},
                 {"dropout", "model.dropout", "0.1"},
                 {"attention_dropout", "model.attention_dropout", "0.1"},
                 {"max_position_embeddings", "model.max_length", "512"},
                 {"tie_word_embeddings", "model.tie_embeddings", "true"},
                 {"activation", "model.activation", "\"gelu\"", plain_activations()}};
  family.tensors = std::move(rules);
  family.ignored = {"*.embeddings.position_ids"};
  family.tables = tables;
  family.aliases = {{"hidden_size", "dim"}, {"num_attention_heads", "n_heads"}, {"num_hidden_layers", "n_layers"}};
  return family;
}

}  // namespace

std::vector<Family> encoder_families() {
  return {bert("bert", "BertForMaskedLM"), bert("roberta", "RobertaForMaskedLM"),
          bert("xlm-roberta", "XLMRobertaForMaskedLM"), bert("camembert", "CamembertForMaskedLM"), distilbert()};
}

}  // namespace heddle
