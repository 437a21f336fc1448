#include "factories.hpp"
#include "kernel_parts.hpp"

namespace heddle {
namespace {

/// Rows whose share of the weight gradients is summed by one work item.
constexpr std::int64_t rows_per_block = 64;
/// Columns whose shares one work item then adds up.
constexpr std::int64_t columns_per_block = 64;

/// What both directions know of a call, as raw pointers.
template <class Element>
struct NormView {
  using Real = parts::ArithmeticType<Element>;

  parts::Rows<Element> residual;
  parts::Rows<Element> branch;
  Real const* weight;
  Real const* bias;
  parts::Rows<Element> sum;
  parts::Rows<Element> normalized;
  Real* mean;
  Real* reciprocal_deviation;
  parts::DropoutRule dropout;
  std::int64_t columns;
  Real epsilon;

  NormView(ResidualNormCall const& call, ResidualNormOutput const& output)
      : residual(parts::rows_of<Element>(call.residual)),
        branch(parts::rows_of<Element>(call.branch)),
        weight(parts::rows_of<Real>(call.weight).data),
        bias(parts::rows_of<Real>(call.bias).data),
        sum(parts::rows_of<Element>(output.sum)),
        normalized(parts::rows_of<Element>(output.normalized)),
        mean(parts::rows_of<Real>(output.mean).data),
        reciprocal_deviation(parts::rows_of<Real>(output.reciprocal_deviation).data),
        dropout(call.dropout),
        columns(call.residual.dim(1)),
        epsilon(static_cast<Real>(call.epsilon)) {}

  /// sum = residual + dropout(branch), through a buffer so that any of them may be the same memory.
  KOKKOS_INLINE_FUNCTION void add(std::int64_t row) const {
    Element const* const from = residual[row];
    Element const* const branch_row = branch[row];
    Element* const to = sum[row];
    dropout.template for_each_chunk<Real>(
        row, columns, [=](std::int64_t begin, std::int64_t end, Real const* multipliers) {
          Real buffer[parts::dropout_chunk];
          for (std::int64_t c = begin; c < end; ++c) {
            buffer[c - begin] = parts::wide<Real>(from[c]) + parts::wide<Real>(branch_row[c]) * multipliers[c - begin];
          }
          for (std::int64_t c = begin; c < end; ++c) {
            to[c] = parts::narrow<Element>(buffer[c - begin]);
          }
        });
  }

  /// normalized = (x - mean) / deviation * weight + bias; the variance in a second visit, which loses no digits.
  KOKKOS_INLINE_FUNCTION void normalize(std::int64_t row, Element const* x) const {
    Real total = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      total += parts::wide<Real>(x[c]);
    }
    Real const average = total / static_cast<Real>(columns);
    Real squares = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      Real const distance = parts::wide<Real>(x[c]) - average;
      squares += distance * distance;
    }
    Real const reciprocal = Real{1} / std::sqrt(squares / static_cast<Real>(columns) + epsilon);
    Element* const to = normalized[row];
    for (std::int64_t c = 0; c < columns; ++c) {
      to[c] = parts::narrow<Element>((parts::wide<Real>(x[c]) - average) * reciprocal * weight[c] + bias[c]);
    }
    mean[row] = average;
    reciprocal_deviation[row] = reciprocal;
  }
};

template <class Element>
void run_forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) {
  NormView<Element> const view(call, output);
  parts::for_each(
      execution, "residual norm forward", call.residual.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        if (view.branch) {
          view.add(row);
        } else if (view.sum) {
          for (std::int64_t c = 0; c < view.columns; ++c) {
            view.sum[row][c] = view.residual[row][c];
          }
        }
        if (view.weight != nullptr) {
          view.normalize(row, view.sum ? view.sum[row] : view.residual[row]);
        }
      });
}

/// The pointers of a backward call.
template <class Element>
struct GradientView {
  using Real = parts::ArithmeticType<Element>;

  NormView<Element> forward;
  parts::Rows<Element> grad_normalized;
  parts::Rows<Element> grad_sum;
  parts::Rows<Element> grad_residual;
  parts::Rows<Element> grad_branch;

  /// Adds a row's share to the sums over rows, and returns what the row's gradient needs of all columns:
  /// mean(g) and mean(g * standardised x) with g = grad_normalized * weight.
  KOKKOS_INLINE_FUNCTION void reduce(std::int64_t row, Real* weight_sums, Real* bias_sums, Real& mean_grad,
                                     Real& mean_grad_standard) const {
    Element const* const x = forward.sum[row];
    Element const* const grad = grad_normalized[row];
    Real const average = forward.mean[row];
    Real const reciprocal = forward.reciprocal_deviation[row];
    Real sum_grad = 0;
    Real sum_grad_standard = 0;
    for (std::int64_t c = 0; c < forward.columns; ++c) {
      Real const standard = (parts::wide<Real>(x[c]) - average) * reciprocal;
      auto const grad_c = parts::wide<Real>(grad[c]);
      Real const weighted = grad_c * forward.weight[c];
      weight_sums[c] += grad_c * standard;
      bias_sums[c] += grad_c;
      sum_grad += weighted;
      sum_grad_standard += weighted * standard;
    }
    mean_grad = sum_grad / static_cast<Real>(forward.columns);
    mean_grad_standard = sum_grad_standard / static_cast<Real>(forward.columns);
  }

  /// The row's gradients of residual and branch, through a buffer because they may overwrite what they are made from.
  KOKKOS_INLINE_FUNCTION void write(std::int64_t row, Real mean_grad, Real mean_grad_standard) const {
    Element const* const x = forward.sum[row];
    Element const* const grad = grad_normalized[row];
    Element const* const stream = grad_sum[row];
    Real const* const weight = forward.weight;
    Element* const to_residual = grad_residual[row];
    Element* const to_branch = grad_branch[row];
    bool const with_norm = static_cast<bool>(grad_normalized);
    bool const with_stream = static_cast<bool>(grad_sum);
    bool const with_branch = static_cast<bool>(grad_branch);
    Real const average = with_norm ? forward.mean[row] : Real{0};
    Real const reciprocal = with_norm ? forward.reciprocal_deviation[row] : Real{0};
    auto const visit = [=](std::int64_t begin, std::int64_t end, Real const* multipliers) {
      Real buffer[parts::dropout_chunk];
      for (std::int64_t c = begin; c < end; ++c) {
        buffer[c - begin] = with_stream ? parts::wide<Real>(stream[c]) : Real{0};
      }
      if (with_norm) {
        for (std::int64_t c = begin; c < end; ++c) {
          Real const standard = (parts::wide<Real>(x[c]) - average) * reciprocal;
          buffer[c - begin] +=
              reciprocal * (parts::wide<Real>(grad[c]) * weight[c] - mean_grad - standard * mean_grad_standard);
        }
      }
      for (std::int64_t c = begin; c < end; ++c) {
        to_residual[c] = parts::narrow<Element>(buffer[c - begin]);
      }
      for (std::int64_t c = begin; with_branch && c < end; ++c) {
        to_branch[c] = parts::narrow<Element>(buffer[c - begin] * multipliers[c - begin]);
      }
    };
    forward.dropout.template for_each_chunk<Real>(row, forward.columns, visit);
  }
};

/// into[column] += the sum over blocks of sums[block][column], in the order of the blocks.
template <class Real>
void add_block_sums(Execution& execution, Real const* sums, std::int64_t stride, std::int64_t blocks,
                    Tensor const& into) {
  Real* const total = into.data<Real>();
  std::int64_t const columns = into.dim(0);
  parts::for_each(
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

template <class Element, class Real = parts::ArithmeticType<Element>>
void run_backward(Execution& execution, GradientView<Element> const& view, std::int64_t rows,
                  ResidualNormGradients const& gradients) {
  ArenaScope const scope(execution.scratch);
  std::int64_t const columns = view.forward.columns;
  std::int64_t const blocks = (rows + rows_per_block - 1) / rows_per_block;
  bool const with_norm = static_cast<bool>(view.grad_normalized);
  Real* sums = nullptr;  // [blocks, 2, columns]: of the weight and of the bias
  if (with_norm && blocks > 0) {
    sums = execution.scratch.allocate(DTypeOf<Real>::value, Shape{blocks, 2, columns}).template data<Real>();
  }
  parts::for_each(
      execution, "residual norm backward", blocks, KOKKOS_LAMBDA(std::int64_t block) {
        Real* const weight_sums = with_norm ? sums + block * 2 * columns : nullptr;
        for (std::int64_t c = 0; with_norm && c < 2 * columns; ++c) {
          weight_sums[c] = 0;
        }
        std::int64_t const begin = block * rows_per_block;
        std::int64_t const end = rows - begin < rows_per_block ? rows : begin + rows_per_block;
        for (std::int64_t row = begin; row < end; ++row) {
          Real mean_grad = 0;
          Real mean_grad_standard = 0;
          if (with_norm) {
            view.reduce(row, weight_sums, weight_sums + columns, mean_grad, mean_grad_standard);
          }
          view.write(row, mean_grad, mean_grad_standard);
        }
      });
  if (sums != nullptr) {
    add_block_sums<Real>(execution, sums, 2 * columns, blocks, gradients.weight);
    add_block_sums<Real>(execution, sums + columns, 2 * columns, blocks, gradients.bias);
  }
}

class KokkosResidualNorm : public ResidualNorm {
 public:
  bool supports(ResidualNormProblem const& problem) const override { return problem.dtype != DType::int32; }
  void forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) override {
    parts::with_floating(call.residual.dtype(),
                         [&]<class Element>(Element) { run_forward<Element>(execution, call, output); });
  }
  void backward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output,
                Tensor const& grad_normalized, Tensor const& grad_sum,
                ResidualNormGradients const& gradients) override {
    parts::with_floating(call.residual.dtype(), [&]<class Element>(Element) {
      GradientView<Element> const view{{call, output},
                                       parts::rows_of<Element>(grad_normalized),
                                       parts::rows_of<Element>(grad_sum),
                                       parts::rows_of<Element>(gradients.residual),
                                       parts::rows_of<Element>(gradients.branch)};
      run_backward<Element>(execution, view, call.residual.dim(0), gradients);
    });
  }
};

}  // namespace

std::shared_ptr<ResidualNorm> make_kokkos_residual_norm() {
  return std::make_shared<KokkosResidualNorm>();
}

}  // namespace heddle
