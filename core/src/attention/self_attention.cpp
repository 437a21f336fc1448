#include <fmt/format.h>

#include <heddle/core/attention/self_attention.hpp>
#include <heddle/core/base/error.hpp>
#include <utility>

namespace heddle {

namespace {

/// By default a token of the target must not see later ones, which it is to predict.
AttentionMask mask_of(LayerSpec const& spec) {
  std::string const mask = spec.options.text("mask", spec.side == Side::target ? "causal" : "bidirectional");
  if (spec.options.has("window")) {
    if (mask == "prefix") {
      throw ConfigError(
          fmt::format("{} does not go together with mask = \"prefix\"; \"causal\" and \"bidirectional\" do",
                      spec.options.place("window")));
    }
    std::int64_t const window = spec.options.integer("window", 0);
    return AttentionMask::window(window, mask == "causal" ? 0 : window);
  }
  if (mask == "prefix") {
    return AttentionMask::prefix();
  }
  return mask == "causal" ? AttentionMask::causal() : AttentionMask::bidirectional();
}

/// Says why such a mask cannot be used so; "" where it can.
std::string mask_refusal(LayerOptions const& options, LayerUse const& use) {
  if (use.context > 1 && options.has("window")) {
    return fmt::format("{} = {}: attention in a window cannot be split over parallel.context = {}; 1 would do",
                       options.place("window"), options.integer("window", 0), use.context);
  }
  bool const prefix = options.text("mask", "") == "prefix";
  if (use.context > 1 && prefix) {
    return fmt::format(
        "{} = \"prefix\": attention with a prefix cannot be split over parallel.context = {}; 1 would do",
        options.place("mask"), use.context);
  }
  if (!use.prefixes && prefix) {
    return fmt::format(
        "{} = \"prefix\" needs data that give the length of each sequence's prefix, and datasets have "
        "none; \"causal\" and \"bidirectional\" need none",
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
                            .least = 0,
                            .most = 1048576});
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
      core_(spec, spec.side, mask_of(spec)),
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
  return {out_.forward(context, activations.attention.output), input.memory};
}

HiddenStates SelfAttention::backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const {
  auto const& [input, attention] = saved.get<Activations>();
  Tensor const grad_attended = out_.backward(context, grad_output.hidden, attention.output);
  std::int64_t const columns = attention.q.dim(1) + 2 * attention.k.dim(1);
  Projected const grad = split(context.arena.allocate(input.dtype(), {attention.q.dim(0), columns}));
  core_.backward(context, attention, grad_attended, {grad.q, grad.k, grad.v});
  return {qkv_.backward(context, grad.all, input), grad_output.memory};
}

HiddenStates SelfAttention::decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                                   DecodeCache& cache) const {
  Projected const projected = split(qkv_.forward(context, input.hidden));
  std::int64_t const width = projected.k.dim(1);
  std::int64_t const rows = projected.k.dim(0);
  DType const dtype = projected.k.dtype();
  if (cache.empty()) {
    Shape const shape{rows, step.capacity * width};
    cache.keep(Cache{Tensor::allocate(dtype, shape), Tensor::allocate(dtype, shape), {}, {}});
  }
  auto const& held = cache.get<Cache>();
  tensor_ops_->copy(context.execution, core_.keys_to_cache(context, projected.k, step),
                    held.keys.columns(step.time * width, width));
  tensor_ops_->copy(context.execution, projected.v, held.values.columns(step.time * width, width));
  Shape const token_rows{rows * step.capacity, width};
  Tensor const attended = core_.decode(context, projected.q, held.keys.reshaped(token_rows),
                                       held.values.reshaped(token_rows), step, step.keys);
  return {out_.forward(context, attended), input.memory};
}

void SelfAttention::reorder(LayerContext& context, Tensor const& parents, DecodeStep const& step,
                            DecodeCache& cache) const {
  auto& held = cache.get<Cache>();
  std::int64_t const width = held.keys.dim(1) / step.capacity;
  std::int64_t const used = (step.time + 1) * width;
  auto const gather = [&](Tensor& kept, Tensor& spare) {
    if (spare.empty() || spare.dim(0) < parents.dim(0)) {
      spare = Tensor::allocate(kept.dtype(), {parents.dim(0), kept.dim(1)});
    }
    Tensor const reordered = spare.rows(0, parents.dim(0));
    tensor_ops_->gather_rows(context.execution, kept.columns(0, used), parents, reordered.columns(0, used));
    spare = std::exchange(kept, reordered);
  };
  gather(held.keys, held.spare_keys);
  gather(held.values, held.spare_values);
}

}  // namespace heddle
