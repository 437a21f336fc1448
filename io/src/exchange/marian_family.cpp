#include <algorithm>
#include <boost/json.hpp>
#include <heddle/io/exchange/marian.hpp>

#include "families/family_tables.hpp"
#include "marian_keys.hpp"

namespace heddle {

namespace {

namespace json = boost::json;
using Rules = std::vector<TensorRule>;

bool norm_is_before(ModelConfig const& model) {
  return model.norm == NormPlacement::pre;
}
bool output_is_targets(ModelConfig const& model) {
  return model.separate_embeddings && model.tie_embeddings;
}
bool norm_is_after(ModelConfig const& model) {
  return !norm_is_before(model);
}

bool has_sublayer(ModelConfig const& model, std::string_view name) {
  return std::ranges::find(model.decoder.sublayers, name) != model.decoder.sublayers.end();
}
bool has_ssru(ModelConfig const& model) {
  return has_sublayer(model, "ssru");
}
bool has_average_attention(ModelConfig const& model) {
  return has_sublayer(model, "average_attention");
}
std::string width_of(ModelConfig const& model) {
  return std::to_string(model.d_ff);
}

/// A row vector, [1, columns].
void add_row(Rules& rules, std::string const& theirs, std::string const& ours,
             bool (*where)(ModelConfig const&) = nullptr) {
  rules.push_back({theirs, ours, {.one_row = true}, where});
}

/// A projection, [inputs, outputs], and its bias; `number` follows their letters.
void add_dense(Rules& rules, std::string const& theirs, std::string const& number, std::string const& ours) {
  rules.push_back({theirs + "_W" + number, ours + ".weight", {.transposed = true}});
  add_row(rules, theirs + "_b" + number, ours + ".bias");
}

/// The norm of a sublayer, after it or, with the name `before`, before it.
void add_sublayer_norm(Rules& rules, std::string const& after, std::string const& before, std::string const& ours) {
  for (std::string const end : {"", "_pre"}) {
    auto* const where = end.empty() ? norm_is_after : norm_is_before;
    std::string const& theirs = end.empty() ? after : before;
    add_row(rules, theirs + "_ln_scale" + end, ours + ".norm.weight", where);
    add_row(rules, theirs + "_ln_bias" + end, ours + ".norm.bias", where);
  }
}
void add_sublayer_norm(Rules& rules, std::string const& theirs, std::string const& ours) {
  add_sublayer_norm(rules, theirs, theirs, ours);
}

void add_marian_recurrences(Rules& rules, std::string const& theirs, std::string const& ours) {
  rules.push_back({theirs + "rnn_W", ours + "ssru.input.weight", {.transposed = true}});
  add_dense(rules, theirs + "rnn", "f", ours + "ssru.forget");
  add_dense(rules, theirs + "rnn", "o", ours + "ssru.out");
  add_sublayer_norm(rules, theirs + "rnn_ffn", theirs + "rnn", ours + "ssru");
  add_dense(rules, theirs + "aan", "1", ours + "average_attention.up");
  add_dense(rules, theirs + "aan", "2", ours + "average_attention.down");
  add_dense(rules, theirs + "aan", "i", ours + "average_attention.input_gate");
  add_dense(rules, theirs + "aan", "f", ours + "average_attention.forget_gate");
  add_sublayer_norm(rules, theirs + "aan_ffn", ours + "average_attention");
}

void add_marian_attention(Rules& rules, std::string const& theirs, std::string const& ours) {
  add_dense(rules, theirs, "q", ours + ".q");
  add_dense(rules, theirs, "k", ours + ".k");
  add_dense(rules, theirs, "v", ours + ".v");
  add_dense(rules, theirs, "o", ours + ".out");
  add_sublayer_norm(rules, theirs + "_Wo", ours);
}

Rules tensors_of_marian() {
  TensorChange const with_start{.added_rows = 1};
  Rules rules{{"Wemb", "embedding.weight", with_start},
              {"encoder_Wemb", "encoder.embedding.weight", with_start},
              {"decoder_Wemb", "decoder.embedding.weight", with_start},
              {"decoder_ff_logit_out_Wt", "output.weight", with_start},
              {"decoder_ff_logit_out_b", "output.bias", {.one_row = true, .added_rows = 1, .added_value = -10'000}}};
  for (std::string const stack : {"encoder", "decoder"}) {
    std::string const theirs = stack + "_l{}_";
    std::string const ours = stack + ".layers.{}.";
    add_marian_attention(rules, theirs + "self", ours + "self_attention");
    add_marian_attention(rules, theirs + "context", ours + "cross_attention");
    add_marian_recurrences(rules, theirs, ours);
    add_dense(rules, theirs + "ffn", "1", ours + "feed_forward.up");
    add_dense(rules, theirs + "ffn", "2", ours + "feed_forward.down");
    add_sublayer_norm(rules, theirs + "ffn_ffn", ours + "feed_forward");
    add_row(rules, stack + "_top_ln_scale", stack + ".norm.weight");
    add_row(rules, stack + "_top_ln_bias", stack + ".norm.bias");
    add_row(rules, stack + "_emb_ln_scale_pre", stack + ".embedding_norm.weight");
    add_row(rules, stack + "_emb_ln_bias_pre", stack + ".embedding_norm.bias");
  }
  return rules;
}

}  // namespace

Family const& marian_family() {
  static Family const family{
      .model_type = "Marian's",
      .architecture = "",
      .settings = {"model.norm_kind=layer", "model.norm_epsilon=1e-6", "model.positions=sinusoidal",
                   "model.position_layout=halves", "model.position_frequencies=tensor2tensor",
                   "model.scale_embedding=true"},
      .keys = {fixed("type", "\"transformer\""),
               {"dim-emb", "model.d_model", "512"},
               {"enc-depth", "model.encoder_layers", "1"},
               {"dec-depth", "model.decoder_layers", "1"},
               {"transformer-heads", "model.heads", "8"},
               {"transformer-dim-ffn", "model.encoder.d_ff", "2048"},
               {"transformer-decoder-dim-ffn", "model.decoder.d_ff", "@transformer-dim-ffn"},
               fixed("transformer-ffn-depth", "2"),
               {"transformer-decoder-ffn-depth", "", "0", {{"0", ""}, {"2", ""}}},
               {"transformer-ffn-activation",
                "model.activation",
                "\"swish\"",
                {{"\"swish\"", "silu"}, {"\"relu\"", "relu"}}},
               {marian_norms, "model.norm", "", {{"\" | dan | \"", "post"}, {"\"n | da | n\"", "pre"}}},
               {"transformer-postprocess-emb",
                "model.embedding_norm",
                "\"d\"",
                {{"\"d\"", "false"}, {"\"\"", "false"}, {"\"nd\"", "true"}, {"\"n\"", "true"}}},
               {.theirs = marian_tables,
                .ours = "model.separate_embeddings",
                .values = {{"\"target\"", "true"}, {"\"all\"", "false"}, {"\"none\"", "false"}},
                .written = output_is_targets},
               {marian_tables,
                "model.tie_embeddings",
                "",
                {{"\"all\"", "true"}, {"\"target\"", "true"}, {"\"none\"", "false"}}},
               {"output-omit-bias", "model.output_bias", "false", {{"false", "true"}, {"true", "false"}}},
               {marian_recurrence,
                "model.decoder_sublayers",
                "\"self-attention\"",
                {{"\"self-attention\"", R"(["self_attention", "cross_attention", "feed_forward"])"},
                 {"\"rnn of ssru\"", R"(["ssru", "cross_attention", "feed_forward"])"},
                 {"\"average-attention\"", R"(["average_attention", "cross_attention", "feed_forward"])"}}},
               {.theirs = "transformer-rnn-projection",
                .ours = "model.decoder.ssru.projection",
                .values = {{"true", "true"}, {"false", ""}, {"false", "false"}},
                .written = has_ssru},
               {.theirs = "transformer-dim-aan",
                .ours = "model.decoder.average_attention.d_ff",
                .unset = width_of,
                .written = has_average_attention},
               {.theirs = "transformer-aan-depth", .ours = "", .values = {{"2", ""}}, .written = has_average_attention},
               {.theirs = "transformer-aan-activation",
                .ours = "model.decoder.average_attention.activation",
                .values = {{"\"swish\"", "silu"}, {"\"relu\"", "relu"}},
                .written = has_average_attention},
               {.theirs = "transformer-aan-nogate",
                .ours = "model.decoder.average_attention.gate",
                .values = {{"true", "false"}, {"false", ""}, {"false", "true"}},
                .written = has_average_attention},
               {"transformer-tied-layers", "model.decoder.tied_layers"},
               fixed("transformer-no-projection", "false"),
               fixed("transformer-pool", "false"),
               fixed("transformer-train-position-embeddings", "false"),
               fixed("transformer-disable-position-embeddings", "false"),
               fixed("transformer-attention-mask", "\"default\""),
               fixed("transformer-no-bias", "false"),
               fixed("transformer-no-affine", "false"),
               {"input-types", "", "[]", {{"[]", ""}, {R"(["sequence","sequence"])", ""}}},
               fixed("lemma-dim-emb", "0"),
               fixed("right-left", "false"),
               fixed("ulr", "false")},
      .tensors = tensors_of_marian(),
      .ignored = {"special:*"},
      .first_layer = 1,
      .source = "special:model.yml"};
  return family;
}

}  // namespace heddle
