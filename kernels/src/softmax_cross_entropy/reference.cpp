#include <heddle/core/operations/kernel_author.hpp>

#include "support/factories.hpp"
#include "terms.hpp"

namespace heddle {
namespace {

struct ReferenceSoftmaxCrossEntropy : kernels::SharedTerms {
  template <class Element>
  static void statistics(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics) {
    using Real = kernels::ArithmeticType<Element>;
    kernels::Logits<Element> const logits(call);
    auto const out = kernels::rows_of<Real>(statistics);
    kernels::for_each(
        execution, "reference cross entropy statistics", logits.count, KOKKOS_LAMBDA(std::int64_t row) {
          Element const* const values = logits.rows[row];
          double maximum = -INFINITY;
          double sum = 0;
          for (std::int64_t c = 0; c < logits.columns; ++c) {
            double const logit = kernels::wide<double>(values[c]);
            maximum = logit > maximum ? logit : maximum;
            sum += logit;
          }
          double sum_exp = 0;
          for (std::int64_t c = 0; c < logits.columns; ++c) {
            sum_exp += std::exp(kernels::wide<double>(values[c]) - maximum);
          }
          std::int64_t const target = logits.target(row);
          out[row][0] = static_cast<Real>(maximum);
          out[row][1] = static_cast<Real>(sum_exp);
          out[row][2] = logits.here(target) ? kernels::wide<Real>(values[target]) : Real{0};
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
    kernels::Logits<Element> const logits(call);
    auto const in = kernels::rows_of<kernels::ArithmeticType<Element>>(statistics);
    double const smoothing = call.label_smoothing;
    double const z_loss = call.z_loss;
    auto const vocabulary = static_cast<double>(call.global_vocabulary);
    kernels::for_each(
        execution, "reference cross entropy gradient", logits.count, KOKKOS_LAMBDA(std::int64_t row) {
          double const maximum = in[row][0];
          double const sum_exp = in[row][1];
          double const weighted = logits.weights[row] * scale;
          double const of_z = z_loss == 0 ? 0 : 2 * z_loss * (maximum + std::log(sum_exp));
          for (std::int64_t c = 0; c < logits.columns; ++c) {
            double const probability = std::exp(kernels::wide<double>(logits.rows[row][c]) - maximum) / sum_exp;
            double const wanted = (c == logits.target(row) ? 1 - smoothing : 0.0) + smoothing / vocabulary;
            logits.rows[row][c] = kernels::narrow<Element>(weighted * (probability * (1 + of_z) - wanted));
          }
        });
  }
};

}  // namespace

void add_softmax_cross_entropy_kernels(KernelRegistries& registries) {
  registries.of<SoftmaxCrossEntropy>().add(
      "reference", priorities::reference,
      std::make_shared<SoftmaxCrossEntropyFrontEnd<ReferenceSoftmaxCrossEntropy>>());
}

}  // namespace heddle
