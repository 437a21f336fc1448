#include <heddle/core/operations/row_lanes.hpp>

#include "support/factories.hpp"
#include "support/partial_sums.hpp"
#include "view.hpp"

namespace heddle {
namespace {

using kernels::ColumnGroup;
using kernels::group_columns;
using kernels::GroupValues;
using kernels::RowLanes;
using kernels::Sum;

template <class Element>
struct TeamNorm : kernels::NormView<Element> {
  using Base = kernels::NormView<Element>;
  using Real = typename Base::Real;
  using Base::Base, Base::residual, Base::branch, Base::weight, Base::bias, Base::sum, Base::normalized;
  using Base::dropout, Base::columns, Base::rule, Base::normed;

  /// A group of residual + dropout(branch), rounded as it is stored in `sum`.
  KOKKOS_INLINE_FUNCTION GroupValues<Real> add(ColumnGroup const& at, std::int64_t row) const {
    auto x = at.template load<Real>(residual[row]);
    if (branch) {
      auto const added = at.template load<Real>(branch[row]);
      auto const kept = at.template multipliers<Real>(dropout, row);
      for (int i = 0; i < group_columns; ++i) {
        x[i] = kernels::wide<Real>(kernels::narrow<Element>(x[i] + added[i] * kept[i]));
      }
    }
    if (sum) {
      at.store(x, sum[row]);
    }
    return x;
  }

  /// The row's mean, 0 where the norm has no centre; the same pass writes `sum`.
  KOKKOS_INLINE_FUNCTION Real add_row(RowLanes const& lanes, std::int64_t row) const {
    auto const total = lanes.template reduce_groups<Sum<Real>>(columns, [&](ColumnGroup const& at, Sum<Real>& partial) {
      auto const x = add(at, row);
      for (int i = 0; i < group_columns; ++i) {
        partial.value += x[i];
      }
    });
    return rule.centred ? total.value / static_cast<Real>(columns) : Real{0};
  }

  /// The variance takes a separate pass, so that no digits are lost.
  KOKKOS_INLINE_FUNCTION Real reciprocal_of(RowLanes const& lanes, Element const* x, Real average) const {
    auto const squares =
        lanes.template reduce_groups<Sum<Real>>(columns, [&](ColumnGroup const& at, Sum<Real>& partial) {
          auto const values = at.template load<Real>(x);
          at.for_each([&](int i) { partial.value += (values[i] - average) * (values[i] - average); });
        });
    return rule.reciprocal(squares.value);
  }

  KOKKOS_INLINE_FUNCTION void normalize(RowLanes const& lanes, std::int64_t row, Real average, Real factor) const {
    Element const* const x = normed(row);
    lanes.for_each_group(columns, [&](ColumnGroup const& at) {
      auto values = at.template load<Real>(x);
      auto const weights = at.template load<Real>(weight);
      auto const offsets = at.load_or(Real{0}, bias);
      for (int i = 0; i < group_columns; ++i) {
        values[i] = (values[i] - average) * factor * weights[i] + offsets[i];
      }
      at.store(values, normalized[row]);
    });
  }
};

/// Two sums over a row, with g = grad_normalized * weight: of g, and of g * (x - mean).
template <class Real>
struct GradientSums {
  Real grad = 0;
  Real grad_distance = 0;

  KOKKOS_INLINE_FUNCTION void join(GradientSums const& other) {
    grad += other.grad;
    grad_distance += other.grad_distance;
  }
};

template <class Element>
struct TeamNormGradient : kernels::NormGradientRows<Element> {
  using Base = kernels::NormGradientRows<Element>;
  using Real = kernels::ArithmeticType<Element>;
  using Base::grad_normalized, Base::grad_sum, Base::grad_residual, Base::grad_branch;

  TeamNorm<Element> forward;

  KOKKOS_INLINE_FUNCTION GradientSums<Real> sums_of(RowLanes const& lanes, std::int64_t row) const {
    if (!grad_normalized) {
      return {};
    }
    Real const average = forward.mean[row];
    return lanes.template reduce_groups<GradientSums<Real>>(
        forward.columns, [&](ColumnGroup const& at, GradientSums<Real>& partial) {
          auto const x = at.template load<Real>(forward.sum[row]);
          auto const grad = at.template load<Real>(grad_normalized[row]);
          auto const weight = at.template load<Real>(forward.weight);
          for (int i = 0; i < group_columns; ++i) {
            Real const weighted = grad[i] * weight[i];
            partial.grad += weighted;
            partial.grad_distance += weighted * (x[i] - average);
          }
        });
  }

  /// The gradient of a group of the sum, which has the row's `sums`.
  KOKKOS_INLINE_FUNCTION GroupValues<Real> gradient(ColumnGroup const& at, std::int64_t row,
                                                    GradientSums<Real> const& sums) const {
    auto value = at.load_or(Real{0}, grad_sum ? grad_sum[row] : nullptr);
    if (grad_normalized) {
      auto const x = at.template load<Real>(forward.sum[row]);
      auto const grad = at.template load<Real>(grad_normalized[row]);
      auto const weight = at.template load<Real>(forward.weight);
      Real const average = forward.mean[row];
      Real const factor = forward.reciprocal[row];
      Real const mean_grad = forward.rule.centred ? sums.grad / static_cast<Real>(forward.columns) : Real{0};
      Real const slope = factor * factor * sums.grad_distance / forward.rule.divisor;
      for (int i = 0; i < group_columns; ++i) {
        value[i] += factor * (grad[i] * weight[i] - mean_grad - (x[i] - average) * slope);
      }
    }
    return value;
  }

  /// The row's gradients of residual and branch, which may overwrite their inputs.
  KOKKOS_INLINE_FUNCTION void write(RowLanes const& lanes, std::int64_t row) const {
    auto const sums = sums_of(lanes, row);
    lanes.for_each_group(forward.columns, [&](ColumnGroup const& at) {
      auto value = gradient(at, row, sums);
      at.store(value, grad_residual[row]);
      if (grad_branch) {
        auto const kept = at.template multipliers<Real>(forward.dropout, row);
        for (int i = 0; i < group_columns; ++i) {
          value[i] *= kept[i];
        }
        at.store(value, grad_branch[row]);
      }
    });
  }

  /// A group's gradients of weight and bias, summed over rows [first, last).
  KOKKOS_INLINE_FUNCTION void sum_weight_gradients(ColumnGroup const& at, std::int64_t first, std::int64_t last,
                                                   Real* weight_sums, Real* bias_sums) const {
    GroupValues<Real> of_weight{};
    GroupValues<Real> of_bias{};
    for (std::int64_t row = first; row < last; ++row) {
      auto const x = at.template load<Real>(forward.sum[row]);
      auto const grad = at.template load<Real>(grad_normalized[row]);
      Real const average = forward.mean[row];
      Real const factor = forward.reciprocal[row];
      for (int i = 0; i < group_columns; ++i) {
        of_weight[i] += grad[i] * ((x[i] - average) * factor);
        of_bias[i] += grad[i];
      }
    }
    at.store(of_weight, weight_sums);
    at.store(of_bias, bias_sums);
  }
};

/// gradients += the sums over all rows: first over blocks of rows, then over the blocks.
template <class Element, class Real = kernels::ArithmeticType<Element>>
void add_weight_gradients(Execution& execution, TeamNormGradient<Element> const& view,
                          ResidualNormGradients const& gradients) {
  ArenaScope const scope(execution.scratch);
  std::int64_t const rows = view.forward.rows;
  std::int64_t const columns = view.forward.columns;
  std::int64_t const groups = kernels::group_count(columns);
  std::int64_t const blocks = (rows + kernels::rows_per_partial - 1) / kernels::rows_per_partial;
  Tensor const partial = execution.scratch.allocate(DTypeOf<Real>::value, Shape{blocks, 2, columns});
  Real* const sums = partial.template data<Real>();
  kernels::for_each(
      execution, "norm weight gradients", blocks * groups, KOKKOS_LAMBDA(std::int64_t item) {
        std::int64_t const block = item / groups;
        std::int64_t const first = block * kernels::rows_per_partial;
        std::int64_t const last = rows - first < kernels::rows_per_partial ? rows : first + kernels::rows_per_partial;
        Real* const of_block = sums + block * 2 * columns;
        view.sum_weight_gradients(ColumnGroup(item % groups, columns), first, last, of_block, of_block + columns);
      });
  kernels::add_partial_sums<Real>(execution, sums, blocks, 2 * columns, gradients.weight);
  if (!gradients.bias.empty()) {
    kernels::add_partial_sums<Real>(execution, sums + columns, blocks, 2 * columns, gradients.bias);
  }
}

template <class Element>
void run_backward(Execution& execution, TeamNormGradient<Element> const& view, ResidualNormGradients const& gradients) {
  if (view.forward.rows > 0 && view.grad_normalized) {
    // First, because `write` may overwrite grad_normalized.
    add_weight_gradients(execution, view, gradients);
  }
  kernels::for_each_row(
      execution, "residual norm backward", view.forward.rows, view.forward.columns,
      KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) { view.write(lanes, row); });
}

struct TeamResidualNorm {
  static bool supports(ResidualNormProblem const& problem) { return built_in_norm(problem.kind) != nullptr; }

  template <class Element>
  static void forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) {
    TeamNorm<Element> const view(call, output);
    kernels::for_each_row(
        execution, "residual norm forward", view.rows, view.columns,
        KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
          auto const average = view.add_row(lanes, row);
          if (view.weight == nullptr) {
            return;
          }
          auto const factor = view.reciprocal_of(lanes, view.normed(row), average);
          view.normalize(lanes, row, average, factor);
          lanes.once([&] {
            view.mean[row] = average;
            view.reciprocal[row] = factor;
          });
        });
  }

  template <class Element>
  static void backward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output,
                       Tensor const& grad_normalized, Tensor const& grad_sum, ResidualNormGradients const& gradients) {
    run_backward<Element>(execution, {{grad_normalized, grad_sum, gradients}, {call, output}}, gradients);
  }
};

}  // namespace

void add_team_residual_norm_kernels(KernelRegistries& registries) {
  registries.of<ResidualNorm>().add("teams", priorities::teams(),
                                    std::make_shared<ResidualNormFrontEnd<TeamResidualNorm>>());
}

}  // namespace heddle
