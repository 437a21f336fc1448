#include "rows.hpp"
#include "support/factories.hpp"

namespace heddle {
namespace {

using kernels::RecurrenceRows;

/// Columns of a work item.
constexpr std::int64_t width = kernels::dropout_chunk;

/// Calls `body(sequence, first_column, columns)` for each sequence and `width` columns of it.
template <class Element, class Body>
void for_each_strip(Execution& execution, char const* name, RecurrenceRows<Element> const& of, Body const& body) {
  std::int64_t const strips = (of.columns + width - 1) / width;
  std::int64_t const columns = of.columns;
  kernels::for_each(
      execution, name, of.sequences * strips, KOKKOS_LAMBDA(std::int64_t item) {
        std::int64_t const first = item % strips * width;
        body(item / strips, first, columns - first < width ? columns - first : width);
      });
}

/// share[i] = 1 - f of a row's elements.
template <class Element, class Real>
KOKKOS_INLINE_FUNCTION void shares_of(RecurrenceRows<Element> const& of, std::int64_t row, std::int64_t first,
                                      std::int64_t count, Real (&share)[width]) {
  if (of.gate) {
    Element const* const gate = of.gate[row] + first;
    kernels::for_each_of_chunk(
        count, [&](std::int64_t i) { share[i] = Real{1} / (Real{1} + fast_exp(kernels::wide<Real>(gate[i]))); });
  } else {
    Real const all = of.template share<Real>(row);
    kernels::for_each_of_chunk(count, [&](std::int64_t i) { share[i] = all; });
  }
}

template <class Element, class Real>
KOKKOS_INLINE_FUNCTION void run_forward(RecurrenceRows<Element> const& of, std::int64_t sequence, std::int64_t first,
                                        std::int64_t count) {
  Real mean[width] = {};
  Real share[width];
  if (of.state) {
    Real const* const state = of.state[sequence] + first;
    kernels::for_each_of_chunk(count, [&](std::int64_t i) { mean[i] = state[i]; });
  }
  std::int64_t const begin = of.begin[sequence];
  for (std::int64_t row = begin; row < begin + of.length[sequence]; ++row) {
    shares_of(of, row, first, count, share);
    Element const* const x = of.input[row] + first;
    Element* const c = of.output[row] + first;
    kernels::for_each_of_chunk(count, [&](std::int64_t i) {
      mean[i] += share[i] * (kernels::wide<Real>(x[i]) - mean[i]);
      c[i] = kernels::narrow_again<Element>(mean[i]);
    });
  }
  if (of.state) {
    Real* const state = of.state[sequence] + first;
    kernels::for_each_of_chunk(count, [&](std::int64_t i) { state[i] = mean[i]; });
  }
}

template <class Element, class Real>
KOKKOS_INLINE_FUNCTION void run_backward(RecurrenceRows<Element> const& of, std::int64_t sequence, std::int64_t first,
                                         std::int64_t count) {
  Real later[width] = {};
  Real share[width];
  std::int64_t const begin = of.begin[sequence];
  for (std::int64_t row = begin + of.length[sequence]; row-- > begin;) {
    shares_of(of, row, first, count, share);
    Element const* const grad = of.grad_output[row] + first;
    Element* const grad_x = of.grad_input[row] + first;
    kernels::for_each_of_chunk(count, [&](std::int64_t i) { later[i] += kernels::wide<Real>(grad[i]); });
    if (of.grad_gate) {
      Real const present = row > begin ? Real{1} : Real{0};
      Element const* const x = of.input[row] + first;
      Element const* const before = of.output[row > begin ? row - 1 : row] + first;
      Element* const grad_gate = of.grad_gate[row] + first;
      kernels::for_each_of_chunk(count, [&](std::int64_t i) {
        Real const step = present * kernels::wide<Real>(before[i]) - kernels::wide<Real>(x[i]);
        grad_gate[i] = kernels::narrow_again<Element>(later[i] * step * share[i] * (Real{1} - share[i]));
      });
    }
    kernels::for_each_of_chunk(count, [&](std::int64_t i) {
      Real const own = share[i] * later[i];
      grad_x[i] = kernels::narrow_again<Element>(own);
      later[i] -= own;
    });
  }
}

struct KokkosRecurrence {
  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void forward(Execution& execution, RecurrenceCall const& call, Tensor const& output) {
    RecurrenceRows<Element> const of(call, output);
    for_each_strip(
        execution, "heddle::recurrence", of,
        KOKKOS_LAMBDA(std::int64_t sequence, std::int64_t first, std::int64_t count) {
          run_forward<Element, Real>(of, sequence, first, count);
        });
  }
  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void backward(Execution& execution, RecurrenceCall const& call, Tensor const& output,
                       Tensor const& grad_output, RecurrenceGradients const& gradients) {
    RecurrenceRows<Element> const of(call, output, grad_output, gradients);
    for_each_strip(
        execution, "heddle::recurrence_gradient", of,
        KOKKOS_LAMBDA(std::int64_t sequence, std::int64_t first, std::int64_t count) {
          run_backward<Element, Real>(of, sequence, first, count);
        });
  }
};

}  // namespace

void add_portable_recurrence_kernels(KernelRegistries& registries) {
  registries.of<Recurrence>().add("kokkos", priorities::portable,
                                  std::make_shared<RecurrenceFrontEnd<KokkosRecurrence>>());
}

}  // namespace heddle
