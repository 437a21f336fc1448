#include <heddle/core/operations/row_lanes.hpp>

#include "support/factories.hpp"
#include "terms.hpp"

namespace heddle {
namespace {

using kernels::ColumnGroup;
using kernels::group_columns;
using kernels::RowLanes;

/// A row's maximum x, Σ exp(x - maximum), Σ x and the target's x (0 where it is elsewhere), computed in one pass
/// (Milakov & Gimelshein 2018).
template <class Real>
struct SoftmaxSums {
  Real maximum = -std::numeric_limits<Real>::infinity();
  Real exponentials = 0;
  Real total = 0;
  Real target = 0;

  /// exp(x - highest) for x ≤ highest; 0 where no x was seen.
  KOKKOS_INLINE_FUNCTION static Real relative(Real x, Real highest) {
    return x == -std::numeric_limits<Real>::infinity() ? Real{0} : exp_of_negative(x - highest);
  }
  KOKKOS_INLINE_FUNCTION void raise(Real highest) {
    exponentials *= relative(maximum, highest);
    maximum = highest;
  }
  KOKKOS_INLINE_FUNCTION void join(SoftmaxSums const& other) {
    raise(other.maximum > maximum ? other.maximum : maximum);
    exponentials += other.exponentials * relative(other.maximum, maximum);
    total += other.total;
    target += other.target;
  }

  template <class Element>
  KOKKOS_INLINE_FUNCTION void add(ColumnGroup const& at, Element const* row, std::int64_t target_column) {
    auto const x = at.template load<Real>(row);
    Real highest = maximum;
    at.for_each([&](int i) { highest = x[i] > highest ? x[i] : highest; });
    raise(highest);
    at.for_each([&](int i) {
      exponentials += relative(x[i], highest);
      total += x[i];
      target += at.begin + i == target_column ? x[i] : Real{0};
    });
  }
};

/// A call's logits, of which teams compute rows.
template <class Element>
struct TeamLogits : kernels::Logits<Element> {
  using Base = kernels::Logits<Element>;
  using Real = typename Base::Real;
  using Base::Base, Base::rows, Base::columns, Base::target, Base::rule, Base::weights;

  KOKKOS_INLINE_FUNCTION SoftmaxSums<Real> sums_of(RowLanes const& lanes, std::int64_t row) const {
    return lanes.template reduce_groups<SoftmaxSums<Real>>(
        columns, [&](ColumnGroup const& at, SoftmaxSums<Real>& partial) { partial.add(at, rows[row], target(row)); });
  }

  /// Replaces the row's logits by their gradient.
  KOKKOS_INLINE_FUNCTION void write_gradient(RowLanes const& lanes, std::int64_t row, Real maximum,
                                             Real exponentials) const {
    Real const weight = weights[row];
    Real const factor = rule.probability_factor(maximum, exponentials, weight);
    Real const wanted_of_all = weight * rule.wanted_of_all;
    Real const wanted_of_target = weight * rule.wanted_of_target;
    std::int64_t const of_target = target(row);
    lanes.for_each_group(columns, [&](ColumnGroup const& at) {
      auto x = at.template load<Real>(rows[row]);
      at.for_each([&](int i) {
        Real const wanted = wanted_of_all + (at.begin + i == of_target ? wanted_of_target : Real{0});
        x[i] = exp_of_negative(x[i] - maximum) * factor - wanted;
      });
      at.store(x, rows[row]);
    });
  }
};

/// Sums of rows' losses, as SoftmaxCrossEntropy::add_losses and add_correct count them.
struct LossTotals {
  double smoothed = 0, plain = 0, rows = 0, correct = 0;

  KOKKOS_INLINE_FUNCTION void join(LossTotals const& other) {
    smoothed += other.smoothed;
    plain += other.plain;
    rows += other.rows;
    correct += other.correct;
  }
};

/// sums += `add(row, totals)` over all rows, which one team adds.
template <class Add>
void add_up(Execution& execution, char const* name, std::int64_t rows, Tensor const& sums, Add const& add) {
  double* const totals = sums.data<double>();
  kernels::for_each_row(
      execution, name, 1, kernels::whole_team, KOKKOS_LAMBDA(std::int64_t, RowLanes const& lanes) {
        auto const all = lanes.template reduce<LossTotals>(rows, add);
        lanes.once([&] {
          totals[0] += all.smoothed;
          totals[1] += all.plain;
          totals[2] += all.rows;
          totals[3] += all.correct;
        });
      });
}

/// `combine` and `losses`, which read and write a row's few numbers, have one thread a row, as the portable kernel.
struct TeamSoftmaxCrossEntropy : kernels::SharedTerms {
  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void statistics(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics) {
    TeamLogits<Element> const view(call);
    auto const out = kernels::rows_of<Real>(statistics);
    kernels::for_each_row(
        execution, "cross entropy statistics", call.logits.dim(0), view.columns,
        KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
          auto const sums = view.sums_of(lanes, row);
          lanes.once([&] {
            out[row][0] = sums.maximum;
            out[row][1] = sums.exponentials;
            out[row][2] = sums.target;
            out[row][3] = sums.total;
          });
        });
  }

  template <class Real>
  static void add_losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& losses,
                         Tensor const& sums) {
    auto const in = kernels::rows_of<Real>(losses);
    kernels::RowWeights<Real> const weights(call);
    add_up(
        execution, "cross entropy sums", losses.dim(0), sums, KOKKOS_LAMBDA(std::int64_t row, LossTotals & totals) {
          totals.smoothed += static_cast<double>(in[row][0]);
          totals.plain += static_cast<double>(in[row][1]);
          totals.rows += weights.ignored(row) ? 0 : 1;
        });
  }

  template <class Real>
  static void add_correct(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                          Tensor const& sums) {
    auto const in = kernels::rows_of<Real>(statistics);
    kernels::RowWeights<Real> const weights(call);
    add_up(
        execution, "cross entropy correct", statistics.dim(0), sums,
        KOKKOS_LAMBDA(std::int64_t row, LossTotals & totals) {
          totals.correct += !weights.ignored(row) && in[row][2] >= in[row][0] ? 1 : 0;
        });
  }

  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                       double scale) {
    TeamLogits<Element> const view(call, scale);
    auto const in = kernels::rows_of<Real>(statistics);
    kernels::for_each_row(
        execution, "cross entropy gradient", call.logits.dim(0), view.columns,
        KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
          view.write_gradient(lanes, row, in[row][0], in[row][1]);
        });
  }

  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void losses_and_gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, double scale,
                                  Tensor const& losses) {
    TeamLogits<Element> const view(call, scale);
    auto const out = kernels::rows_of<Real>(losses);
    kernels::for_each_row(
        execution, "cross entropy losses and gradient", call.logits.dim(0), view.columns,
        KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
          auto const sums = view.sums_of(lanes, row);
          lanes.once([&] {
            Real const statistics[] = {sums.maximum, sums.exponentials, sums.target, sums.total};
            view.rule.write_losses(statistics, view.weights[row], out[row]);
          });
          view.write_gradient(lanes, row, sums.maximum, sums.exponentials);
        });
  }
};

}  // namespace

void add_team_softmax_cross_entropy_kernels(KernelRegistries& registries) {
  registries.of<SoftmaxCrossEntropy>().add("teams", priorities::teams(),
                                           std::make_shared<SoftmaxCrossEntropyFrontEnd<TeamSoftmaxCrossEntropy>>());
}

}  // namespace heddle
