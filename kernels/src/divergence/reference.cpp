#include "support/factories.hpp"
#include "terms.hpp"

namespace heddle {
namespace {

template <class Real>
KOKKOS_INLINE_FUNCTION double probability(double logit, Real const* statistics) {
  return std::exp(logit - static_cast<double>(statistics[0])) / static_cast<double>(statistics[1]);
}

struct ReferenceDivergence : kernels::DivergenceLosses {
  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void forward(Execution& execution, DivergenceCall const& call, Tensor const& sums) {
    kernels::DivergenceView<Element> const view(call);
    auto const out = kernels::rows_of<Real>(sums);
    kernels::for_each(
        execution, "heddle::reference_divergence", view.rows, KOKKOS_LAMBDA(std::int64_t row) {
          double of_first = 0;
          double of_second = 0;
          for (std::int64_t c = 0; c < view.columns; ++c) {
            auto const a = kernels::wide<double>(view.logits.first[row][c]);
            auto const b = kernels::wide<double>(view.logits.second[row][c]);
            of_first += probability(a, view.statistics.first[row]) * (a - b);
            of_second += probability(b, view.statistics.second[row]) * (b - a);
          }
          out[row][0] = static_cast<Real>(of_first);
          out[row][1] = static_cast<Real>(of_second);
        });
  }

  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void backward(Execution& execution, DivergenceCall const& call, Tensor const& sums, double factor,
                       std::array<Tensor, 2> const& gradients) {
    kernels::DivergenceView<Element> const view(call);
    auto const of_row = kernels::rows_of<Real>(sums);
    kernels::BothPasses<Element> const into(gradients);
    kernels::for_each(
        execution, "heddle::reference_divergence_gradient", view.rows, KOKKOS_LAMBDA(std::int64_t row) {
          double const scale = factor * static_cast<double>(view.weight(row));
          for (std::int64_t c = 0; c < view.columns; ++c) {
            auto const a = kernels::wide<double>(view.logits.first[row][c]);
            auto const b = kernels::wide<double>(view.logits.second[row][c]);
            double const p = probability(a, view.statistics.first[row]);
            double const q = probability(b, view.statistics.second[row]);
            into.first[row][c] =
                kernels::narrow<Element>(scale * (p * (a - b - static_cast<double>(of_row[row][0])) + p - q));
            into.second[row][c] =
                kernels::narrow<Element>(scale * (q * (b - a - static_cast<double>(of_row[row][1])) + q - p));
          }
        });
  }

  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void teach(Execution& execution, DivergenceCall const& call, double factor, Tensor const& sums) {
    kernels::DivergenceView<Element> const view(call);
    auto const out = kernels::rows_of<Real>(sums);
    kernels::for_each(
        execution, "heddle::reference_teach", view.rows, KOKKOS_LAMBDA(std::int64_t row) {
          double const scale = factor * static_cast<double>(view.weight(row));
          double sum = 0;
          for (std::int64_t c = 0; c < view.columns; ++c) {
            auto const a = kernels::wide<double>(view.logits.first[row][c]);
            auto const b = kernels::wide<double>(view.logits.second[row][c]);
            double const q = probability(b, view.statistics.second[row]);
            sum += q * (b - a);
            view.logits.second[row][c] =
                kernels::narrow<Element>(scale * (probability(a, view.statistics.first[row]) - q));
          }
          out[row][0] = static_cast<Real>(sum);
        });
  }
};

}  // namespace

void add_divergence_kernels(KernelRegistries& registries) {
  registries.of<Divergence>().add("reference", priorities::reference,
                                  std::make_shared<DivergenceFrontEnd<ReferenceDivergence>>());
}

}  // namespace heddle
