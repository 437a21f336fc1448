#include "attention_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/attention/attention_core.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/attention_score.hpp>

namespace heddle {

namespace {

using Option = OptionDescription;

/// "PLACE = "linear" cannot be combined with WHAT": the start of a message, of the option `score`.
std::string not_with_score(LayerOptions const& options, std::string const& what) {
  return fmt::format("{} = \"{}\" cannot be combined with {}", options.place("score"), options.text("score", ""), what);
}

/// The configurations in which both attention layers are checked.
std::vector<LayerTrial> attention_trials() {
  auto const with_score = [](char const* score) -> std::vector<std::pair<std::string, OptionValue>> {
    return {{"score", std::string(score)}};
  };
  return {
      {.name = "no options"},
      {.name = "one head of keys", .options = {{"kv_heads", std::int64_t{1}}}},
      {.name = "heads of five", .options = {{"head_dim", std::int64_t{5}}}},
      {.name = "norms of queries and keys", .options = {{"query_key_norm", true}}},
      {.name = "norms of all queries and keys", .options = {{"joint_query_key_norm", true}}},
      {.name = "biases of queries, keys and values", .options = {{"biases", std::string("qkv")}}},
      {.name = "soft cap", .options = {{"soft_cap", 0.5}}},
      {.name = "dot product", .options = with_score("dot_product")},
      {.name = "additive", .options = with_score("additive")},
      {.name = "linear", .set = [](ModelConfig& keys) { keys.attention_dropout = 0; }, .options = with_score("linear")},
      {.name = "adapters", .set = [](ModelConfig& keys) {
         keys.adapter.rank = 2;
         keys.adapter.dropout = 0.2;
         keys.adapter.targets = {"*.q", "*.v", "*.out"};
       }}};
}

/// The keys that a query sees on average, of sequences of that length.
double seen_keys(AttentionMask const& mask, double sequence) {
  std::int64_t const length = std::llround(sequence);
  return length > 0 ? visible_pairs(mask, length) / static_cast<double>(length) : 0;
}

/// LayerTraits::cost of a layer whose sequences attend to as long ones, of `inputs` columns, under this mask.
Cost cost_under(AttentionMask const& mask, std::int64_t inputs, ModelConfig const& keys, LayerOptions const& options,
                LayerLoad const& load) {
  AttentionSizes const sizes = attention_sizes(keys, options);
  AttentionProblem const problem{.dtype = load.dtype,
                                 .heads = sizes.heads,
                                 .head_dim = sizes.head_dim,
                                 .kv_heads = sizes.kv_heads,
                                 .score = attention_scores(keys, options, sizes.head_dim).kind};
  AttentionExtents const extents{
      .queries = load.tokens, .keys = load.tokens, .pairs = load.tokens * seen_keys(mask, load.sequence)};
  auto const projection = [&](char const* name, std::int64_t columns, std::int64_t outputs) {
    return projection_cost(keys, load, load.path + name, columns, outputs);
  };
  return projection(".q", keys.d_model, sizes.query_columns()) + projection(".k", inputs, sizes.key_columns()) +
         projection(".v", inputs, sizes.key_columns()) + forward_cost(problem, extents) +
         projection(".out", sizes.query_columns(), keys.d_model);
}

/// The reason why the context group's ranks cannot share the heads of a tensor rank evenly; null where they do.
std::optional<std::string> uneven_in_ulysses(std::string const& key, std::int64_t count, LayerUse const& use) {
  std::int64_t const heads = count / use.tensor;
  if (heads % use.context == 0) {
    return std::nullopt;
  }
  return fmt::format(
      "{} = {}: in ulysses each context rank computes some of a tensor rank's heads, {} here, which "
      "cannot be divided among parallel.context = {}, which may be {}, or set parallel.context_mode = \"ring\"",
      key, count, heads, use.context, list_divisors(heads));
}

/// Heads are shared by the ranks of the tensor group and, in ulysses, by those of the context group.
std::optional<std::string> unsupported_heads(ModelConfig const& keys, LayerOptions const& options,
                                             LayerUse const& use) {
  AttentionSizes const sizes = attention_sizes(keys, options);
  auto reason = uneven_over_tensor(keys.place("heads"), sizes.heads, use);
  if (!reason) {
    reason = uneven_over_tensor(options.place("kv_heads"), sizes.kv_heads, use);
  }
  if (!reason && use.context_mode != ContextMode::ring) {
    reason = uneven_in_ulysses(keys.place("heads"), sizes.heads, use);
  }
  if (!reason && use.context_mode != ContextMode::ring) {
    reason = uneven_in_ulysses(options.place("kv_heads"), sizes.kv_heads, use);
  }
  return reason;
}

/// Names an override rather than a key of the file as wrong, and a given key rather than a default.
std::string uneven_heads(ModelConfig const& keys) {
  auto const blame = [&](std::string const& key) {
    return keys.place(key).starts_with("--set") ? 2 : (keys.places.given(key) ? 1 : 0);
  };
  std::string const place = keys.place("d_model");
  std::string const width = place.substr(place.rfind(' ') + 1);
  return blame("d_model") > blame("heads")
             ? fmt::format("{} = {} is not a multiple of model.heads = {}", keys.place("d_model"), keys.d_model,
                           keys.heads)
             : fmt::format("{} = {} does not divide {} = {}", keys.place("heads"), keys.heads, width, keys.d_model);
}

/// Throws ConfigError for an option of a window where there is none.
void require_window(LayerOptions const& options, std::string const& option) {
  if (options.has(option) && !options.has("window")) {
    throw ConfigError("{} requires `window`; set it, too", options.place(option));
  }
}

/// Throws ConfigError where masks or positions cannot be combined with linear scores.
void check_linear(ModelConfig const& keys, LayerOptions const& options) {
  if (options.text("score", "") != "linear") {
    return;
  }
  if (options.has("window")) {
    throw ConfigError(not_with_score(options, "a window; leave out `window`"));
  }
  if (options.text("mask", "") == "prefix") {
    throw ConfigError(not_with_score(options, "mask = \"prefix\"; leave out one of them"));
  }
  if (act_in_attention(keys.positions)) {
    throw ConfigError(not_with_score(
        options, fmt::format("{} = \"{}\", which acts on scores; expected \"sinusoidal\", \"learned\" or \"none\"",
                             keys.place("positions"), name_of(keys.positions))));
  }
}

/// Throws ConfigError where the loss of alignments is wanted of scores that are not plain products.
void check_guided(ModelConfig const& keys, LayerOptions const& options) {
  AttentionScores const scores = attention_scores(keys, options, 1);
  if (guided_alignment_weight(options) > 0 && (scores.kind != ScoreKind::dot_product || scores.soft_cap > 0)) {
    throw ConfigError("{} needs scores that are products of queries and keys; leave out `score` and `soft_cap`",
                      options.place("guided_alignment_weight"));
  }
}

/// The reason why the layer does not support a use with its mask; null where it does.
std::optional<std::string> unsupported_mask(LayerOptions const& options, LayerUse const& use) {
  bool const prefix = options.text("mask", "") == "prefix";
  if (!use.prefixes && prefix) {
    return fmt::format(
        "{} = \"prefix\": only a decoder-only model (model.stacks = [\"decoder\"]) is trained on sequences "
        "with prefixes; without the option the layer has its stack's usual mask",
        options.place("mask"));
  }
  if (use.predicts_next && options.text("mask", "causal") == "bidirectional") {
    return fmt::format(
        "{} = \"bidirectional\": a decoder's tokens would see those that they are to predict; \"causal\" "
        "and \"prefix\" hide them",
        options.place("mask"));
  }
  if (use.decode && options.text("mask", "causal") == "bidirectional") {
    return fmt::format("{} = \"{}\": tokens that see those after them cannot be generated one by one",
                       options.place("mask"), options.text("mask", "causal"));
  }
  return std::nullopt;
}

}  // namespace

AttentionSizes attention_sizes(ModelConfig const& keys, LayerOptions const& options) {
  std::int64_t const heads = keys.heads;
  if (!options.has("head_dim") && keys.d_model % heads != 0) {
    throw ConfigError("{}; heads may be {}, or any number where the layer's attention has a head_dim",
                      uneven_heads(keys), list_divisors(keys.d_model));
  }
  AttentionSizes const sizes{heads, options.integer("kv_heads", heads),
                             options.integer("head_dim", keys.d_model / heads)};
  if (heads % sizes.kv_heads != 0) {
    throw ConfigError("{} = {} does not divide the {} heads of the queries; it may be {}", options.place("kv_heads"),
                      sizes.kv_heads, heads, list_divisors(heads));
  }
  return sizes;
}

AttentionScores attention_scores(ModelConfig const& keys, LayerOptions const& options, std::int64_t head_dim) {
  std::string const score = options.text("score", "scaled_dot_product");
  AttentionScores scores{.soft_cap = options.number("soft_cap", 0)};
  if (score == "linear") {
    scores.kind = ScoreKind::linear;
    if (keys.attention_dropout > 0) {
      throw ConfigError(not_with_score(
          options, fmt::format("{} = {}; expected 0", keys.place("attention_dropout"), keys.attention_dropout)));
    }
  } else if (score == "additive") {
    scores.kind = ScoreKind::additive;
  } else if (score != "dot_product") {
    scores.scale = 1 / std::sqrt(static_cast<double>(head_dim));
  }
  if (std::ranges::find(built_in_scores, score) == built_in_scores.end()) {
    scores.kind = ScoreKind::function;
    scores.function = score;
  }
  if (scores.soft_cap > 0 && (scores.kind == ScoreKind::linear || scores.kind == ScoreKind::function)) {
    throw ConfigError(not_with_score(options, "soft_cap; leave it out"));
  }
  return scores;
}

/// By default a token of the target must not see later ones, which it is to predict.
AttentionMask self_attention_mask(LayerOptions const& options, Side side) {
  std::string const mask = options.text("mask", side == Side::target ? "causal" : "bidirectional");
  require_window(options, "block");
  require_window(options, "global_tokens");
  if (options.has("window")) {
    if (mask == "prefix") {
      throw ConfigError("{} cannot be combined with mask = \"prefix\"; leave out one of them", options.place("window"));
    }
    std::int64_t const window = options.integer("window", 0);
    AttentionMask local = AttentionMask::window(window, mask == "causal" ? 0 : window);
    local.hides_later = mask == "causal";
    local.global_tokens = options.integer("global_tokens", 0);
    if (options.has("block")) {
      local.kind = MaskKind::blocks;
      local.block = options.integer("block", 1);
    }
    return local;
  }
  if (mask == "prefix") {
    return AttentionMask::prefix();
  }
  return mask == "causal" ? AttentionMask::causal() : AttentionMask::bidirectional();
}

namespace {

LayerTraits attention_traits() {
  return {.options =
              {{.name = "kv_heads", .meaning = "heads of keys and values; default: heads", .min = 1, .max = 4096},
               {.name = "head_dim", .meaning = "columns of a head; default: d_model / heads", .min = 1, .max = 65536},
               Option::boolean("query_key_norm", "a norm on each head's queries and one on its keys; default: false"),
               Option::boolean("joint_query_key_norm",
                               "a norm on the queries of all heads and one on all keys; default: false"),
               {.name = "biases",
                .type = Option::Type::string,
                .meaning = "projections with a bias; default: all or none, as the key biases says",
                .choices = {"all", "qkv", "none"}},
               {.name = "score",
                .type = Option::Type::string,
                .meaning = fmt::format("how a query and a key give a score: {}, or a plug-in's; default: {}",
                                       fmt::join(built_in_scores, ", "), built_in_scores.front())},
               Option::number("soft_cap", "scores s become soft_cap * tanh(s / soft_cap); default: 0, no cap")},
          .attends = true,
          .unsupported_reason = unsupported_heads,
          .trials = attention_trials()};
}

}  // namespace

LayerTraits cross_attention_traits() {
  LayerTraits traits = attention_traits();
  traits.options.push_back(
      Option::number("guided_alignment_weight",
                     "factor of a loss that draws the first head to the data's word alignments; default: 0, none"));
  traits.fields = [](LayerOptions const& options) {
    return guided_alignment_weight(options) > 0 ? SampleFields{SampleField::alignment} : SampleFields();
  };
  traits.cost = [](ModelConfig const& keys, LayerOptions const& options, LayerLoad const& load) {
    check_guided(keys, options);
    return cost_under(AttentionMask::bidirectional(), keys.encoder_columns(), keys, options, load);
  };
  traits.trials.push_back({.name = "a wider encoder output", .set = [](ModelConfig& keys) { keys.encoder_width = 9; }});
  return traits;
}

LayerTraits self_attention_traits() {
  LayerTraits traits = attention_traits();
  traits.takes_positions = true;
  std::vector<Option> const more{
      {.name = "mask",
       .type = Option::Type::string,
       .meaning = "keys that a token sees; default: causal in the decoder",
       .choices = {"causal", "bidirectional", "prefix"}},
      {.name = "window", .meaning = "tokens on a side that a token sees besides itself; default: all", .max = 1048576},
      {.name = "block",
       .meaning = "tokens in a block, in which a window then counts; default: 1",
       .min = 1,
       .max = 65536},
      {.name = "global_tokens",
       .meaning = "first tokens that see all and are seen by all, in addition to a window; default: 0",
       .max = 65536},
      Option::boolean("own_positions", "the layer's biases of positions are its own; default: its stack's"),
      {.name = "rotary_base",
       .type = Option::Type::number,
       .meaning = "base of the layer's own rotations, which no scaling changes",
       .above_min = true}};
  traits.options.insert(traits.options.end(), more.begin(), more.end());
  traits.trials.push_back({.name = "a window", .options = {{"window", std::int64_t{1}}}});
  traits.trials.push_back(
      {.name = "blocks and a global token",
       .options = {{"window", std::int64_t{1}}, {"block", std::int64_t{2}}, {"global_tokens", std::int64_t{1}}}});
  traits.cost = [](ModelConfig const& keys, LayerOptions const& options, LayerLoad const& load) {
    check_linear(keys, options);
    return cost_under(self_attention_mask(options, load.side), keys.d_model, keys, options, load);
  };
  traits.unsupported_reason = [](ModelConfig const& keys, LayerOptions const& options, LayerUse const& use) {
    auto const reason = unsupported_heads(keys, options, use);
    return reason ? reason : unsupported_mask(options, use);
  };
  return traits;
}

}  // namespace heddle
