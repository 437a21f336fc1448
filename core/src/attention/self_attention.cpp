#include <fmt/format.h>

#include <heddle/core/attention/self_attention.hpp>
#include <heddle/core/base/error.hpp>
#include <utility>

#include "attention_scores.hpp"

namespace heddle {

namespace {

/// Throws ConfigError for an option of a window where there is none.
void require_window(LayerOptions const& options, std::string const& option) {
  if (options.has(option) && !options.has("window")) {
    throw ConfigError(fmt::format("{} belongs to a window; give `window`, too", options.place(option)));
  }
}

/// By default a token of the target must not see later ones, which it is to predict. Throws ConfigError where options
/// do not go together.
AttentionMask mask_of(LayerOptions const& options, bool predicts) {
  std::string const mask = options.text("mask", predicts ? "causal" : "bidirectional");
  require_window(options, "block");
  require_window(options, "global_tokens");
  if (options.has("window")) {
    if (mask == "prefix") {
      throw ConfigError(fmt::format("{} does not go together with mask = \"prefix\"; leave out one of them",
                                    options.place("window")));
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

/// Throws ConfigError where masks or positions do not go together with linear scores.
void check_linear(ModelConfig const& keys, LayerOptions const& options) {
  if (options.text("score", "") != "linear") {
    return;
  }
  if (options.has("window")) {
    throw ConfigError(not_with_linear_scores(options, "a window; leave out `window`"));
  }
  if (options.text("mask", "") == "prefix") {
    throw ConfigError(not_with_linear_scores(options, "mask = \"prefix\"; leave out one of them"));
  }
  if (act_in_attention(keys.positions)) {
    throw ConfigError(not_with_linear_scores(
        options, fmt::format("{} = \"{}\", which acts on scores; \"sinusoidal\", \"learned\" and \"none\" would do",
                             keys.place("positions"), name_of(keys.positions))));
  }
}

/// The reason why a mask cannot be used in this way; "" where it can.
std::string mask_refusal(LayerOptions const& options, LayerUse const& use) {
  bool const prefix = options.text("mask", "") == "prefix";
  if (!use.prefixes && prefix) {
    return fmt::format(
        "{} = \"prefix\": only a decoder-only model (model.stacks = [\"decoder\"]) learns from sequences "
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
  return "";
}

}  // namespace

LayerTraits SelfAttention::traits() {
  LayerTraits traits = AttentionCore::traits();
  traits.takes_positions = true;
  traits.options.push_back({.name = "mask",
                            .type = OptionDescription::Type::text,
                            .meaning = "keys that a token sees; not given: causal in the decoder",
                            .choices = {"causal", "bidirectional", "prefix"}});
  traits.options.push_back({.name = "window",
                            .meaning = "tokens on a side that a token sees besides itself; not given: all",
                            .min = 0,
                            .max = 1048576});
  traits.options.push_back({.name = "block",
                            .meaning = "tokens in a block, in which a window then counts; not given: 1",
                            .min = 1,
                            .max = 65536});
  traits.options.push_back({.name = "global_tokens",
                            .meaning = "first tokens that see all and are seen by all, beside a window; not given: 0",
                            .min = 0,
                            .max = 65536});
  traits.trials.push_back({.name = "a window", .options = {{"window", std::int64_t{1}}}});
  traits.trials.push_back(
      {.name = "blocks and a global token",
       .options = {{"window", std::int64_t{1}}, {"block", std::int64_t{2}}, {"global_tokens", std::int64_t{1}}}});
  traits.cost = [](ModelConfig const& keys, LayerOptions const& options, LayerLoad const& load) {
    check_linear(keys, options);
    return AttentionCore::cost(keys, options, load, mask_of(options, load.side == Side::target));
  };
  traits.refusal = [any_mask = traits.refusal](ModelConfig const& keys, LayerOptions const& options,
                                               LayerUse const& use) {
    std::string reason = any_mask(keys, options, use);
    return reason.empty() ? mask_refusal(options, use) : reason;
  };
  return traits;
}

SelfAttention::SelfAttention(LayerSpec const& spec)
    : sizes_(attention_sizes(spec.model, spec.options)),
      qkv_(spec, spec.model.d_model,
           {{"q", sizes_.query_columns()}, {"k", sizes_.key_columns()}, {"v", sizes_.key_columns()}},
           Linear::Split::outputs),
      out_(spec.named(spec.name + ".out"), {sizes_.query_columns(), spec.model.d_model}, Linear::Split::inputs),
      core_(spec, spec.side, mask_of(spec.options, spec.side == Side::target)),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {}

SelfAttention::Projected SelfAttention::split(Tensor const& all) const {
  std::int64_t const groups = sizes_.heads + 2 * sizes_.kv_heads;
  std::int64_t const queries = all.dim(1) * sizes_.heads / groups;
  std::int64_t const keys = all.dim(1) * sizes_.kv_heads / groups;
  return {all, all.columns(0, queries), all.columns(queries, keys), all.columns(queries + keys, keys)};
}

HiddenStates SelfAttention::forward(LayerContext& context, HiddenStates const& input, Saved& saved) const {
  Projected const projected = split(qkv_.forward(context, input.hidden));
  auto const& activations =
      saved.keep(Activations{input.hidden, core_.forward(context, projected.q, projected.k, projected.v)});
  return {out_.forward(context, activations.attention.output), input.encoder_output};
}

HiddenStates SelfAttention::backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const {
  auto const& [input, attention] = saved.get<Activations>();
  Tensor const grad_attended = out_.backward(context, grad_output.hidden, attention.output);
  std::int64_t const columns = attention.q.dim(1) + 2 * attention.k.dim(1);
  Projected const grad = split(context.arena.allocate(input.dtype(), {attention.q.dim(0), columns}));
  core_.backward(context, attention, grad_attended, {grad.q, grad.k, grad.v});
  return {qkv_.backward(context, grad.all, input), grad_output.encoder_output};
}

HiddenStates SelfAttention::decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                                   DecodeCache& cache) const {
  Projected const projected = split(qkv_.forward(context, input.hidden));
  std::int64_t const width = projected.k.dim(1);
  std::int64_t const hypotheses = step.hypotheses();
  DType const dtype = projected.k.dtype();
  Tensor const keys = core_.keys_to_cache(context, projected.k, step);
  if (core_.has_state()) {
    if (cache.empty()) {
      cache.keep(Cache{.state = core_.new_state(context, dtype, hypotheses)});
    }
    AttentionCore::DecodeKeys const newest{keys, projected.v, step.queries, cache.get<Cache>().state};
    return {out_.forward(context, core_.decode(context, projected.q, newest, step)), input.encoder_output};
  }
  if (cache.empty()) {
    Shape const shape{hypotheses, step.capacity * width};
    cache.keep(Cache{.keys = Tensor::allocate(dtype, shape), .values = Tensor::allocate(dtype, shape)});
  }
  auto const& held = cache.get<Cache>();
  append(context, keys, step, held.keys);
  append(context, projected.v, step, held.values);
  Shape const token_rows{hypotheses * step.capacity, width};
  AttentionCore::DecodeKeys const all{held.keys.reshaped(token_rows), held.values.reshaped(token_rows), step.keys};
  return {out_.forward(context, core_.decode(context, projected.q, all, step)), input.encoder_output};
}

void SelfAttention::append(LayerContext& context, Tensor const& rows, DecodeStep const& step,
                           Tensor const& cached) const {
  std::int64_t const width = rows.dim(1);
  Tensor newest = rows;
  if (step.tokens > 1) {  // a hypothesis's rows become one row of the cache
    newest = context.arena.allocate(rows.dtype(), rows.shape());
    tensor_ops_->copy(context.execution, rows, newest);
    newest = newest.reshaped({step.hypotheses(), step.tokens * width});
  }
  std::int64_t const first = step.time + 1 - step.tokens;
  tensor_ops_->copy(context.execution, newest, cached.columns(first * width, step.tokens * width));
}

void SelfAttention::reorder(LayerContext& context, Tensor const& parents, DecodeStep const& step,
                            DecodeCache& cache) const {
  auto& held = cache.get<Cache>();
  if (core_.has_state()) {
    reorder_rows(context, *tensor_ops_, parents, held.state.dim(1), {held.state, held.spare_state});
    return;
  }
  std::int64_t const used = (step.time + 1) * (held.keys.dim(1) / step.capacity);
  reorder_rows(context, *tensor_ops_, parents, used, {held.keys, held.spare_keys});
  reorder_rows(context, *tensor_ops_, parents, used, {held.values, held.spare_values});
}

}  // namespace heddle
