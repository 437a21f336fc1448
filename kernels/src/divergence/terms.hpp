#pragma once

#include <heddle/core/operations/divergence.hpp>
#include <heddle/core/operations/kernel_author.hpp>

namespace heddle::kernels {

/// Two passes' rows of a tensor each.
template <class Element>
struct BothPasses {
  Rows<Element> first, second;

  explicit BothPasses(std::array<Tensor, 2> const& tensors)
      : first(rows_of<Element>(tensors[0])), second(rows_of<Element>(tensors[1])) {}
};

/// The logits of a call, and how a row of it counts.
template <class Element>
struct DivergenceView {
  using Real = ArithmeticType<Element>;

  BothPasses<Element> logits;
  BothPasses<Real> statistics;
  std::int32_t const* targets;
  Real const* weights;  ///< null: 1
  std::int64_t rows, columns;

  explicit DivergenceView(DivergenceCall const& call)
      : logits(call.logits),
        statistics(call.statistics),
        targets(call.targets.data<std::int32_t>()),
        weights(rows_of<Real>(call.weights).data),
        rows(call.logits[0].dim(0)),
        columns(call.logits[0].dim(1)) {}

  KOKKOS_INLINE_FUNCTION Real weight(std::int64_t row) const {
    return targets[row] < 0 ? Real{0} : (weights == nullptr ? Real{1} : weights[row]);
  }
};

/// The part of all implementations that takes next to no time.
struct DivergenceLosses {
  template <class Element, class Real = ArithmeticType<Element>>
  static void add_losses(Execution& execution, DivergenceCall const& call, Tensor const& sums, double factor,
                         std::array<Tensor, 2> const& losses) {
    DivergenceView<Element> const view(call);
    auto const of_row = rows_of<Real>(sums);
    BothPasses<Real> const into(losses);
    auto const half = static_cast<Real>(factor / 2);
    for_each(
        execution, "heddle::divergence_losses", view.rows, KOKKOS_LAMBDA(std::int64_t row) {
          Real const loss = half * view.weight(row) * (of_row[row][0] + of_row[row][1]);
          into.first[row][0] += loss;
          into.second[row][0] += loss;
        });
  }

  template <class Element, class Real = ArithmeticType<Element>>
  static void add_taught_losses(Execution& execution, DivergenceCall const& call, Tensor const& sums, double kept,
                                double factor, Tensor const& losses) {
    DivergenceView<Element> const view(call);
    auto const of_row = rows_of<Real>(sums);
    auto const into = rows_of<Real>(losses);
    for_each(
        execution, "heddle::taught_losses", view.rows, KOKKOS_LAMBDA(std::int64_t row) {
          Real const* const p = view.statistics.first[row];
          Real const* const q = view.statistics.second[row];
          Real const loss = of_row[row][0] + p[0] - q[0] + std::log(p[1] / q[1]);
          into[row][0] = static_cast<Real>(kept) * into[row][0] + static_cast<Real>(factor) * view.weight(row) * loss;
        });
  }
};

}  // namespace heddle::kernels
