#include <fmt/format.h>

#include <heddle/core/attention/attention_core.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/linear.hpp>

#include "attention_options.hpp"
#include "context_tensors.hpp"

namespace heddle {

namespace {

/// Multi-head attention of a sequence to itself: Vaswani et al. 2017, §3.2. Causal on the target side, unless the
/// option `mask` says otherwise. Parameters: q, k, v and out, each with .weight and .bias.
class SelfAttention final : public Layer {
 public:
  explicit SelfAttention(LayerSpec const& spec)
      : sizes_(attention_sizes(spec.model, spec.options)),
        qkv_(spec, spec.model.d_model,
             {{"q", sizes_.query_columns()}, {"k", sizes_.key_columns()}, {"v", sizes_.key_columns()}},
             Linear::Split::outputs),
        out_(spec.named(spec.name + ".out"), {sizes_.query_columns(), spec.model.d_model}, Linear::Split::inputs),
        core_(spec, spec.side, self_attention_mask(spec.options, spec.side)),
        tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {}

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override {
    Projected const projected = split(qkv_.forward(context, input.hidden));
    auto const& activations =
        saved.keep(Activations{input.hidden, core_.forward(context, projected.q, projected.k, projected.v)});
    return {out_.forward(context, activations.attention.output), input.encoder_output};
  }

  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override {
    auto const& [input, attention] = saved.get<Activations>();
    Tensor const grad_attended = out_.backward(context, grad_output.hidden, attention.output);
    std::int64_t const columns = attention.q.dim(1) + 2 * attention.k.dim(1);
    Projected const grad = split(context.arena.allocate(input.dtype(), {attention.q.dim(0), columns}));
    core_.backward(context, attention, grad_attended, {grad.q, grad.k, grad.v});
    return {qkv_.backward(context, grad.all, input), grad_output.encoder_output};
  }

  HiddenStates decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                      DecodeCache& cache) const override {
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

  void reorder(LayerContext& context, Tensor const& parents, DecodeStep const& step,
               DecodeCache& cache) const override {
    auto& held = cache.get<Cache>();
    if (core_.has_state()) {
      reorder_rows(context, *tensor_ops_, parents, held.state.dim(1), {held.state, held.spare_state});
      return;
    }
    std::int64_t const used = (step.time + 1) * (held.keys.dim(1) / step.capacity);
    reorder_rows(context, *tensor_ops_, parents, used, {held.keys, held.spare_keys});
    reorder_rows(context, *tensor_ops_, parents, used, {held.values, held.spare_values});
  }

 private:
  struct Activations {
    Tensor input;
    AttentionCore::Activations attention;
  };
  struct Cache {
    Tensor keys{};                                       ///< [hypotheses, capacity * width]
    Tensor values{};                                     ///< [hypotheses, capacity * width]
    Tensor state{};                                      ///< in place of both, AttentionCall::state
    Tensor spare_keys{}, spare_values{}, spare_state{};  ///< the latest reorder read from them; the next writes there
  };

  /// Queries, keys and values side by side, as one product computes them.
  struct Projected {
    Tensor all, q, k, v;
  };
  Projected split(Tensor const& all) const {
    std::int64_t const groups = sizes_.heads + 2 * sizes_.kv_heads;
    std::int64_t const queries = all.dim(1) * sizes_.heads / groups;
    std::int64_t const keys = all.dim(1) * sizes_.kv_heads / groups;
    return {all, all.columns(0, queries), all.columns(queries, keys), all.columns(queries + keys, keys)};
  }

  /// Writes the new tokens' keys or values behind those of earlier tokens.
  void append(LayerContext& context, Tensor const& rows, DecodeStep const& step, Tensor const& cached) const {
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

  AttentionSizes sizes_;
  Linear qkv_;
  Linear out_;
  AttentionCore core_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

/// The side of the stack's encoder output. Throws ConfigError in a stack without one.
Side encoder_side(LayerSpec const& spec) {
  if (!spec.has_encoder_output()) {
    throw ConfigError(
        fmt::format("{} names cross_attention, but this stack has nothing to attend to besides itself; use it in a "
                    "decoder that follows an encoder",
                    spec.model.place("sublayers")));
  }
  return *spec.encoder_side;
}

/// Multi-head attention of a stack's tokens to the output of the stack before it. Parameters are named as
/// SelfAttention's.
class CrossAttention final : public Layer {
 public:
  explicit CrossAttention(LayerSpec const& spec)
      : sizes_(attention_sizes(spec.model, spec.options)),
        q_(spec.named(spec.name + ".q"), {spec.model.d_model, sizes_.query_columns()}, Linear::Split::outputs),
        kv_(spec, spec.model.d_model, {{"k", sizes_.key_columns()}, {"v", sizes_.key_columns()}},
            Linear::Split::outputs_inside),
        out_(spec.named(spec.name + ".out"), {sizes_.query_columns(), spec.model.d_model}, Linear::Split::inputs),
        core_(spec, encoder_side(spec), AttentionMask::bidirectional()),
        tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {}

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override {
    Tensor const q = q_.forward(context, input.hidden);
    KeysAndValues const kv{kv_.forward(context, input.encoder_output)};
    auto const& activations =
        saved.keep(Activations{input.hidden, input.encoder_output, core_.forward(context, q, kv.keys(), kv.values())});
    return {out_.forward(context, activations.attention.output), input.encoder_output};
  }

  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override {
    auto const& [input, encoder_output, attention] = saved.get<Activations>();
    Tensor const grad_attended = out_.backward(context, grad_output.hidden, attention.output);
    Tensor const grad_q = context.arena.allocate(input.dtype(), attention.q.shape());
    KeysAndValues const grad{context.arena.allocate(input.dtype(), {encoder_output.dim(0), 2 * attention.k.dim(1)})};
    core_.backward(context, attention, grad_attended, {grad_q, grad.keys(), grad.values()});
    kv_.backward_add(context, grad.both, encoder_output, grad_output.encoder_output);
    return {q_.backward(context, grad_q, input), grad_output.encoder_output};
  }

  HiddenStates decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                      DecodeCache& cache) const override {
    bool const first = cache.empty();
    if (first) {
      KeysAndValues const kv{kv_.forward(context, input.encoder_output)};
      KeysAndValues const kept{Tensor::allocate(kv.both.dtype(), kv.both.shape())};
      tensor_ops_->copy(context.execution, core_.keys_to_cache(context, kv.keys(), step), kept.keys());
      tensor_ops_->copy(context.execution, kv.values(), kept.values());
      Tensor const state = core_.has_state() ? core_.new_state(context, kv.both.dtype(), step.queries.count) : Tensor();
      cache.keep(Cache{kept, state, {}});
    }
    Tensor const q = q_.forward(context, input.hidden);
    auto const& [kv, state, spare_state] = cache.get<Cache>();
    AttentionCore::DecodeKeys encoder_output{kv.keys(), kv.values(), step.encoder_output, state};
    if (core_.has_state() && !first) {
      // The state has the encoder output's keys already.
      std::int64_t const rows = step.queries.count;
      encoder_output.sequences.length =
          from_host<std::int32_t>(std::vector<std::int32_t>(static_cast<std::size_t>(rows)), {rows});
      encoder_output.sequences.max_length = 0;
    }
    return {out_.forward(context, core_.decode(context, q, encoder_output, step)), input.encoder_output};
  }

  void reorder(LayerContext& context, Tensor const& parents, DecodeStep const& /*step*/,
               DecodeCache& cache) const override {
    auto& held = cache.get<Cache>();
    if (core_.has_state()) {
      reorder_rows(context, *tensor_ops_, parents, held.state.dim(1), {held.state, held.spare_state});
    }
  }

 private:
  struct Activations {
    Tensor input;
    Tensor encoder_output;
    AttentionCore::Activations attention;
  };
  struct Cache {
    KeysAndValues kv;           ///< [the encoder output's tokens, columns of k and of v]: the same at every step
    Tensor state, spare_state;  ///< as SelfAttention's, where the core has a state
  };

  AttentionSizes sizes_;
  Linear q_;
  Linear kv_;
  Linear out_;
  AttentionCore core_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace

void register_attention_layers(LayerRegistry& registry) {
  registry.add<SelfAttention>("self_attention", self_attention_traits());
  registry.add<CrossAttention>("cross_attention", attention_traits());
}

}  // namespace heddle
