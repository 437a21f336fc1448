#include <fmt/format.h>

#include <cmath>
#include <heddle/core/base/activation_functions.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/registry.hpp>
#include <heddle/core/operations/expert_routing.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <numeric>

#include "expert_exchange.hpp"
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
  void attend(LayerContext& context, Direction direction, Saved& saved) const override;

 private:
  /// Memory of a forward pass for the rows of this rank's experts, from whichever rank they come.
  struct ExpertWork {
    ExpertExchange::Rows moved;
    Tensor rows;              ///< inputs, where they come from several ranks; otherwise they are gathered again
    Tensor sample, position;  ///< the same, for dropout
    Tensor hidden;            ///< before the activation: up(x), or gate(x) and up(x) side by side
    Tensor activated;         ///< after activation and dropout
  };
  /// Memory of a forward pass. `outputs` has a row for each place of the routes.
  struct Activations {
    Tensor x;  ///< this rank's rows
    ExpertRoutingCall call;
    ExpertRoutes routes;
    ExpertWork work;
    Tensor outputs;  ///< of the experts
    Saved shared;

    ExpertLinear::Counts counts() const {
      return {routes.host_counts.data<std::int32_t>(), static_cast<std::size_t>(routes.host_counts.size())};
    }
    /// The places that are used: at most those there are.
    std::int64_t places() const { return std::accumulate(counts().begin(), counts().end(), std::int64_t{0}); }
  };

  void allocate(LayerContext& context, Tensor const& input, Activations& kept) const;
  void route(LayerContext& context, Activations const& kept) const;
  void count(LayerContext& context, Activations const& kept) const;
  void add_losses(LayerContext& context, Activations const& kept) const;
  Tensor dispatched(LayerContext& context, Activations const& kept) const;
  Dropout dropout_at_places(LayerContext& context, Activations const& kept) const;
  void plan_work(LayerContext& context, DType dtype, ExpertLinear::Counts counts, ExpertWork& work) const;
  ActivationCall activation_call(ExpertWork const& work, Dropout const& dropout) const;
  void experts_forward(LayerContext& context, ExpertWork const& work, Tensor const& rows, Dropout const& dropout,
                       Tensor const& outputs) const;
  void experts_backward(LayerContext& context, ExpertWork const& work, Tensor const& rows, Dropout const& dropout,
                        Tensor const& grad) const;
  void router_backward(LayerContext& context, Activations const& kept, Tensor const& grad_weights,
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
  ExpertExchange exchange_;
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
      exchange_(spec, mixture_.experts),
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
  kept.x = region_.enter(context, input);
  std::int64_t const rows = kept.x.dim(0);
  std::int64_t const places = rows * mixture_.chosen;
  DType const real = statistics_dtype(input.dtype());
  auto const get = [&](DType dtype, Shape const& shape) { return context.arena.allocate(dtype, shape); };
  Shape const choices{rows, mixture_.chosen};
  Shape const experts{mixture_.experts};
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
  kept.outputs = get(input.dtype(), {places, input.dim(1)});
  // An even load, which stays where kernels compute nothing: a plan of memory and time.
  for (std::int64_t expert = 0; expert < mixture_.experts; ++expert) {
    kept.routes.host_counts.data<std::int32_t>()[expert] =
        static_cast<std::int32_t>(share(places, expert, mixture_.experts).count());
  }
}

void MixtureOfExperts::route(LayerContext& context, Activations const& kept) const {
  ArenaScope const scope(context.arena);
  gemm_->multiply(context.execution, {.a = kept.x,
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
Tensor MixtureOfExperts::dispatched(LayerContext& context, Activations const& kept) const {
  std::int64_t const places = kept.places();
  Tensor const rows = context.arena.allocate(kept.x.dtype(), {places, kept.x.dim(1)});
  tensor_ops_->gather_rows(context.execution, kept.x, kept.routes.row.rows(0, places), rows);
  return rows;
}

Dropout MixtureOfExperts::dropout_at_places(LayerContext& context, Activations const& kept) const {
  Dropout dropout = make_dropout(context, dropout_, dropout_name_, side_);
  if (dropout.active()) {
    std::int64_t const places = kept.places();
    for (Tensor* const of_rows : {&dropout.sample, &dropout.position}) {
      Tensor const of_places = context.arena.allocate(DType::float32, {places, 1});
      Tensor const bits = of_rows->with_dtype(DType::float32).reshaped({of_rows->dim(0), 1});
      tensor_ops_->gather_rows(context.execution, bits, kept.routes.row.rows(0, places), of_places);
      *of_rows = of_places.reshaped({places}).with_dtype(DType::int32);
    }
  }
  return dropout;
}

/// Finds the rows of this rank's experts, and allocates what their work keeps. Collective over the exchange.
void MixtureOfExperts::plan_work(LayerContext& context, DType dtype, ExpertLinear::Counts counts,
                                 ExpertWork& work) const {
  work.moved = exchange_.plan(context, counts);
  std::int64_t const rows = work.moved.total();
  work.hidden = context.arena.allocate(dtype, {rows, (gate_ ? 2 : 1) * up_.local_outputs()});
  work.activated = context.arena.allocate(dtype, {rows, up_.local_outputs()});
  work.rows = work.sample = work.position = Tensor();
  if (exchange_.moves()) {
    work.rows = context.arena.allocate(dtype, {rows, down_.outputs()});
    if (context.training && dropout_ > 0) {
      work.sample = context.arena.allocate(DType::int32, {rows});
      work.position = context.arena.allocate(DType::int32, {rows});
    }
  }
}

ActivationCall MixtureOfExperts::activation_call(ExpertWork const& work, Dropout const& dropout) const {
  ActivationCall call{problem_.function, half(work.hidden, 0), dropout};
  call.gate = half(work.hidden, 1);
  call.dropout.first_column = up_.first_output();
  if (!work.sample.empty()) {
    call.dropout.sample = work.sample;
    call.dropout.position = work.position;
  }
  return call;
}

/// outputs = those of the experts for `rows`, which are at their places, as is what `dropout` has.
void MixtureOfExperts::experts_forward(LayerContext& context, ExpertWork const& work, Tensor const& rows,
                                       Dropout const& dropout, Tensor const& outputs) const {
  exchange_.to_experts(context, rows, work.moved, work.rows);
  if (!work.sample.empty()) {
    exchange_.to_experts(context, dropout.sample, work.moved, work.sample);
    exchange_.to_experts(context, dropout.position, work.moved, work.position);
  }
  Tensor const x = exchange_.moves() ? work.rows : rows;
  if (gate_) {
    gate_->forward(context, x, work.moved.counts, half(work.hidden, 0));
  }
  up_.forward(context, x, work.moved.counts, gate_ ? half(work.hidden, 1) : work.hidden);
  if (work.moved.total() > 0) {
    activation_->forward(context.execution, activation_call(work, dropout), work.activated);
  }
  Tensor const y = exchange_.moves() ? context.arena.allocate(x.dtype(), x.shape()) : outputs;
  down_.forward(context, work.activated, work.moved.counts, y);
  exchange_.from_experts(context, y, work.moved, outputs);
}

HiddenStates MixtureOfExperts::forward(LayerContext& context, HiddenStates const& input, Saved& saved) const {
  Tensor const y = context.arena.allocate(input.hidden.dtype(), input.hidden.shape());
  auto& kept = saved.renew<Activations>();
  allocate(context, input.hidden, kept);
  route(context, kept);
  plan_work(context, kept.x.dtype(), kept.counts(), kept.work);
  {
    ArenaScope const scope(context.arena);
    experts_forward(context, kept.work, dispatched(context, kept), dropout_at_places(context, kept),
                    kept.outputs.rows(0, kept.places()));
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
  Tensor const grad_input = context.arena.allocate(grad_output.hidden.dtype(), grad_output.hidden.shape());
  ArenaScope const scope(context.arena);
  Tensor const grad_y = region_.enter(context, grad_output.hidden);
  Tensor const partial = region_.partial_of(context, grad_input);
  Tensor const grad_weights = context.arena.allocate(kept.routes.weights.dtype(), kept.routes.weights.shape());
  Tensor const grad = context.arena.allocate(kept.outputs.dtype(), kept.outputs.shape());
  routing_->combine_backward(context.execution, kept.routes, kept.outputs, grad_y, grad, grad_weights);
  {
    ArenaScope const of_experts(context.arena);
    Tensor const rows = exchange_.moves() ? Tensor() : dispatched(context, kept);
    Dropout const dropout =
        exchange_.moves() ? make_dropout(context, dropout_, dropout_name_, side_) : dropout_at_places(context, kept);
    experts_backward(context, kept.work, rows, dropout, grad.rows(0, kept.places()));
  }
  routing_->combine(context.execution, kept.routes.place, Tensor(), grad, partial);
  router_backward(context, kept, grad_weights, partial);
  region_.leave(context, partial, grad_input);
  if (shared_ != nullptr) {
    tensor_ops_->add(context.execution, grad_input,
                     shared_->backward(context, {grad_output.hidden, Tensor()}, kept.shared).hidden);
  }
  return {grad_input, grad_output.encoder_output};
}

void MixtureOfExperts::attend(LayerContext& context, Direction direction, Saved& saved) const {
  if (!exchange_.moves()) {
    return;
  }
  DType const dtype = problem_.dtype;
  Tensor const none = context.arena.allocate(dtype, {0, down_.outputs()});
  Dropout dropout = make_dropout(context, dropout_, dropout_name_, side_);
  if (direction == Direction::backward) {
    experts_backward(context, saved.get<ExpertWork>(), Tensor(), dropout, none);
    return;
  }
  auto& work = saved.renew<ExpertWork>();
  plan_work(context, dtype, std::vector<std::int32_t>(static_cast<std::size_t>(mixture_.experts), 0), work);
  dropout.sample = dropout.position = context.arena.allocate(DType::int32, {0});
  experts_forward(context, work, none, dropout, none);
}

/// Replaces `grad`, the gradient of the experts' outputs at their places, by that of the rows. `rows` and what
/// `dropout` has are those of the forward pass where nothing is moved.
void MixtureOfExperts::experts_backward(LayerContext& context, ExpertWork const& work, Tensor const& rows,
                                        Dropout const& dropout, Tensor const& grad) const {
  ArenaScope const scope(context.arena);
  bool const moves = exchange_.moves();
  ExpertLinear::Counts const counts = work.moved.counts;
  Tensor const x = moves ? work.rows : rows;
  Tensor const grad_rows = moves ? context.arena.allocate(x.dtype(), x.shape()) : grad;
  exchange_.to_experts(context, grad, work.moved, grad_rows);
  Tensor const grad_activated = context.arena.allocate(work.activated.dtype(), work.activated.shape());
  down_.backward(context, grad_rows, work.activated, counts, grad_activated, false);
  Tensor const grad_hidden = gate_ ? context.arena.allocate(work.hidden.dtype(), work.hidden.shape()) : grad_activated;
  if (work.moved.total() > 0) {
    ActivationCall call = activation_call(work, dropout);
    call.output = work.activated;
    activation_->backward(context.execution, call, grad_activated, {half(grad_hidden, 0), half(grad_hidden, 1)});
  }
  up_.backward(context, gate_ ? half(grad_hidden, 1) : grad_hidden, x, counts, grad_rows, false);
  if (gate_) {
    gate_->backward(context, half(grad_hidden, 0), x, counts, grad_rows, true);
  }
  exchange_.from_experts(context, grad_rows, work.moved, grad);
}

/// Adds to the gradients of the router's matrix and of x (+=).
void MixtureOfExperts::router_backward(LayerContext& context, Activations const& kept, Tensor const& grad_weights,
                                       Tensor const& grad_x) const {
  // One rank has the losses' gradient, as the ranks' parts are summed.
  double const scale = region_.first() ? context.loss_scale : 0;
  ExpertLossFactors const factors{scale * mixture_.losses.balance, scale * mixture_.losses.z};
  Tensor const grad_logits = context.arena.allocate(kept.x.dtype(), kept.call.logits.shape());
  routing_->backward(context.execution, kept.call, kept.routes, factors, grad_weights, grad_logits);
  if (!router_.gradient.empty()) {
    gemm_->multiply(
        context.execution,
        {.a = grad_logits, .b = kept.x, .c = router_.gradient, .bias = {}, .transpose_a = true, .accumulate = true});
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
  if (mixture.experts % use.expert != 0) {
    return fmt::format("{} = {} is not a multiple of parallel.expert = {}", options.place("experts"), mixture.experts,
                       use.expert);
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
