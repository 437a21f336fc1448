#include "rows.hpp"
#include "support/factories.hpp"

namespace heddle {
namespace {

using kernels::RecurrenceRows;

/// f of an element.
template <class Element>
KOKKOS_INLINE_FUNCTION double kept(RecurrenceRows<Element> const& of, std::int64_t row, std::int64_t column) {
  return of.gate ? 1 / (1 + std::exp(-kernels::wide<double>(of.gate[row][column])))
                 : 1 - of.template share<double>(row);
}

/// The definition, column by column in float64.
struct ReferenceRecurrence {
  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void forward(Execution& execution, RecurrenceCall const& call, Tensor const& output) {
    RecurrenceRows<Element> const of(call, output);
    kernels::for_each(
        execution, "heddle::reference_recurrence", of.sequences * of.columns, KOKKOS_LAMBDA(std::int64_t item) {
          std::int64_t const sequence = item / of.columns;
          std::int64_t const column = item % of.columns;
          std::int64_t const first = of.begin[sequence];
          double mean = of.state ? static_cast<double>(of.state[sequence][column]) : 0;
          for (std::int64_t row = first; row < first + of.length[sequence]; ++row) {
            double const f = kept(of, row, column);
            mean = f * mean + (1 - f) * kernels::wide<double>(of.input[row][column]);
            of.output[row][column] = kernels::narrow<Element>(mean);
          }
          if (of.state) {
            of.state[sequence][column] = static_cast<Real>(mean);
          }
        });
  }

  template <class Element>
  static void backward(Execution& execution, RecurrenceCall const& call, Tensor const& output,
                       Tensor const& grad_output, RecurrenceGradients const& gradients) {
    RecurrenceRows<Element> const of(call, output, grad_output, gradients);
    kernels::for_each(
        execution, "heddle::reference_recurrence_gradient", of.sequences * of.columns,
        KOKKOS_LAMBDA(std::int64_t item) {
          std::int64_t const sequence = item / of.columns;
          std::int64_t const column = item % of.columns;
          std::int64_t const first = of.begin[sequence];
          double later = 0;  // f g of the next row
          for (std::int64_t row = first + of.length[sequence]; row-- > first;) {
            double const f = kept(of, row, column);
            double const grad = kernels::wide<double>(of.grad_output[row][column]) + later;
            if (of.grad_gate) {
              double const before = row > first ? kernels::wide<double>(of.output[row - 1][column]) : 0;
              double const x = kernels::wide<double>(of.input[row][column]);
              of.grad_gate[row][column] = kernels::narrow<Element>(grad * (before - x) * f * (1 - f));
            }
            of.grad_input[row][column] = kernels::narrow<Element>((1 - f) * grad);
            later = f * grad;
          }
        });
  }
};

}  // namespace

void add_recurrence_kernels(KernelRegistries& registries) {
  registries.of<Recurrence>().add("reference", priorities::reference,
                                  std::make_shared<RecurrenceFrontEnd<ReferenceRecurrence>>());
}

}  // namespace heddle
