#include "support/factories.hpp"
#include "terms.hpp"

namespace heddle {
namespace {

/// All in float64.
struct ReferenceExpertRouting {
  template <class Real>
  static void route(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes) {
    kernels::make_routes<Real, double>(execution, call, routes);
  }

  template <class Real>
  static void losses(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes,
                     ExpertLossFactors const& factors, Tensor const& loss) {
    kernels::RoutesView<Real> const view(call, routes);
    double* const result = loss.data<double>();
    ExpertLossFactors const by = factors;
    kernels::for_each(
        execution, "heddle::reference_routing_losses", 1, KOKKOS_LAMBDA(std::int64_t) {
          double sum = 0;
          for (std::int64_t r = 0; r < view.rows; ++r) {
            sum += view.template loss<double>(r, by);
          }
          *result = sum;
        });
  }

  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void backward(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes,
                       ExpertLossFactors const& factors, Tensor const& grad_weights, Tensor const& grad_logits) {
    kernels::RoutesView<Real> const view(call, routes);
    auto const of_weights = kernels::rows_of<Real>(grad_weights);
    auto const of_logits = kernels::rows_of<Element>(grad_logits);
    ExpertLossFactors const by = factors;
    kernels::for_each(
        execution, "heddle::reference_routing_gradient", view.rows, KOKKOS_LAMBDA(std::int64_t r) {
          view.template gradient<double>(r, by, of_weights[r], [&](std::int64_t expert, double value) {
            of_logits[r][expert] = kernels::narrow<Element>(value);
          });
        });
  }

  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void combine(Execution& execution, Tensor const& place, Tensor const& weights, Tensor const& from,
                      Tensor const& to) {
    auto const places = kernels::rows_of<std::int32_t>(place);
    auto const factors = kernels::rows_of<Real>(weights);
    auto const sources = kernels::rows_of<Element>(from);
    auto const targets = kernels::rows_of<Element>(to);
    std::int64_t const choices = place.dim(1);
    std::int64_t const columns = to.dim(1);
    kernels::for_each(
        execution, "heddle::reference_combine", to.dim(0), KOKKOS_LAMBDA(std::int64_t r) {
          for (std::int64_t c = 0; c < columns; ++c) {
            double sum = 0;
            for (std::int64_t j = 0; j < choices; ++j) {
              std::int64_t const p = places[r][j];
              double const factor = factors ? static_cast<double>(factors[r][j]) : 1;
              sum += p < 0 ? 0 : factor * kernels::wide<double>(sources[p][c]);
            }
            targets[r][c] = kernels::narrow<Element>(sum);
          }
        });
  }

  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void combine_backward(Execution& execution, ExpertRoutes const& routes, Tensor const& from,
                               Tensor const& grad_to, Tensor const& grad_from, Tensor const& grad_weights) {
    auto const places = kernels::rows_of<std::int32_t>(routes.place);
    auto const factors = kernels::rows_of<Real>(routes.weights);
    auto const of_weights = kernels::rows_of<Real>(grad_weights);
    auto const sources = kernels::rows_of<Element>(from);
    auto const of_sources = kernels::rows_of<Element>(grad_from);
    auto const of_targets = kernels::rows_of<Element>(grad_to);
    std::int64_t const choices = routes.place.dim(1);
    std::int64_t const columns = from.dim(1);
    kernels::for_each(
        execution, "heddle::reference_combine_gradient", routes.place.dim(0), KOKKOS_LAMBDA(std::int64_t r) {
          for (std::int64_t j = 0; j < choices; ++j) {
            std::int64_t const p = places[r][j];
            double product = 0;
            for (std::int64_t c = 0; p >= 0 && c < columns; ++c) {
              auto const upstream = kernels::wide<double>(of_targets[r][c]);
              product += upstream * kernels::wide<double>(sources[p][c]);
              of_sources[p][c] = kernels::narrow<Element>(static_cast<double>(factors[r][j]) * upstream);
            }
            of_weights[r][j] = static_cast<Real>(product);
          }
        });
  }
};

}  // namespace

void add_expert_routing_kernels(KernelRegistries& registries) {
  registries.of<ExpertRouting>().add("reference", priorities::reference,
                                     std::make_shared<ExpertRoutingFrontEnd<ReferenceExpertRouting>>());
}

}  // namespace heddle
