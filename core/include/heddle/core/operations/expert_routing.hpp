#pragma once

#include <heddle/core/base/enumerations.hpp>
#include <heddle/core/operations/dispatch.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>

namespace heddle {

/// The scores of a row's experts: softmax over all of its logits, or the sigmoid of each.
enum class ExpertScoring : std::uint8_t { softmax, sigmoid };
template <>
inline constexpr std::array<std::string_view, 2> value_names<ExpertScoring>{"softmax", "sigmoid"};

struct ExpertRoutingProblem {
  DType dtype = DType::float32;  ///< dtype of the rows that are combined
  std::int64_t experts = 0;
  std::int64_t chosen = 0;  ///< experts that each row is given to
};
std::string describe(ExpertRoutingProblem const& problem);

struct ExpertRoutingCall {
  Tensor logits;            ///< [rows, experts] in statistics_dtype
  std::int64_t chosen = 1;  ///< 1 to experts
  ExpertScoring scoring = ExpertScoring::softmax;
  bool normalized = false;  ///< a row's weights are divided by their sum: with softmax, a softmax over the chosen
  /// Above 0: the maximum number of an expert's rows. First choices come before second ones, and rows in their order
  /// (Lepikhin et al. 2021); the others of the expert are dropped.
  std::int64_t capacity = 0;
  /// [experts] in the logits' dtype, or empty: a row's experts are then those with the highest score + bias, in place
  /// of the highest logit. Weights and losses are of the scores alone (Wang et al. 2024).
  Tensor bias = {};
};

/// The rows that each expert gets: the result of a routing, in memory of the caller.
struct ExpertRoutes {
  Tensor scores;   ///< [rows, experts] in statistics_dtype
  Tensor chosen;   ///< int32 [rows, chosen]: experts, the highest (logit, or score + bias) first; of equals, the first
  Tensor weights;  ///< [rows, chosen] in statistics_dtype: the scores of these experts
  /// int32 [rows * chosen]: the row that is at each place, by expert, then by row; -1 after the last place that is
  /// used.
  Tensor row;
  Tensor place;        ///< int32 [rows, chosen]: the place of each choice; -1: it is dropped
  Tensor load;         ///< float64 [experts]: choices of each expert, with those that are dropped
  Tensor counts;       ///< int32 [experts]: places of each expert
  Tensor host_counts;  ///< the same in the host's memory
};

/// Factors of the two auxiliary losses of a routing, which are sums over rows. The first is rows * experts * Σ f_i P_i
/// over the experts i, where f_i is the share of choices that are i and P_i the mean of the rows' scores of i, each
/// divided by the sum of the row's scores (Fedus et al. 2021, equations 4 to 6). f_i follows from ExpertRoutes::load,
/// which may count the choices of other ranks, too, and has no gradient. The second is Σ over rows of log²Z, Z = Σ
/// exp(logit) (Zoph et al. 2022).
struct ExpertLossFactors {
  double balance = 0;
  double z = 0;
};

/// A mixture's choice of experts, and the sum of their outputs. Nothing is added up by atomics: results do not depend
/// on the order in which threads run.
class ExpertRouting : public Operation<ExpertRoutingProblem> {
 public:
  static constexpr char const* operation = "expert_routing";
  static std::shared_ptr<ExpertRouting> observed(ObservedSelection<ExpertRouting> selection);
  /// routes =. Waits for the kernel, as the host needs the counts.
  virtual void route(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes) = 0;
  /// loss [1] in float64 = the sum of the auxiliary losses, times their factors, of the rows of the call.
  virtual void losses(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes,
                      ExpertLossFactors const& factors, Tensor const& loss) = 0;
  /// grad_logits [rows, experts] in the problem's dtype = the gradient of a loss with grad_weights [rows, chosen] and
  /// of `losses`.
  virtual void backward(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes,
                        ExpertLossFactors const& factors, Tensor const& grad_weights, Tensor const& grad_logits) = 0;
  /// to[r] = Σ over j of weights[r, j] * from[place[r, j]], without what is dropped. `from` has a row for each place;
  /// empty weights stand for 1.
  virtual void combine(Execution& execution, Tensor const& place, Tensor const& weights, Tensor const& from,
                       Tensor const& to) = 0;
  /// grad_from[place[r, j]] = weights[r, j] * grad_to[r], and grad_weights [rows, chosen] in statistics_dtype = the
  /// products of rows grad_to[r] · from[place[r, j]]; 0 for what is dropped.
  virtual void combine_backward(Execution& execution, ExpertRoutes const& routes, Tensor const& from,
                                Tensor const& grad_to, Tensor const& grad_from, Tensor const& grad_weights) = 0;

 protected:
  /// The front end's check: throws Error where a tensor does not have its dtype and shape.
  static void require_routes(ExpertRoutingCall const& call, ExpertRoutes const& routes);
};

/// The front end of implementations: calls the methods' namesakes in `Functions`, static templates. `route` and
/// `losses` have the type of the logits as their parameter, the others the type of the rows.
template <class Functions>
class ExpertRoutingFrontEnd final : public ExpertRouting {
 public:
  bool supports(ExpertRoutingProblem const& problem) const override { return problem.dtype != DType::int32; }
  void route(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes) override {
    require_routes(call, routes);
    kernels::FloatingTypes::with_real(
        call.logits.dtype(), [&]<class Real>(Real) { Functions::template route<Real>(execution, call, routes); });
    copy_to_host(routes.host_counts.raw(), routes.counts, &execution);
  }
  void losses(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes,
              ExpertLossFactors const& factors, Tensor const& loss) override {
    loss.require(DType::float64, {1}, "a routing's loss");
    kernels::FloatingTypes::with_real(call.logits.dtype(), [&]<class Real>(Real) {
      Functions::template losses<Real>(execution, call, routes, factors, loss);
    });
  }
  void backward(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes,
                ExpertLossFactors const& factors, Tensor const& grad_weights, Tensor const& grad_logits) override {
    grad_weights.require(call.logits.dtype(), routes.weights.shape(), "a routing's grad_weights");
    kernels::with_floating(grad_logits.dtype(), [&]<class Element>(Element) {
      Functions::template backward<Element>(execution, call, routes, factors, grad_weights, grad_logits);
    });
  }
  void combine(Execution& execution, Tensor const& place, Tensor const& weights, Tensor const& from,
               Tensor const& to) override {
    to.require(from.dtype(), {place.dim(0), from.dim(1)}, "combined rows");
    kernels::with_floating(from.dtype(), [&]<class Element>(Element) {
      Functions::template combine<Element>(execution, place, weights, from, to);
    });
  }
  void combine_backward(Execution& execution, ExpertRoutes const& routes, Tensor const& from, Tensor const& grad_to,
                        Tensor const& grad_from, Tensor const& grad_weights) override {
    grad_from.require(from.dtype(), from.shape(), "combine_backward's grad_from");
    grad_to.require(from.dtype(), {routes.place.dim(0), from.dim(1)}, "combine_backward's grad_to");
    kernels::with_floating(from.dtype(), [&]<class Element>(Element) {
      Functions::template combine_backward<Element>(execution, routes, from, grad_to, grad_from, grad_weights);
    });
  }
};

}  // namespace heddle
