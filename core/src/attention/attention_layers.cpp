#include <heddle/core/attention/attention_core.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/linear.hpp>

#include "attention_options.hpp"
#include "context_tensors.hpp"

namespace heddle {

namespace {

/// The keys of the projections that give queries, keys and values, or of the output projection.
ModelConfig projection_keys(LayerSpec const& spec, bool output) {
  ModelConfig keys = spec.model;
  std::string const biases = spec.options.text("biases", keys.biases ? "all" : "none");
  keys.biases = biases == "all" || (biases == "qkv" && !output);
  return keys;
}

/// Multi-head attention of a sequence to itself: Vaswani et al. 2017, §3.2. Causal on the target side, unless the
/// option `mask` says otherwise. Parameters: q, k, v and out, each with .weight and .bias.
class SelfAttention final : public Layer {
 public:
  explicit SelfAttention(LayerSpec const& spec)
      : sizes_(attention_sizes(spec.model, spec.options)),
        qkv_(spec.with_keys(spec.name, projection_keys(spec, false)), spec.model.d_model,
             {{"q", sizes_.query_columns()}, {"k", sizes_.key_columns()}, {"v", sizes_.key_columns()}},
             Linear::Split::outputs),
        out_(spec.with_keys(spec.name + ".out", projection_keys(spec, true)),
             {sizes_.query_columns(), spec.model.d_model}, Linear::Split::inputs),
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
    AttentionCore::DecodeKeys keys{core_.keys_to_cache(context, projected.k, step), projected.v, step.queries};
    auto& held = cache.renew<Cache>();
    if (!core_.has_state()) {
      store(context, keys.k, step, held.keys);
      store(context, keys.v, step, held.values);
      keys = {held.keys, held.values, step.keys};
    }
    Tensor const attended = core_.decode(context, projected.q, keys, step, held.states);
    return {out_.forward(context, attended), input.encoder_output};
  }

 private:
  struct Activations {
    Tensor input;
    AttentionCore::Activations attention;
  };
  struct Cache {
    Tensor keys, values;  ///< [token rows, columns of all key heads]
    Tensor states;        ///< in place of both, one row a hypothesis
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

  /// Copies the rows of hypotheses that got a place of their own, and adds the new tokens' keys or values.
  void store(LayerContext& context, Tensor const& rows, DecodeStep const& step, Tensor& cached) const {
    if (!step.copied.empty()) {
      tensor_ops_->copy_rows(context.execution, cached, step.copied, cached, step.copies);
    }
    write_cache(context, *tensor_ops_, rows, step.tokens, cached);
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
        "{} names cross_attention, but this stack has nothing to attend to besides itself; use it in a "
        "decoder that follows an encoder",
        spec.model.place("sublayers"));
  }
  return *spec.encoder_side;
}

/// For a projection of the encoder output's rows.
LayerSpec of_encoder_output(LayerSpec const& spec, ModelConfig const& keys) {
  LayerSpec result = spec.with_keys(spec.name, keys);
  result.side = encoder_side(spec);
  return result;
}

/// Multi-head attention of a stack's tokens to the output of the stack before it. Parameters are named as
/// SelfAttention's.
class CrossAttention final : public Layer {
 public:
  explicit CrossAttention(LayerSpec const& spec)
      : sizes_(attention_sizes(spec.model, spec.options)),
        q_(spec.with_keys(spec.name + ".q", projection_keys(spec, false)), {spec.model.d_model, sizes_.query_columns()},
           Linear::Split::outputs),
        kv_(of_encoder_output(spec, projection_keys(spec, false)), spec.model.encoder_columns(),
            {{"k", sizes_.key_columns()}, {"v", sizes_.key_columns()}}, Linear::Split::outputs_inside),
        out_(spec.with_keys(spec.name + ".out", projection_keys(spec, true)),
             {sizes_.query_columns(), spec.model.d_model}, Linear::Split::inputs),
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
    auto& held = cache.renew<Cache>();
    if (step.first) {
      KeysAndValues const kv{kv_.forward(context, input.encoder_output)};
      write_cache(context, *tensor_ops_, core_.keys_to_cache(context, kv.keys(), step), step.encoder_rows, held.keys);
      write_cache(context, *tensor_ops_, kv.values(), step.encoder_rows, held.values);
    }
    AttentionCore::DecodeKeys keys{held.keys, held.values, step.encoder_output};
    if (core_.has_state() && !step.first) {  // the state has the encoder output's keys already
      if (held.no_keys.size() < step.hypotheses()) {
        held.no_keys = Tensor::allocate(DType::int32, {step.hypotheses()});  // zeros
      }
      keys.sequences.length = held.no_keys.rows(0, step.hypotheses());
      keys.sequences.max_length = 0;
    }
    Tensor const q = q_.forward(context, input.hidden);
    return {out_.forward(context, core_.decode(context, q, keys, step, held.states)), input.encoder_output};
  }

 private:
  struct Activations {
    Tensor input;
    Tensor encoder_output;
    AttentionCore::Activations attention;
  };
  struct Cache {
    Tensor keys, values;  ///< [rows of encoder output, columns of all key heads]: written in a sentence's first step
    Tensor states;        ///< as SelfAttention's, where the core has a state
    Tensor no_keys;       ///< lengths of 0, for later steps with a state
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
  registry.add<CrossAttention>("cross_attention", cross_attention_traits());
}

}  // namespace heddle
