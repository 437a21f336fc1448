#include <heddle/core/operations/kernel_author.hpp>

#include "support/factories.hpp"
#include "terms.hpp"

namespace heddle {
namespace {

template <class Element>
void write_statistics(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics) {
  using Real = kernels::ArithmeticType<Element>;
  auto const logits = kernels::rows_of<Element>(call.logits);
  auto const out = kernels::rows_of<Real>(statistics);
  auto const* const targets = call.targets.data<std::int32_t>();
  std::int64_t const columns = call.logits.dim(1);
  std::int64_t const first = call.first_token;
  kernels::for_each(
      execution, "reference cross entropy statistics", call.logits.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        double maximum = -INFINITY;
        double sum = 0;
        for (std::int64_t c = 0; c < columns; ++c) {
          double const logit = kernels::wide<double>(logits[row][c]);
          maximum = logit > maximum ? logit : maximum;
          sum += logit;
        }
        double sum_exp = 0;
        for (std::int64_t c = 0; c < columns; ++c) {
          sum_exp += std::exp(kernels::wide<double>(logits[row][c]) - maximum);
        }
        std::int64_t const target = targets[row] - first;
        out[row][0] = static_cast<Real>(maximum);
        out[row][1] = static_cast<Real>(sum_exp);
        out[row][2] = target >= 0 && target < columns ? kernels::wide<Real>(logits[row][target]) : Real{0};
        out[row][3] = static_cast<Real>(sum);
      });
}

template <class Real>
void combine_statistics(Execution& execution, Tensor const& part_statistics, Tensor const& statistics) {
  auto const* const in = part_statistics.data<Real>();
  auto const out = kernels::rows_of<Real>(statistics);
  std::int64_t const part_count = part_statistics.dim(0);
  std::int64_t const stride = part_statistics.dim(1) * SoftmaxCrossEntropy::statistics_columns;
  kernels::for_each(
      execution, "cross entropy combination", statistics.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        Real const* const of_row = in + row * SoftmaxCrossEntropy::statistics_columns;
        Real maximum = of_row[0];
        for (std::int64_t part = 1; part < part_count; ++part) {
          Real const other = of_row[part * stride];
          maximum = other > maximum ? other : maximum;
        }
        Real sums[3] = {0, 0, 0};
        for (std::int64_t part = 0; part < part_count; ++part) {
          Real const* const one = of_row + part * stride;
          sums[0] += one[1] * std::exp(one[0] - maximum);
          sums[1] += one[2];
          sums[2] += one[3];
        }
        out[row][0] = maximum;
        for (int column = 0; column < 3; ++column) {
          out[row][column + 1] = sums[column];
        }
      });
}

template <class Real>
void write_losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                  Tensor const& losses) {
  auto const in = kernels::rows_of<Real>(statistics);
  auto const out = kernels::rows_of<Real>(losses);
  double const smoothing = call.label_smoothing;
  double const z_loss = call.z_loss;
  auto const vocabulary = static_cast<double>(call.global_vocabulary);
  kernels::RowWeights<Real> const weights(call);
  kernels::for_each(
      execution, "reference cross entropy losses", statistics.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        double const log_normalizer = in[row][0] + std::log(static_cast<double>(in[row][1]));
        double const of_target = log_normalizer - in[row][2];
        double const of_all = log_normalizer - in[row][3] / vocabulary;
        double const of_z = z_loss == 0 ? 0 : z_loss * log_normalizer * log_normalizer;
        double const weight = weights[row];
        out[row][0] = weight == 0
                          ? Real{0}
                          : static_cast<Real>(weight * ((1 - smoothing) * of_target + smoothing * of_all + of_z));
        out[row][1] = weight == 0 ? Real{0} : static_cast<Real>(weight * of_target);
      });
}

template <class Element>
void write_gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics, double scale) {
  auto const logits = kernels::rows_of<Element>(call.logits);
  auto const in = kernels::rows_of<kernels::ArithmeticType<Element>>(statistics);
  auto const* const targets = call.targets.data<std::int32_t>();
  std::int64_t const columns = call.logits.dim(1);
  std::int64_t const first = call.first_token;
  double const smoothing = call.label_smoothing;
  double const z_loss = call.z_loss;
  auto const vocabulary = static_cast<double>(call.global_vocabulary);
  kernels::RowWeights<kernels::ArithmeticType<Element>> const weights(call);
  kernels::for_each(
      execution, "reference cross entropy gradient", call.logits.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        double const maximum = in[row][0];
        double const sum_exp = in[row][1];
        double const weighted = weights[row] * scale;
        double const of_z = z_loss == 0 ? 0 : 2 * z_loss * (maximum + std::log(sum_exp));
        for (std::int64_t c = 0; c < columns; ++c) {
          double const probability = std::exp(kernels::wide<double>(logits[row][c]) - maximum) / sum_exp;
          double const wanted = (c + first == targets[row] ? 1 - smoothing : 0.0) + smoothing / vocabulary;
          logits[row][c] = kernels::narrow<Element>(weighted * (probability * (1 + of_z) - wanted));
        }
      });
}

class ReferenceSoftmaxCrossEntropy : public SoftmaxCrossEntropy {
 public:
  bool supports(SoftmaxCrossEntropyProblem const& problem) const override { return problem.dtype != DType::int32; }
  void statistics(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics) override {
    kernels::with_floating(call.logits.dtype(),
                           [&]<class Element>(Element) { write_statistics<Element>(execution, call, statistics); });
  }
  void combine(Execution& execution, Tensor const& part_statistics, Tensor const& statistics) override {
    kernels::with_real(statistics.dtype(),
                       [&](auto real) { combine_statistics<decltype(real)>(execution, part_statistics, statistics); });
  }
  void losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
              Tensor const& losses) override {
    kernels::with_real(statistics.dtype(),
                       [&](auto real) { write_losses<decltype(real)>(execution, call, statistics, losses); });
  }
  void add_losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& losses,
                  Tensor const& sums) override {
    kernels::with_real(losses.dtype(),
                       [&]<class Real>(Real) { kernels::add_up_losses<Real>(execution, call, losses, sums); });
  }
  void add_correct(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                   Tensor const& sums) override {
    kernels::with_real(statistics.dtype(),
                       [&]<class Real>(Real) { kernels::count_correct<Real>(execution, call, statistics, sums); });
  }
  void gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                double scale) override {
    kernels::with_floating(call.logits.dtype(), [&]<class Element>(Element) {
      write_gradient<Element>(execution, call, statistics, scale);
    });
  }
};

}  // namespace

void add_softmax_cross_entropy_kernels(KernelRegistries& registries) {
  registries.of<SoftmaxCrossEntropy>().add("reference", speeds::reference,
                                           std::make_shared<ReferenceSoftmaxCrossEntropy>());
}

}  // namespace heddle
