#include "support/factories.hpp"
#include "view.hpp"

namespace heddle {
namespace {

/// The number of rows whose weight gradients one work item sums.
constexpr std::int64_t rows_per_block = 64;
/// The number of rows that take each step of the arithmetic together: this hides the latency of each row's sums.
constexpr std::int64_t rows_at_once = 8;
/// The number of columns for which one work item adds the blocks' sums.
constexpr std::int64_t columns_per_block = 64;

using kernels::for_each_column;
using kernels::for_each_of_chunk;

template <class Element>
struct KokkosNorm : kernels::NormView<Element> {
  using Base = kernels::NormView<Element>;
  using Real = typename Base::Real;
  using Base::Base, Base::residual, Base::branch, Base::weight, Base::bias, Base::sum, Base::normalized, Base::mean;
  using Base::reciprocal, Base::dropout, Base::columns, Base::rule, Base::normed;

  /// sum = residual + dropout(branch); any of them may be the same memory.
  KOKKOS_INLINE_FUNCTION void add(std::int64_t row) const {
    Element const* const from = residual[row];
    Element const* const branch_row = branch[row];
    Element* const to = sum[row];
    dropout.template for_each_chunk<Real>(
        row, columns, [=](std::int64_t begin, std::int64_t end, auto const& multipliers) {
          for_each_of_chunk(end - begin, [=](std::int64_t i) {
            to[begin + i] = kernels::narrow_again<Element>(kernels::wide<Real>(from[begin + i]) +
                                                           kernels::wide<Real>(branch_row[begin + i]) * multipliers[i]);
          });
        });
  }

  KOKKOS_INLINE_FUNCTION Real mean_of(Element const* x) const {
    Real total = 0;
    for_each_column(columns, [&](std::int64_t c) { total += kernels::wide<Real>(x[c]); });
    return total / static_cast<Real>(columns);
  }

  /// The variance takes a separate pass, so that no digits are lost.
  KOKKOS_INLINE_FUNCTION Real reciprocal_deviation_of(Element const* x, Real average) const {
    Real squares = 0;
    for_each_column(columns, [&](std::int64_t c) {
      Real const distance = kernels::wide<Real>(x[c]) - average;
      squares += distance * distance;
    });
    return rule.reciprocal(squares);
  }

  /// normalized = (x - mean) / deviation * weight + bias.
  KOKKOS_INLINE_FUNCTION void normalize(std::int64_t row) const {
    Element const* const x = normed(row);
    Element* const KOKKOS_RESTRICT to = normalized[row];
    Real const average = mean[row];
    Real const factor = reciprocal[row];
    Real const* const KOKKOS_RESTRICT factors = weight;
    Real const* const KOKKOS_RESTRICT offsets = bias;
    if (offsets == nullptr) {
      for_each_column(columns, [=](std::int64_t c) {
        to[c] = kernels::narrow<Element>((kernels::wide<Real>(x[c]) - average) * factor * factors[c]);
      });
      return;
    }
    for_each_column(columns, [=](std::int64_t c) {
      to[c] = kernels::narrow<Element>((kernels::wide<Real>(x[c]) - average) * factor * factors[c] + offsets[c]);
    });
  }
};

/// A row's mean(g), only for a norm with a centre, and mean(g * standardised x), with g = grad_normalized * weight: the
/// sums over columns that its gradient needs.
template <class Real>
struct RowMeans {
  Real grad = 0;
  Real grad_standard = 0;
};

template <class Element>
struct KokkosNormGradient : kernels::NormGradientRows<Element> {
  using Base = kernels::NormGradientRows<Element>;
  using Real = kernels::ArithmeticType<Element>;
  using Base::grad_normalized, Base::grad_sum, Base::grad_residual, Base::grad_branch;

  KokkosNorm<Element> forward;

  KOKKOS_INLINE_FUNCTION RowMeans<Real> means_of(std::int64_t row) const {
    Element const* const x = forward.sum[row];
    Element const* const grad = grad_normalized[row];
    Real const* const weight = forward.weight;
    Real const average = forward.mean[row];
    Real sum_grad = 0;
    Real sum_grad_distance = 0;
    for_each_column(forward.columns, [&](std::int64_t c) {
      Real const weighted = kernels::wide<Real>(grad[c]) * weight[c];
      sum_grad += weighted;
      sum_grad_distance += weighted * (kernels::wide<Real>(x[c]) - average);
    });
    return {forward.rule.centred ? sum_grad / static_cast<Real>(forward.columns) : Real{0},
            sum_grad_distance * forward.reciprocal[row] / forward.rule.divisor};
  }

  /// Adds the contributions of `count` rows, starting at `first`, to the gradients of weight and bias.
  template <int count>
  KOKKOS_INLINE_FUNCTION void add_weight_gradients(std::int64_t first, Real* weight_sums, Real* bias_sums) const {
    Element const* x[count];
    Element const* grad[count];
    Real average[count];
    Real reciprocal[count];
    for (int i = 0; i < count; ++i) {
      x[i] = forward.sum[first + i];
      grad[i] = grad_normalized[first + i];
      average[i] = forward.mean[first + i];
      reciprocal[i] = forward.reciprocal[first + i];
    }
    for_each_column(forward.columns, [=](std::int64_t c) {
      Real of_weight = weight_sums[c];
      Real of_bias = bias_sums[c];
      for (int i = 0; i < count; ++i) {
        auto const grad_c = kernels::wide<Real>(grad[i][c]);
        of_weight += grad_c * ((kernels::wide<Real>(x[i][c]) - average[i]) * reciprocal[i]);
        of_bias += grad_c;
      }
      weight_sums[c] = of_weight;
      bias_sums[c] = of_bias;
    });
  }

  /// The row's gradients of residual and branch, which may overwrite their inputs.
  template <bool with_norm, bool with_stream, bool with_branch>
  KOKKOS_INLINE_FUNCTION void write_as(std::int64_t row, RowMeans<Real> means) const {
    Element const* const x = forward.sum[row];
    Element const* const grad = grad_normalized[row];
    Element const* const stream = grad_sum[row];
    Real const* const weight = forward.weight;
    Element* const to_residual = grad_residual[row];
    Element* const to_branch = grad_branch[row];
    Real const average = with_norm ? forward.mean[row] : Real{0};
    Real const reciprocal = with_norm ? forward.reciprocal[row] : Real{0};
    Real const slope = reciprocal * means.grad_standard;
    auto const gradient = [=](std::int64_t c) {
      Real value = 0;
      if constexpr (with_norm) {
        Real const distance = kernels::wide<Real>(x[c]) - average;
        value = reciprocal * (kernels::wide<Real>(grad[c]) * weight[c] - means.grad - distance * slope);
      }
      if constexpr (with_stream) {
        value += kernels::wide<Real>(stream[c]);
      }
      return value;
    };
    if constexpr (with_branch) {
      forward.dropout.template for_each_chunk<Real>(
          row, forward.columns, [=](std::int64_t begin, std::int64_t end, auto const& multipliers) {
            for_each_of_chunk(end - begin, [=](std::int64_t i) {
              Real const value = gradient(begin + i);
              to_residual[begin + i] = kernels::narrow<Element>(value);
              to_branch[begin + i] = kernels::narrow<Element>(value * multipliers[i]);
            });
          });
    } else {
      for_each_column(forward.columns, [=](std::int64_t c) { to_residual[c] = kernels::narrow<Element>(gradient(c)); });
    }
  }

  template <bool with_norm, bool with_stream>
  KOKKOS_INLINE_FUNCTION void write_of(std::int64_t row, RowMeans<Real> means) const {
    grad_branch ? write_as<with_norm, with_stream, true>(row, means)
                : write_as<with_norm, with_stream, false>(row, means);
  }

  KOKKOS_INLINE_FUNCTION void write(std::int64_t row, RowMeans<Real> means) const {
    if (!grad_normalized) {
      write_of<false, true>(row, means);
    } else {
      grad_sum ? write_of<true, true>(row, means) : write_of<true, false>(row, means);
    }
  }

  /// The gradients of the rows from `first` to `last`, at most rows_at_once; the sums are of [weight, bias].
  KOKKOS_INLINE_FUNCTION void visit(std::int64_t first, std::int64_t last, Real* sums) const {
    RowMeans<Real> means[rows_at_once];
    if (grad_normalized) {
      Real* const bias_sums = sums + forward.columns;
      for (std::int64_t row = first; row < last; ++row) {
        means[row - first] = means_of(row);
      }
      std::int64_t row = first;
      for (; row + 4 <= last; row += 4) {
        add_weight_gradients<4>(row, sums, bias_sums);
      }
      for (; row < last; ++row) {
        add_weight_gradients<1>(row, sums, bias_sums);
      }
    }
    for (std::int64_t row = first; row < last; ++row) {
      write(row, means[row - first]);
    }
  }
};

/// into[column] += the sum over blocks of sums[block][column], in the order of the blocks.
template <class Real>
void add_block_sums(Execution& execution, Real const* sums, std::int64_t stride, std::int64_t blocks,
                    Tensor const& into) {
  Real* const total = into.data<Real>();
  std::int64_t const columns = into.dim(0);
  kernels::for_each(
      execution, "norm weight gradients", (columns + columns_per_block - 1) / columns_per_block,
      KOKKOS_LAMBDA(std::int64_t part) {
        std::int64_t const begin = part * columns_per_block;
        std::int64_t const end = columns - begin < columns_per_block ? columns : begin + columns_per_block;
        Real buffer[columns_per_block] = {};
        for (std::int64_t block = 0; block < blocks; ++block) {
          for (std::int64_t c = begin; c < end; ++c) {
            buffer[c - begin] += sums[block * stride + c];
          }
        }
        for (std::int64_t c = begin; c < end; ++c) {
          total[c] += buffer[c - begin];
        }
      });
}

template <class Element, class Real = kernels::ArithmeticType<Element>>
void run_backward(Execution& execution, KokkosNormGradient<Element> const& view,
                  ResidualNormGradients const& gradients) {
  ArenaScope const scope(execution.scratch);
  std::int64_t const rows = view.forward.rows;
  std::int64_t const columns = view.forward.columns;
  std::int64_t const blocks = (rows + rows_per_block - 1) / rows_per_block;
  bool const with_norm = static_cast<bool>(view.grad_normalized);
  Real* sums = nullptr;  // [blocks, 2, columns]: of the weight and of the bias
  if (with_norm && blocks > 0) {
    sums = execution.scratch.allocate(DTypeOf<Real>::value, Shape{blocks, 2, columns}).template data<Real>();
  }
  kernels::for_each(
      execution, "residual norm backward", blocks, KOKKOS_LAMBDA(std::int64_t block) {
        Real* const weight_sums = with_norm ? sums + block * 2 * columns : nullptr;
        for (std::int64_t c = 0; with_norm && c < 2 * columns; ++c) {
          weight_sums[c] = 0;
        }
        std::int64_t const begin = block * rows_per_block;
        std::int64_t const end = rows - begin < rows_per_block ? rows : begin + rows_per_block;
        for (std::int64_t first = begin; first < end; first += rows_at_once) {
          std::int64_t const last = end - first < rows_at_once ? end : first + rows_at_once;
          view.visit(first, last, weight_sums);
        }
      });
  if (sums != nullptr) {
    add_block_sums<Real>(execution, sums, 2 * columns, blocks, gradients.weight);
    if (!gradients.bias.empty()) {
      add_block_sums<Real>(execution, sums + columns, 2 * columns, blocks, gradients.bias);
    }
  }
}

struct KokkosResidualNorm {
  static bool supports(ResidualNormProblem const& problem) { return built_in_norm(problem.kind) != nullptr; }

  template <class Element>
  static void forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) {
    KokkosNorm<Element> const view(call, output);
    std::int64_t const rows = view.rows;
    kernels::for_each(
        execution, "residual norm forward", (rows + rows_at_once - 1) / rows_at_once, KOKKOS_LAMBDA(std::int64_t item) {
          std::int64_t const begin = item * rows_at_once;
          std::int64_t const end = rows - begin < rows_at_once ? rows : begin + rows_at_once;
          for (std::int64_t row = begin; row < end; ++row) {
            if (view.branch) {
              view.add(row);
            } else if (view.sum) {
              for (std::int64_t c = 0; c < view.columns; ++c) {
                view.sum[row][c] = view.residual[row][c];
              }
            }
          }
          if (view.weight == nullptr) {
            return;
          }
          for (std::int64_t row = begin; view.rule.centred && row < end; ++row) {
            view.mean[row] = view.mean_of(view.normed(row));
          }
          for (std::int64_t row = begin; !view.rule.centred && row < end; ++row) {
            view.mean[row] = 0;
          }
          for (std::int64_t row = begin; row < end; ++row) {
            view.reciprocal[row] = view.reciprocal_deviation_of(view.normed(row), view.mean[row]);
          }
          for (std::int64_t row = begin; row < end; ++row) {
            view.normalize(row);
          }
        });
  }

  template <class Element>
  static void backward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output,
                       Tensor const& grad_normalized, Tensor const& grad_sum, ResidualNormGradients const& gradients) {
    run_backward<Element>(execution, {{grad_normalized, grad_sum, gradients}, {call, output}}, gradients);
  }
};

}  // namespace

void add_portable_residual_norm_kernels(KernelRegistries& registries) {
  using FrontEnd = ResidualNormFrontEnd<KokkosResidualNorm, CompiledTypes>;
  registries.of<ResidualNorm>().add_part("kokkos", priorities::portable, std::make_shared<FrontEnd>());
}

}  // namespace heddle
