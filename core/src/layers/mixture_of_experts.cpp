#include <fmt/format.h>

#include <cmath>
#include <heddle/core/base/activation_functions.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/registry.hpp>
#include <heddle/core/operations/expert_routing.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <numeric>

#include "expert_linear.hpp"
#include "feed_forward.hpp"

namespace heddle {

namespace {

/// The layer's options.
struct Mixture {
  std::int64_t experts, chosen, shared_columns;
  ExpertScoring scoring;
  bool normalized;
  double capacity_factor;
  ExpertLossFactors losses;
  bool biased;  ///< also with a rate of 0
  double bias_rate;

  explicit Mixture(LayerOptions const& options)
      : experts(options.integer("experts", 8)),
        chosen(options.integer("experts_per_token", std::min<std::int64_t>(experts, 2))),
        shared_columns(options.integer("shared_d_ff", 0)),
        scoring(options.text("scoring", "softmax") == "sigmoid" ? ExpertScoring::sigmoid : ExpertScoring::softmax),
        normalized(options.flag("normalize_weights", chosen > 1)),
        capacity_factor(options.number("capacity_factor", 0)),
        losses{options.number("load_balance_loss", 0.01), options.number("router_z_loss", 0)},
        biased(options.has("balance_bias_rate")),
        bias_rate(options.number("balance_bias_rate", 0)) {
    if (chosen > experts) {
      throw ConfigError("{} = {}: at most the {} experts of the layer", options.place("experts_per_token"), chosen,
                        experts);
    }
    if (normalized && chosen == 1) {
      throw ConfigError(
          "{} = true: with one expert for each token its weight would always be 1, and the router would "
          "learn nothing; set it to false",
          options.place("normalize_weights"));
    }
  }

  /// The most rows of an expert, of `rows` in all; 0: any number.
  std::int64_t capacity(std::int64_t rows) const {
    double const even = static_cast<double>(rows * chosen) / static_cast<double>(experts);
    return capacity_factor > 0 ? std::max<std::int64_t>(1, std::llround(std::ceil(capacity_factor * even))) : 0;
  }
  bool has_losses() const { return losses.balance > 0 || losses.z > 0; }
};

/// Gives each token to a few of several feed-forward networks (experts), and computes Σ over the chosen experts e of
/// wₑ · downₑ(dropout(activation(upₑ(x)))), with a gate as feed_forward has it. A router, one product, gives the scores
/// that choose and weigh (Shazeer et al. 2017, Lepikhin et al. 2021, Fedus et al. 2021). An expert that all tokens
/// share, a feed_forward, may be added (Dai et al. 2024). Each expert's hidden columns are split over the tensor group,
/// whose ranks all compute the router for all rows. They have parts of the gradient of the experts' weights, so
/// the gradient of the router's matrix is a sum over the group.
class MixtureOfExperts final : public Layer {
 public:
  explicit MixtureOfExperts(LayerSpec const& spec);

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override;
  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override;

 private:
  /// Memory of a forward pass. `hidden`, `activated` and `outputs` have a row for each place of the routes.
  struct Activations {
    Tensor input;  ///< the stream's rows
    ExpertRoutingCall call;
    ExpertRoutes routes;
    Tensor hidden;     ///< before the activation: up(x), or gate(x) and up(x) side by side
    Tensor activated;  ///< after activation and dropout
    Tensor outputs;    ///< of the experts
    Saved shared;

    ExpertLinear::Counts counts() const {
      return {routes.host_counts.data<std::int32_t>(), static_cast<std::size_t>(routes.host_counts.size())};
    }
    /// The places that are used: at most those there are.
    std::int64_t places() const { return std::accumulate(counts().begin(), counts().end(), std::int64_t{0}); }
  };

  void allocate(LayerContext& context, Tensor const& input, Activations& kept) const;
  void route(LayerContext& context, Tensor const& x, Activations const& kept) const;
  void count(LayerContext& context, Activations const& kept) const;
  void add_losses(LayerContext& context, Activations const& kept) const;
  Tensor dispatched(LayerContext& context, Tensor const& x, Activations const& kept) const;
  ActivationCall activation_call(LayerContext& context, Activations const& kept) const;
  void experts_backward(LayerContext& context, Activations const& kept, Tensor const& x, Tensor const& grad) const;
  void router_backward(LayerContext& context, Activations const& kept, Tensor const& x, Tensor const& grad_weights,
                       Tensor const& grad_x) const;
  /// The first or second half of the columns where there is a gate; otherwise all, or none.
  Tensor half(Tensor const& hidden, int index) const {
    if (!gate_) {
      return index == 0 ? hidden : Tensor();
    }
    std::int64_t const columns = hidden.dim(1) / 2;
    return hidden.columns(index * columns, columns);
  }

  std::string dropout_name_;
  Side side_;
  Mixture mixture_;
  ActivationProblem problem_;
  double dropout_;
  TensorRegion region_;
  Communicator context_ranks_;
  Parameter& router_;
  ChoiceCounts const& choices_;
  std::optional<ExpertLinear> gate_;
  ExpertLinear up_;
  ExpertLinear down_;
  std::unique_ptr<Layer> shared_;
  std::shared_ptr<Gemm> gemm_;
  std::shared_ptr<Activation> activation_;
  std::shared_ptr<ExpertRouting> routing_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

Parameter& declare_router(LayerSpec const& spec, std::int64_t experts) {
  return spec.parameters.declare({.name = spec.name + ".router.weight",
                                  .placement = {{experts, spec.model.d_model}, {}, {MeshAxis::tensor}},
                                  .initializer = Initializer::xavier_uniform(spec.model.d_model, experts),
                                  .matrix = true});
}

/// Counts the layer's choices, and declares the bias that evens them out where there is one.
ChoiceCounts const& count_choices(LayerSpec const& spec, Mixture const& mixture) {
  Parameter* const bias = mixture.biased ? &spec.parameters.declare({.name = spec.name + ".router.balance_bias",
                                                                     .placement = {.global_shape = {mixture.experts}},
                                                                     .initializer = Initializer::zeros(),
                                                                     .balances = true})
                                         : nullptr;
  return spec.parameters.count_choices(
      {.layer = spec.name, .experts = mixture.experts, .bias = bias, .bias_rate = mixture.bias_rate});
}

ExpertLinear hidden_projection(LayerSpec const& spec, std::int64_t experts, char const* name) {
  return {spec.named(spec.name + name), experts, {spec.model.d_model, spec.model.d_ff}, Linear::Split::outputs};
}

/// The expert that all tokens share; null if there is none.
std::unique_ptr<Layer> make_shared_expert(LayerSpec const& spec, std::int64_t columns) {
  if (columns == 0) {
    return nullptr;
  }
  ModelConfig keys = spec.model;
  keys.d_ff = columns;
  return make_feed_forward(spec.with_keys(spec.name + ".shared", keys));
}

MixtureOfExperts::MixtureOfExperts(LayerSpec const& spec)
    : dropout_name_(spec.name + ".dropout"),
      side_(spec.side),
      mixture_(spec.options),
      problem_(activation_problem(spec.dtype, spec.model.activation)),
      dropout_(spec.model.activation_dropout),
      region_(spec.parallel, spec.side),
      context_ranks_(spec.parallel.context),
      router_(declare_router(spec, mixture_.experts)),
      choices_(count_choices(spec, mixture_)),
      gate_(problem_.gated ? std::optional(hidden_projection(spec, mixture_.experts, ".gate")) : std::nullopt),
      up_(hidden_projection(spec, mixture_.experts, ".up")),
      down_(spec.named(spec.name + ".down"), mixture_.experts, {spec.model.d_ff, spec.model.d_model},
            Linear::Split::inputs),
      shared_(make_shared_expert(spec, mixture_.shared_columns)),
      gemm_(spec.kernels.select<Gemm>({.dtype = spec.dtype,
                                       .b_dtype = router_.value_dtype(spec.dtype),
                                       .output_dtype = statistics_dtype(spec.dtype),
                                       .m = 64,
                                       .n = mixture_.experts,
                                       .k = spec.model.d_model,
                                       .transpose_b = true})),
      activation_(select_activation(spec, problem_)),
      routing_(spec.kernels.select<ExpertRouting>({spec.dtype, mixture_.experts, mixture_.chosen})),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {}

void MixtureOfExperts::allocate(LayerContext& context, Tensor const& input, Activations& kept) const {
  std::int64_t const rows = context.row_split.ranks > 1 ? region_.rows(context) : input.dim(0);
  std::int64_t const places = rows * mixture_.chosen;
  DType const real = statistics_dtype(input.dtype());
  auto const get = [&](DType dtype, Shape const& shape) { return context.arena.allocate(dtype, shape); };
  Shape const choices{rows, mixture_.chosen};
  Shape const experts{mixture_.experts};
  kept.input = input;
  kept.call = {get(real, {rows, mixture_.experts}),
               mixture_.chosen,
               mixture_.scoring,
               mixture_.normalized,
               context.training ? mixture_.capacity(rows) : 0,
               choices_.bias ? choices_.bias->value : Tensor()};
  if (kept.routes.host_counts.empty()) {
    kept.routes.host_counts = Tensor::allocate_on_host(DType::int32, experts);
  }
  kept.routes = {.scores = get(real, kept.call.logits.shape()),
                 .chosen = get(DType::int32, choices),
                 .weights = get(real, choices),
                 .row = get(DType::int32, {places}),
                 .place = get(DType::int32, choices),
                 .load = get(DType::float64, experts),
                 .counts = get(DType::int32, experts),
                 .host_counts = kept.routes.host_counts};
  kept.hidden = get(input.dtype(), {places, (gate_ ? 2 : 1) * up_.local_outputs()});
  kept.activated = get(input.dtype(), {places, up_.local_outputs()});
  kept.outputs = get(input.dtype(), {places, input.dim(1)});
  // An even load, which stays where kernels compute nothing: a plan of memory and time.
  for (std::int64_t expert = 0; expert < mixture_.experts; ++expert) {
    kept.routes.host_counts.data<std::int32_t>()[expert] =
        static_cast<std::int32_t>(share(places, expert, mixture_.experts).count());
  }
}

void MixtureOfExperts::route(LayerContext& context, Tensor const& x, Activations const& kept) const {
  gemm_->multiply(context.execution, {.a = x,
                                      .b = router_.value,
                                      .c = kept.call.logits,
                                      .bias = {},
                                      .transpose_b = true,
                                      .b_weight = router_.weight_version()});
  routing_->route(context.execution, kept.call, kept.routes);
  if (context.training && !context.loss_sums.empty()) {
    count(context, kept);
  }
  bool const balances = mixture_.losses.balance > 0 && (context.training || !context.loss_sums.empty());
  if (balances && context_ranks_.size() > 1) {
    context_ranks_.all_reduce(kept.routes.load);
  }
  if (!context.loss_sums.empty() && mixture_.has_losses()) {
    add_losses(context, kept);
  }
}

/// Adds the choices of a micro-batch to the step's.
void MixtureOfExperts::count(LayerContext& context, Activations const& kept) const {
  tensor_ops_->add(context.execution, choices_.sums.rows(0, mixture_.experts), kept.routes.load);
  Tensor const dropped = context.arena.allocate(DType::float64, {1});
  tensor_ops_->fill(context.execution, dropped, static_cast<double>(kept.routes.chosen.size() - kept.places()));
  tensor_ops_->add(context.execution, choices_.sums.rows(mixture_.experts, 1), dropped);
}

void MixtureOfExperts::add_losses(LayerContext& context, Activations const& kept) const {
  Tensor const loss = context.arena.allocate(DType::float64, {1});
  routing_->losses(context.execution, kept.call, kept.routes, mixture_.losses, loss);
  Tensor const sums = context.loss_sums.reshaped({SoftmaxCrossEntropy::sums_size});
  tensor_ops_->add(context.execution, sums.rows(0, 1), loss);
}

/// The rows of x at their places.
Tensor MixtureOfExperts::dispatched(LayerContext& context, Tensor const& x, Activations const& kept) const {
  std::int64_t const places = kept.places();
  Tensor const rows = context.arena.allocate(x.dtype(), {kept.routes.row.dim(0), x.dim(1)});
  tensor_ops_->gather_rows(context.execution, x, kept.routes.row.rows(0, places), rows.rows(0, places));
  return rows;
}

ActivationCall MixtureOfExperts::activation_call(LayerContext& context, Activations const& kept) const {
  std::int64_t const places = kept.places();
  Tensor const hidden = kept.hidden.rows(0, places);
  ActivationCall call{problem_.function, half(hidden, 0), make_dropout(context, dropout_, dropout_name_, side_)};
  call.gate = half(hidden, 1);
  call.dropout.first_column = up_.first_output();
  if (call.dropout.active()) {
    for (Tensor* const of_rows : {&call.dropout.sample, &call.dropout.position}) {
      Tensor const of_places = context.arena.allocate(DType::float32, {places, 1});
      Tensor const bits = of_rows->with_dtype(DType::float32).reshaped({of_rows->dim(0), 1});
      tensor_ops_->gather_rows(context.execution, bits, kept.routes.row.rows(0, places), of_places);
      *of_rows = of_places.reshaped({places}).with_dtype(DType::int32);
    }
  }
  return call;
}

HiddenStates MixtureOfExperts::forward(LayerContext& context, HiddenStates const& input, Saved& saved) const {
  Tensor const y = context.arena.allocate(input.hidden.dtype(), input.hidden.shape());
  auto& kept = saved.renew<Activations>();
  allocate(context, input.hidden, kept);
  {
    ArenaScope const scope(context.arena);
    Tensor const x = region_.enter(context, input.hidden);
    route(context, x, kept);
    Tensor const rows = dispatched(context, x, kept);
    if (gate_) {
      gate_->forward(context, rows, kept.counts(), half(kept.hidden, 0));
    }
    up_.forward(context, rows, kept.counts(), gate_ ? half(kept.hidden, 1) : kept.hidden);
    ActivationCall const call = activation_call(context, kept);
    activation_->forward(context.execution, call, kept.activated.rows(0, kept.places()));
    down_.forward(context, kept.activated, kept.counts(), kept.outputs);
    Tensor const partial = region_.partial_of(context, y);
    routing_->combine(context.execution, kept.routes.place, kept.routes.weights, kept.outputs, partial);
    region_.leave(context, partial, y);
  }
  if (shared_ != nullptr) {
    tensor_ops_->add(context.execution, y, shared_->forward(context, input, kept.shared).hidden);
  }
  return {y, input.encoder_output};
}

HiddenStates MixtureOfExperts::backward(LayerContext& context, HiddenStates const& grad_output,
                                        Saved const& saved) const {
  auto const& kept = saved.get<Activations>();
  Tensor const grad_input = context.arena.allocate(kept.input.dtype(), kept.input.shape());
  ArenaScope const scope(context.arena);
  Tensor const grad_y = region_.enter(context, grad_output.hidden);
  Tensor const x = region_.enter(context, kept.input);
  Tensor const partial = region_.partial_of(context, grad_input);
  Tensor const grad_weights = context.arena.allocate(kept.routes.weights.dtype(), kept.routes.weights.shape());
  Tensor const grad = context.arena.allocate(kept.outputs.dtype(), kept.outputs.shape());
  routing_->combine_backward(context.execution, kept.routes, kept.outputs, grad_y, grad, grad_weights);
  experts_backward(context, kept, x, grad);
  routing_->combine(context.execution, kept.routes.place, Tensor(), grad, partial);
  router_backward(context, kept, x, grad_weights, partial);
  region_.leave(context, partial, grad_input);
  if (shared_ != nullptr) {
    tensor_ops_->add(context.execution, grad_input,
                     shared_->backward(context, {grad_output.hidden, Tensor()}, kept.shared).hidden);
  }
  return {grad_input, grad_output.encoder_output};
}

/// Replaces `grad`, the gradient of the experts' outputs, by that of the dispatched rows of x.
void MixtureOfExperts::experts_backward(LayerContext& context, Activations const& kept, Tensor const& x,
                                        Tensor const& grad) const {
  ArenaScope const scope(context.arena);
  std::int64_t const places = kept.places();
  Tensor const rows = dispatched(context, x, kept);
  Tensor const grad_activated = context.arena.allocate(kept.activated.dtype(), kept.activated.shape());
  down_.backward(context, grad, kept.activated, kept.counts(), grad_activated, false);
  Tensor const grad_hidden = gate_ ? context.arena.allocate(kept.hidden.dtype(), kept.hidden.shape()) : grad_activated;
  ActivationCall call = activation_call(context, kept);
  call.output = kept.activated.rows(0, places);
  Tensor const of_hidden = grad_hidden.rows(0, places);
  activation_->backward(context.execution, call, grad_activated.rows(0, places),
                        {half(of_hidden, 0), half(of_hidden, 1)});
  up_.backward(context, gate_ ? half(grad_hidden, 1) : grad_hidden, rows, kept.counts(), grad, false);
  if (gate_) {
    gate_->backward(context, half(grad_hidden, 0), rows, kept.counts(), grad, true);
  }
}

/// Adds to the gradients of the router's matrix and of x (+=).
void MixtureOfExperts::router_backward(LayerContext& context, Activations const& kept, Tensor const& x,
                                       Tensor const& grad_weights, Tensor const& grad_x) const {
  // One rank has the losses' gradient, as the ranks' parts are summed.
  double const scale = region_.first() ? context.loss_scale : 0;
  ExpertLossFactors const factors{scale * mixture_.losses.balance, scale * mixture_.losses.z};
  Tensor const grad_logits = context.arena.allocate(x.dtype(), kept.call.logits.shape());
  routing_->backward(context.execution, kept.call, kept.routes, factors, grad_weights, grad_logits);
  if (!router_.gradient.empty()) {
    gemm_->multiply(
        context.execution,
        {.a = grad_logits, .b = x, .c = router_.gradient, .bias = {}, .transpose_a = true, .accumulate = true});
  }
  gemm_->multiply(context.execution, {.a = grad_logits,
                                      .b = router_.value,
                                      .c = grad_x,
                                      .bias = {},
                                      .accumulate = true,
                                      .b_weight = router_.weight_version()});
}

std::vector<OptionDescription> mixture_options() {
  using Option = OptionDescription;
  return {{.name = "experts", .meaning = "number of feed-forward networks; default: 8", .min = 1},
          {.name = "experts_per_token",
           .meaning = "networks that each token is given to; default: 2, or 1 of one expert",
           .min = 1},
          {.name = "scoring",
           .type = Option::Type::string,
           .meaning = "scores of the experts, from the router's logits; default: softmax",
           .choices = {value_names<ExpertScoring>.begin(), value_names<ExpertScoring>.end()}},
          Option::boolean("normalize_weights",
                          "the weights of a token's experts are divided by their sum; default: true, except for one"),
          Option::number("capacity_factor",
                         "in training an expert drops what exceeds this multiple of an even share; default: 0, none"),
          Option::number("load_balance_loss", "factor of the loss of an uneven load; default: 0.01"),
          Option::number("router_z_loss", "factor of the loss log²Z of the router's logits; default: 0"),
          Option::number("balance_bias_rate",
                         "change of each expert's bias in a step, which evens out the load; default: there is none"),
          {.name = "shared_d_ff", .meaning = "columns of an expert for all tokens; default: 0, none"}};
}

Cost mixture_cost(ModelConfig const& keys, LayerOptions const& options, LayerLoad const& load) {
  Mixture const mixture(options);
  ActivationProblem const activation = activation_problem(load.dtype, keys.activation);
  LayerLoad routed = load;
  routed.tokens *= static_cast<double>(mixture.chosen);
  double const others = static_cast<double>(mixture.experts - 1) * static_cast<double>(keys.d_model * keys.d_ff) *
                        static_cast<double>(size_of(load.dtype));
  auto const experts = [&](char const* name, std::int64_t inputs, std::int64_t outputs) {
    return projection_cost(keys, routed, load.path + name, inputs, outputs) + Cost{0, others};
  };
  Cost sum = projection_cost(keys, load, load.path + ".router", keys.d_model, mixture.experts) +
             experts(".up", keys.d_model, keys.d_ff) + experts(".down", keys.d_ff, keys.d_model) +
             forward_cost(activation, routed.tokens * static_cast<double>(keys.d_ff));
  if (activation.gated) {
    sum += experts(".gate", keys.d_model, keys.d_ff);
  }
  if (mixture.shared_columns > 0) {
    double const matrices = activation.gated ? 3 : 2;
    sum += matrices * projection_cost(keys, load, load.path + ".shared.up", keys.d_model, mixture.shared_columns) +
           forward_cost(activation, load.tokens * static_cast<double>(mixture.shared_columns));
  }
  return sum;
}

std::optional<std::string> unsupported_reason(ModelConfig const& keys, LayerOptions const& options,
                                              LayerUse const& use) {
  Mixture const mixture(options);
  if (mixture.capacity_factor > 0 && use.context > 1) {
    return fmt::format(
        "{}: the order in which an expert drops tokens is that of a micro-batch, which parallel.context "
        "would divide",
        options.place("capacity_factor"));
  }
  auto const uneven = uneven_over_tensor(keys.place("d_ff"), keys.d_ff, use);
  return uneven || mixture.shared_columns == 0
             ? uneven
             : uneven_over_tensor(options.place("shared_d_ff"), mixture.shared_columns, use);
}

std::vector<LayerTrial> mixture_trials() {
  auto const count = [](std::int64_t number) { return OptionValue(number); };
  return {{.name = "no options"},
          {.name = "one expert each", .options = {{"experts", count(3)}, {"experts_per_token", count(1)}}},
          {.name = "gated",
           .set = [](ModelConfig& keys) { keys.activation = "swiglu"; },
           .options = {{"experts", count(4)}, {"normalize_weights", false}}},
          {.name = "sigmoid and a shared expert",
           .set = [](ModelConfig& keys) { keys.biases = false; },
           .options = {{"experts", count(4)}, {"scoring", std::string("sigmoid")}, {"shared_d_ff", count(5)}}},
          {.name = "a bias",
           .options = {{"experts", count(3)}, {"scoring", std::string("sigmoid")}, {"balance_bias_rate", 0.01}}},
          {.name = "a capacity", .options = {{"experts", count(3)}, {"capacity_factor", 0.75}}}};
}

}  // namespace

void register_mixture_of_experts(LayerRegistry& registry) {
  registry.add<MixtureOfExperts>("mixture_of_experts", {.options = mixture_options(),
                                                        .cost = mixture_cost,
                                                        .unsupported_reason = unsupported_reason,
                                                        .trials = mixture_trials()});
}

}  // namespace heddle
