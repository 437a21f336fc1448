#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/expert_routing.hpp>
#include <heddle/core/operations/observation.hpp>

namespace heddle {

namespace {

class ObservedExpertRouting final : public ObservedKernel<ExpertRouting> {
 public:
  using ObservedKernel::ObservedKernel;

  void route(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes) override {
    pass<&ExpertRouting::route>(
        execution,
        traffic("route", {call.logits, routes.scores, routes.chosen, routes.weights, routes.row, routes.place}), call,
        routes);
  }
  void losses(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes,
              ExpertLossFactors const& factors, Tensor const& loss) override {
    pass<&ExpertRouting::losses>(execution, traffic("losses", {call.logits, routes.scores}), call, routes, factors,
                                 loss);
  }
  void backward(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes,
                ExpertLossFactors const& factors, Tensor const& grad_weights, Tensor const& grad_logits) override {
    pass<&ExpertRouting::backward>(execution,
                                   traffic("backward", {call.logits, routes.scores, grad_weights, grad_logits}), call,
                                   routes, factors, grad_weights, grad_logits);
  }
  void combine(Execution& execution, Tensor const& place, Tensor const& weights, Tensor const& from,
               Tensor const& to) override {
    pass<&ExpertRouting::combine>(execution,
                                  traffic("combine", {from, to, place, weights}, weights.empty() ? "" : "weighted"),
                                  place, weights, from, to);
  }
  void combine_backward(Execution& execution, ExpertRoutes const& routes, Tensor const& from, Tensor const& grad_to,
                        Tensor const& grad_from, Tensor const& grad_weights) override {
    pass<&ExpertRouting::combine_backward>(
        execution, traffic("combine backward", {from, grad_from, grad_to, routes.place, grad_weights}), routes, from,
        grad_to, grad_from, grad_weights);
  }
};

}  // namespace

std::string describe(ExpertRoutingProblem const& problem) {
  return fmt::format("{} of {} experts in {}", problem.chosen, problem.experts, name_of(problem.dtype));
}

std::shared_ptr<ExpertRouting> ExpertRouting::observed(ObservedSelection<ExpertRouting> selection) {
  return std::make_shared<ObservedExpertRouting>(std::move(selection));
}

void ExpertRouting::require_routes(ExpertRoutingCall const& call, ExpertRoutes const& routes) {
  std::int64_t const rows = call.logits.dim(0);
  std::int64_t const experts = call.logits.dim(1);
  if (call.chosen < 1 || call.chosen > experts) {
    throw Error("a routing to {} of {} experts", call.chosen, experts);
  }
  if (!call.bias.empty()) {
    call.bias.require(call.logits.dtype(), Shape{experts}, "a routing's bias");
  }
  Shape const choices{rows, call.chosen};
  routes.scores.require(call.logits.dtype(), call.logits.shape(), "a routing's scores");
  routes.chosen.require(DType::int32, choices, "a routing's experts");
  routes.weights.require(call.logits.dtype(), choices, "a routing's weights");
  routes.row.require(DType::int32, Shape{choices.size()}, "a routing's rows");
  routes.place.require(DType::int32, choices, "a routing's places");
  routes.load.require(DType::float64, Shape{experts}, "a routing's load");
  routes.counts.require(DType::int32, Shape{experts}, "a routing's counts");
  routes.host_counts.require(DType::int32, Shape{experts}, "a routing's counts on the host");
}

}  // namespace heddle
