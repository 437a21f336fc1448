#include <heddle/core/operations/row_lanes.hpp>

#include "support/factories.hpp"
#include "terms.hpp"

namespace heddle {
namespace {

using kernels::ArithmeticType;

struct KokkosExpertRouting {
  template <class Real>
  static void route(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes) {
    kernels::make_routes<Real, Real>(execution, call, routes);
  }

  template <class Real>
  static void losses(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes,
                     ExpertLossFactors const& factors, Tensor const& loss) {
    using Total = kernels::Sum<double>;
    kernels::RoutesView<Real> const view(call, routes);
    double* const result = loss.data<double>();
    ExpertLossFactors const by = factors;
    kernels::for_each_row(
        execution, "heddle::routing_losses", 1, kernels::whole_team,
        KOKKOS_LAMBDA(std::int64_t, kernels::RowLanes const& lanes) {
          auto const sum = lanes.template reduce<Total>(view.rows, [&](std::int64_t r, Total& lane_sum) {
            lane_sum.value += static_cast<double>(view.template loss<Real>(r, by));
          });
          lanes.once([&] { *result = sum.value; });
        });
  }

  template <class Element, class Real = ArithmeticType<Element>>
  static void backward(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes,
                       ExpertLossFactors const& factors, Tensor const& grad_weights, Tensor const& grad_logits) {
    kernels::RoutesView<Real> const view(call, routes);
    auto const of_weights = kernels::rows_of<Real>(grad_weights);
    auto const of_logits = kernels::rows_of<Element>(grad_logits);
    ExpertLossFactors const by = factors;
    kernels::for_each(
        execution, "heddle::routing_gradient", view.rows, KOKKOS_LAMBDA(std::int64_t r) {
          view.template gradient<Real>(r, by, of_weights[r], [&](std::int64_t expert, Real value) {
            of_logits[r][expert] = kernels::narrow<Element>(value);
          });
        });
  }

  template <class Element, class Real = ArithmeticType<Element>>
  static void combine(Execution& execution, Tensor const& place, Tensor const& weights, Tensor const& from,
                      Tensor const& to) {
    auto const places = kernels::rows_of<std::int32_t>(place);
    auto const factors = kernels::rows_of<Real>(weights);
    auto const sources = kernels::rows_of<Element>(from);
    auto const targets = kernels::rows_of<Element>(to);
    std::int64_t const choices = place.dim(1);
    std::int64_t const columns = to.dim(1);
    std::int64_t const chunks = (columns + chunk - 1) / chunk;
    kernels::for_each(
        execution, "heddle::combine_experts", to.dim(0) * chunks, KOKKOS_LAMBDA(std::int64_t index) {
          std::int64_t const r = index / chunks;
          std::int64_t const begin = index % chunks * chunk;
          std::int64_t const count = columns - begin < chunk ? columns - begin : chunk;
          Real sums[chunk];
          for (std::int64_t i = 0; i < chunk; ++i) {
            sums[i] = 0;
          }
          for (std::int64_t j = 0; j < choices; ++j) {
            std::int64_t const p = places[r][j];
            Real const factor = factors ? factors[r][j] : Real{1};
            Element const* const source = sources[p < 0 ? 0 : p] + begin;
            for (std::int64_t i = 0; p >= 0 && i < count; ++i) {
              sums[i] += factor * kernels::wide<Real>(source[i]);
            }
          }
          for (std::int64_t i = 0; i < count; ++i) {
            targets[r][begin + i] = kernels::narrow<Element>(sums[i]);
          }
        });
  }

  template <class Element, class Real = ArithmeticType<Element>>
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
        execution, "heddle::combine_experts_gradient", routes.place.dim(0) * choices,
        KOKKOS_LAMBDA(std::int64_t index) {
          std::int64_t const r = index / choices;
          std::int64_t const j = index % choices;
          std::int64_t const p = places[r][j];
          Real product = 0;
          if (p >= 0) {
            Real const factor = factors[r][j];
            Element const* const KOKKOS_RESTRICT upstream = of_targets[r];
            Element const* const KOKKOS_RESTRICT source = sources[p];
            Element* const KOKKOS_RESTRICT result = of_sources[p];
            for (std::int64_t c = 0; c < columns; ++c) {
              auto const value = kernels::wide<Real>(upstream[c]);
              product += value * kernels::wide<Real>(source[c]);
              result[c] = kernels::narrow_again<Element>(factor * value);
            }
          }
          of_weights[r][j] = product;
        });
  }

 private:
  /// Columns that a thread sums at a time.
  static constexpr std::int64_t chunk = 128;
};

}  // namespace

void add_portable_expert_routing_kernels(KernelRegistries& registries) {
  registries.of<ExpertRouting>().add("kokkos", priorities::portable,
                                     std::make_shared<ExpertRoutingFrontEnd<KokkosExpertRouting>>());
}

}  // namespace heddle
