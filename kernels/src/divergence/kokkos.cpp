#include "support/factories.hpp"
#include "terms.hpp"

namespace heddle {
namespace {

struct KokkosDivergence : kernels::DivergenceLosses {
  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void forward(Execution& execution, DivergenceCall const& call, Tensor const& sums) {
    kernels::DivergenceView<Element> const view(call);
    auto const out = kernels::rows_of<Real>(sums);
    kernels::for_each(
        execution, "heddle::divergence", view.rows, KOKKOS_LAMBDA(std::int64_t row) {
          Element const* const first = view.logits.first[row];
          Element const* const second = view.logits.second[row];
          Real const maximum = view.statistics.first[row][0];
          Real const other_maximum = view.statistics.second[row][0];
          Real of_first = 0;
          Real of_second = 0;
          for (std::int64_t c = 0; c < view.columns; ++c) {
            auto const a = kernels::wide<Real>(first[c]);
            auto const b = kernels::wide<Real>(second[c]);
            of_first += exp_of_negative(a - maximum) * (a - b);
            of_second += exp_of_negative(b - other_maximum) * (b - a);
          }
          out[row][0] = of_first / view.statistics.first[row][1];
          out[row][1] = of_second / view.statistics.second[row][1];
        });
  }

  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void backward(Execution& execution, DivergenceCall const& call, Tensor const& sums, double factor,
                       std::array<Tensor, 2> const& gradients) {
    kernels::DivergenceView<Element> const view(call);
    auto const of_row = kernels::rows_of<Real>(sums);
    kernels::BothPasses<Element> const into(gradients);
    kernels::for_each(
        execution, "heddle::divergence_gradient", view.rows, KOKKOS_LAMBDA(std::int64_t row) {
          Element const* const first = view.logits.first[row];
          Element const* const second = view.logits.second[row];
          Element* const first_gradient = into.first[row];
          Element* const second_gradient = into.second[row];
          Real const scale = static_cast<Real>(factor) * view.weight(row);
          Real const maximum = view.statistics.first[row][0];
          Real const other_maximum = view.statistics.second[row][0];
          Real const share = scale / view.statistics.first[row][1];
          Real const other_share = scale / view.statistics.second[row][1];
          Real const more = 1 - of_row[row][0];
          Real const other_more = 1 - of_row[row][1];
          for (std::int64_t c = 0; c < view.columns; ++c) {
            auto const a = kernels::wide<Real>(first[c]);
            auto const b = kernels::wide<Real>(second[c]);
            Real const p = exp_of_negative(a - maximum) * share;
            Real const q = exp_of_negative(b - other_maximum) * other_share;
            first_gradient[c] = kernels::narrow_again<Element>(p * (a - b + more) - q);
            second_gradient[c] = kernels::narrow_again<Element>(q * (b - a + other_more) - p);
          }
        });
  }

  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void teach(Execution& execution, DivergenceCall const& call, double factor, Tensor const& sums) {
    kernels::DivergenceView<Element> const view(call);
    auto const out = kernels::rows_of<Real>(sums);
    kernels::for_each(
        execution, "heddle::teach", view.rows, KOKKOS_LAMBDA(std::int64_t row) {
          Element const* const student = view.logits.first[row];
          Element* const teacher = view.logits.second[row];
          Real const scale = static_cast<Real>(factor) * view.weight(row);
          Real const maximum = view.statistics.first[row][0];
          Real const other_maximum = view.statistics.second[row][0];
          Real const share = 1 / view.statistics.first[row][1];
          Real const other_share = 1 / view.statistics.second[row][1];
          Real sum = 0;
          for (std::int64_t c = 0; c < view.columns; ++c) {
            auto const a = kernels::wide<Real>(student[c]);
            auto const b = kernels::wide<Real>(teacher[c]);
            Real const q = exp_of_negative(b - other_maximum) * other_share;
            sum += q * (b - a);
            teacher[c] = kernels::narrow_again<Element>(scale * (exp_of_negative(a - maximum) * share - q));
          }
          out[row][0] = sum;
        });
  }
};

}  // namespace

void add_portable_divergence_kernels(KernelRegistries& registries) {
  registries.of<Divergence>().add("kokkos", priorities::portable,
                                  std::make_shared<DivergenceFrontEnd<KokkosDivergence>>());
}

}  // namespace heddle
