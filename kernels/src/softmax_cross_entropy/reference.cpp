#include <heddle/core/operations/kernel_author.hpp>

#include "support/factories.hpp"
#include "terms.hpp"

namespace heddle {
namespace {

struct ReferenceSoftmaxCrossEntropy : kernels::SharedTerms {
  template <class Element>
  static void statistics(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics) {
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
  static void losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
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
  static void gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                       double scale) {
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
};

}  // namespace

void add_softmax_cross_entropy_kernels(KernelRegistries& registries) {
  registries.of<SoftmaxCrossEntropy>().add(
      "reference", speeds::reference, std::make_shared<SoftmaxCrossEntropyFrontEnd<ReferenceSoftmaxCrossEntropy>>());
}

}  // namespace heddle
