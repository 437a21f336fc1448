#include <heddle/core/attention/attention_core.hpp>
#include <heddle/core/base/activation_functions.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/linear.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/recurrence.hpp>
#include <optional>

// Sublayers in place of a decoder's self-attention whose state in decoding is one row of d_model numbers.

namespace heddle {

namespace {

RecurrenceCall mean_of(TokenRows const& rows, Tensor const& input, Tensor const& gate) {
  return {.input = input, .gate = gate, .sequences = rows.sequences, .position = rows.position};
}

/// A step's running means of x, from the states of its hypotheses, which they replace.
Tensor decoded_mean(LayerContext& context, Recurrence& recurrence, TensorOps& tensor_ops, Tensor const& x,
                    Tensor const& gate, DecodeStep const& step, DecodeCache& cache) {
  auto& states = cache.renew<Tensor>();
  Tensor const mean = context.arena.allocate(x.dtype(), x.shape());
  RecurrenceCall const call{
      .input = x,
      .gate = gate,
      .sequences = step.queries,
      .position = step.position,
      .state = take_states(context, tensor_ops, step, states, statistics_dtype(x.dtype()), x.dim(1))};
  recurrence.forward(context.execution, call, mean);
  write_cache(context, tensor_ops, call.state, step.states, states);
  return mean;
}

ModelConfig without_biases(ModelConfig keys) {
  keys.biases = false;
  return keys;
}

/// The simpler simple recurrent unit (Kim et al. 2019): relu(c) of the running mean c_t = f_t c_{t-1} + (1 - f_t) W x_t
/// with f = σ(W_f x + b_f); with the option `projection` W_o relu(c) + b_o. Columns are split over the tensor group.
/// Parameters: NAME.input.weight, NAME.forget.weight and .bias, and with a projection NAME.out.weight and .bias.
class Ssru final : public Layer {
 public:
  explicit Ssru(LayerSpec const& spec)
      : side_(spec.side),
        d_model_(spec.model.d_model),
        region_(spec.parallel, spec.side),
        input_(spec.with_keys(spec.name + ".input", without_biases(spec.model)), {d_model_, d_model_},
               Linear::Split::outputs),
        forget_(spec.named(spec.name + ".forget"), {d_model_, d_model_}, Linear::Split::outputs),
        activation_(spec.kernels.select<Activation>({spec.dtype, "relu"})),
        recurrence_(spec.kernels.select<Recurrence>({spec.dtype})),
        tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {
    if (spec.options.flag("projection", false)) {
      out_.emplace(spec.named(spec.name + ".out"), Linear::Extents{d_model_, d_model_}, Linear::Split::inputs);
    }
  }

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override {
    Tensor const x = input_.forward(context, input.hidden);
    Tensor const gate = forget_.forward(context, input.hidden);
    Tensor const mean = context.arena.allocate(x.dtype(), x.shape());
    recurrence_->forward(context.execution, mean_of(context.pack.rows(side_), x, gate), mean);
    Tensor const activated = context.arena.allocate(x.dtype(), x.shape());
    activation_->forward(context.execution, {"relu", mean}, activated);
    saved.keep(Activations{input.hidden, x, gate, mean, activated});
    return {to_stream(context, activated, input.hidden), input.encoder_output};
  }

  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override {
    auto const& [input, x, gate, mean, activated] = saved.get<Activations>();
    Tensor const grad_activated = from_stream(context, grad_output.hidden, activated);
    Tensor const grad_mean = context.arena.allocate(x.dtype(), x.shape());
    activation_->backward(context.execution, {.function = "relu", .input = mean, .output = activated}, grad_activated,
                          {grad_mean});
    Tensor const grad_gate = context.arena.allocate(x.dtype(), x.shape());
    recurrence_->backward(context.execution, mean_of(context.pack.rows(side_), x, gate), mean, grad_mean,
                          {grad_mean, grad_gate});
    Tensor const grad_input = input_.backward(context, grad_mean, input);
    forget_.backward_add(context, grad_gate, input, grad_input);
    return {grad_input, grad_output.encoder_output};
  }

  HiddenStates decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                      DecodeCache& cache) const override {
    Tensor const x = input_.forward(context, input.hidden);
    Tensor const gate = forget_.forward(context, input.hidden);
    Tensor const mean = decoded_mean(context, *recurrence_, *tensor_ops_, x, gate, step, cache);
    activation_->forward(context.execution, {"relu", mean}, mean);
    return {to_stream(context, mean, input.hidden), input.encoder_output};
  }

 private:
  struct Activations {
    Tensor input;
    Tensor x, gate;    ///< this rank's columns of W x and W_f x + b_f
    Tensor mean;       ///< of them
    Tensor activated;  ///< relu of that
  };

  /// The stream's tensor of all ranks' columns, or their projection. `like` is a tensor of the stream.
  Tensor to_stream(LayerContext& context, Tensor const& own, Tensor const& like) const {
    if (out_) {
      return out_->forward(context, own);
    }
    if (!region_.split()) {
      return own;
    }
    Tensor const stream = context.arena.allocate(like.dtype(), like.shape());
    Tensor const partial = region_.partial_of(context, stream);
    tensor_ops_->fill(context.execution, partial, 0);
    tensor_ops_->copy(context.execution, own, partial.columns(input_.first_output(), own.dim(1)));
    region_.leave(context, partial, stream);
    return stream;
  }
  /// The gradient of to_stream's argument `own` from that of its result.
  Tensor from_stream(LayerContext& context, Tensor const& grad, Tensor const& own) const {
    return out_ ? out_->backward(context, grad, own)
                : region_.enter(context, grad).columns(input_.first_output(), own.dim(1));
  }

  Side side_;
  std::int64_t d_model_;
  TensorRegion region_;
  Linear input_, forget_;
  std::optional<Linear> out_;
  std::shared_ptr<Activation> activation_;
  std::shared_ptr<Recurrence> recurrence_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

/// The function of an average attention's feed-forward net.
std::string aan_activation(ModelConfig const& keys, LayerOptions const& options) {
  std::string name = options.text("activation", keys.activation);
  if (is_gated_activation(name)) {
    throw ConfigError("{} = \"{}\": average_attention has no gated activation; set its option activation to one of {}",
                      options.has("activation") ? options.place("activation") : keys.place("activation"), name,
                      names_of_activations());
  }
  return name;
}

std::int64_t aan_width(ModelConfig const& keys, LayerOptions const& options) {
  return options.integer("d_ff", keys.d_ff);
}

/// Average attention (Zhang et al. 2018): y = down(dropout(activation(up(mean of x so far)))), then with its gates
/// σ(W_i x + b_i) ∘ x + σ(W_f y + b_f) ∘ y (as Marian has them, each of one input). Parameters: NAME.up, NAME.down,
/// NAME.input_gate and NAME.forget_gate, each with .weight and .bias. Over the tensor group only the net's hidden
/// columns are split.
class AverageAttention final : public Layer {
 public:
  explicit AverageAttention(LayerSpec const& spec)
      : dropout_name_(spec.name + ".dropout"),
        side_(spec.side),
        dropout_(spec.model.activation_dropout),
        function_(aan_activation(spec.model, spec.options)),
        up_(spec.named(spec.name + ".up"), {spec.model.d_model, aan_width(spec.model, spec.options)},
            Linear::Split::outputs),
        down_(spec.named(spec.name + ".down"), {aan_width(spec.model, spec.options), spec.model.d_model},
              Linear::Split::inputs),
        activation_(spec.kernels.select<Activation>({spec.dtype, function_})),
        recurrence_(spec.kernels.select<Recurrence>({spec.dtype})),
        tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {
    if (spec.options.flag("gate", true)) {
      gates_.emplace(Gates{gate_of(spec, ".input_gate"), gate_of(spec, ".forget_gate"),
                           spec.kernels.select<Activation>({spec.dtype, "sigmoid", true})});
    }
  }

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override {
    Tensor const& x = input.hidden;
    Tensor const mean = context.arena.allocate(x.dtype(), x.shape());
    recurrence_->forward(context.execution, mean_of(context.pack.rows(side_), x, {}), mean);
    auto& activations = saved.renew<Activations>();
    return {run(context, x, mean, activations), input.encoder_output};
  }

  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override {
    auto const& of = saved.get<Activations>();
    Tensor grad_y = grad_output.hidden;
    Tensor grad_x;
    if (gates_) {
      Tensor const grad_logits = context.arena.allocate(of.x.dtype(), of.x.shape());
      grad_x = context.arena.allocate(of.x.dtype(), of.x.shape());
      grad_y = context.arena.allocate(of.x.dtype(), of.x.shape());
      gates_->sigmoid->backward(context.execution, gate_call(of.input_gate, of.x), grad_output.hidden,
                                {grad_logits, grad_x});
      gates_->input.backward_add(context, grad_logits, of.x, grad_x);
      gates_->sigmoid->backward(context.execution, gate_call(of.forget_gate, of.y), grad_output.hidden,
                                {grad_logits, grad_y});
      gates_->forget.backward_add(context, grad_logits, of.y, grad_y);
    }
    Tensor const grad_hidden = down_.backward(context, grad_y, of.activated);
    ActivationCall call = activation_call(context, of.hidden);
    call.output = of.activated;
    activation_->backward(context.execution, call, grad_hidden, {grad_hidden});
    Tensor const grad_mean = up_.backward(context, grad_hidden, of.mean);
    recurrence_->backward(context.execution, mean_of(context.pack.rows(side_), of.x, {}), of.mean, grad_mean,
                          {grad_mean});
    if (gates_) {
      tensor_ops_->add(context.execution, grad_mean, grad_x);
    }
    return {grad_mean, grad_output.encoder_output};
  }

  HiddenStates decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                      DecodeCache& cache) const override {
    Tensor const mean = decoded_mean(context, *recurrence_, *tensor_ops_, input.hidden, {}, step, cache);
    Activations activations;
    return {run(context, input.hidden, mean, activations), input.encoder_output};
  }

 private:
  struct Gates {
    Linear input, forget;
    std::shared_ptr<Activation> sigmoid;
  };
  struct Activations {
    Tensor x, mean;
    Tensor hidden, activated, y;     ///< of the feed-forward net
    Tensor input_gate, forget_gate;  ///< before σ; empty without gates
  };
  static Linear gate_of(LayerSpec const& spec, char const* name) {
    return {spec.named(spec.name + name), {spec.model.d_model, spec.model.d_model}, Linear::Split::none};
  }
  static ActivationCall gate_call(Tensor const& logits, Tensor const& factor) {
    return {.function = "sigmoid", .input = logits, .gate = factor};
  }
  ActivationCall activation_call(LayerContext const& context, Tensor const& hidden) const {
    ActivationCall call{function_, hidden, make_dropout(context, dropout_, dropout_name_, side_)};
    call.dropout.first_column = up_.first_output();
    return call;
  }

  /// All that follows the mean.
  Tensor run(LayerContext& context, Tensor const& x, Tensor const& mean, Activations& of) const {
    of.x = x;
    of.mean = mean;
    of.hidden = up_.forward(context, mean);
    of.activated = context.arena.allocate(x.dtype(), of.hidden.shape());
    activation_->forward(context.execution, activation_call(context, of.hidden), of.activated);
    of.y = down_.forward(context, of.activated);
    if (!gates_) {
      return of.y;
    }
    of.input_gate = gates_->input.forward(context, x);
    of.forget_gate = gates_->forget.forward(context, of.y);
    Tensor const output = context.arena.allocate(x.dtype(), x.shape());
    gates_->sigmoid->forward(context.execution, gate_call(of.input_gate, x), output);
    ArenaScope const scope(context.arena);
    Tensor const gated = context.arena.allocate(x.dtype(), x.shape());
    gates_->sigmoid->forward(context.execution, gate_call(of.forget_gate, of.y), gated);
    tensor_ops_->add(context.execution, output, gated);
    return output;
  }

  std::string dropout_name_;
  Side side_;
  double dropout_;
  std::string function_;
  Linear up_, down_;
  std::optional<Gates> gates_;
  std::shared_ptr<Activation> activation_;
  std::shared_ptr<Recurrence> recurrence_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

Cost mean_cost(ModelConfig const& keys, LayerLoad const& load) {
  return forward_cost(RecurrenceProblem{load.dtype}, load.tokens * static_cast<double>(keys.d_model));
}

LayerTraits ssru_traits() {
  auto const cost = [](ModelConfig const& keys, LayerOptions const& options, LayerLoad const& load) {
    Cost sum = mean_cost(keys, load);
    for (std::string const name : {".input", ".forget", ".out"}) {
      if (name != ".out" || options.flag("projection", false)) {
        sum += projection_cost(keys, load, load.path + name, keys.d_model, keys.d_model);
      }
    }
    return sum;
  };
  auto const unsupported_reason = [](ModelConfig const& keys, LayerOptions const&, LayerUse const& use) {
    return uneven_over_tensor(keys.place("d_model"), keys.d_model, use);
  };
  return {.options = {OptionDescription::boolean("projection", "a projection after the unit; default: false")},
          .capabilities = {.context = false},
          .cost = cost,
          .unsupported_reason = unsupported_reason,
          .trials = {{.name = "plain"}, {.name = "a projection", .options = {{"projection", true}}}}};
}

LayerTraits average_attention_traits() {
  auto const cost = [](ModelConfig const& keys, LayerOptions const& options, LayerLoad const& load) {
    std::int64_t const width = aan_width(keys, options);
    Cost sum = mean_cost(keys, load) +
               forward_cost(ActivationProblem{load.dtype, aan_activation(keys, options)},
                            load.tokens * static_cast<double>(width)) +
               projection_cost(keys, load, load.path + ".up", keys.d_model, width) +
               projection_cost(keys, load, load.path + ".down", width, keys.d_model);
    for (char const* const name : {".input_gate", ".forget_gate"}) {
      sum += options.flag("gate", true) ? projection_cost(keys, load, load.path + name, keys.d_model, keys.d_model)
                                        : Cost();
    }
    return sum;
  };
  auto const unsupported_reason = [](ModelConfig const& keys, LayerOptions const& options, LayerUse const& use) {
    std::string const place = options.has("d_ff") ? options.place("d_ff") : keys.place("d_ff");
    return uneven_over_tensor(place, aan_width(keys, options), use);
  };
  return {.options = {{.name = "d_ff",
                       .meaning = "inner width of its feed-forward net; default: d_ff",
                       .min = 1,
                       .max = 65536},
                      {.name = "activation",
                       .type = OptionDescription::Type::string,
                       .meaning = "of its feed-forward net; default: activation"},
                      OptionDescription::boolean("gate", "gates of its input and of the net's result; default: true")},
          .capabilities = {.sequence = false, .context = false},
          .cost = cost,
          .unsupported_reason = unsupported_reason,
          .trials = {{.name = "gates"},
                     {.name = "no gates",
                      .options = {{"gate", false}, {"d_ff", std::int64_t{5}}, {"activation", std::string("silu")}}}}};
}

}  // namespace

void register_recurrent_layers(LayerRegistry& registry) {
  registry.add<Ssru>("ssru", ssru_traits());
  registry.add<AverageAttention>("average_attention", average_attention_traits());
}

}  // namespace heddle
