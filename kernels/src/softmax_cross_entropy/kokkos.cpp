#include <heddle/core/operations/kernel_author.hpp>

#include "support/factories.hpp"
#include "terms.hpp"

namespace heddle {
namespace {

using kernels::Logits;

/// The number of independent partial results of a row's reduction, enough to fill the vector pipelines.
constexpr int lanes = 64;

template <class Real>
struct RowSums {
  Real maximum;
  Real sum;
};

template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION RowSums<Real> maximum_and_sum(Element const* logits, std::int64_t columns) {
  Real maxima[lanes];
  Real sums[lanes];
  for (int lane = 0; lane < lanes; ++lane) {
    maxima[lane] = -std::numeric_limits<Real>::infinity();
    sums[lane] = 0;
  }
  std::int64_t const whole = columns - columns % lanes;
  for (std::int64_t c = 0; c < whole; c += lanes) {
    for (int lane = 0; lane < lanes; ++lane) {
      auto const logit = kernels::wide<Real>(logits[c + lane]);
      maxima[lane] = logit > maxima[lane] ? logit : maxima[lane];
      sums[lane] += logit;
    }
  }
  RowSums<Real> result{-std::numeric_limits<Real>::infinity(), 0};
  for (std::int64_t c = whole; c < columns; ++c) {
    auto const logit = kernels::wide<Real>(logits[c]);
    result.maximum = logit > result.maximum ? logit : result.maximum;
    result.sum += logit;
  }
  for (int lane = 0; lane < lanes; ++lane) {
    result.maximum = maxima[lane] > result.maximum ? maxima[lane] : result.maximum;
    result.sum += sums[lane];
  }
  return result;
}

template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION Real sum_of_exponentials(Element const* logits, std::int64_t columns, Real maximum) {
  Real sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) {
    sum += exp_of_negative(kernels::wide<Real>(logits[c]) - maximum);
  }
  return sum;
}

/// Replaces each logit by exp(logit - maximum), rounded, and returns the sum of the unrounded values.
template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION Real write_exponentials(Element* logits, std::int64_t columns, Real maximum) {
  Real sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) {
    Real const exponential = exp_of_negative(kernels::wide<Real>(logits[c]) - maximum);
    sum += exponential;
    logits[c] = kernels::narrow_again<Element>(exponential);
  }
  return sum;
}

struct KokkosSoftmaxCrossEntropy : kernels::SharedTerms {
  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void statistics(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics) {
    Logits<Element> const logits(call);
    auto const out = kernels::rows_of<Real>(statistics);
    kernels::for_each(
        execution, "cross entropy statistics", logits.count, KOKKOS_LAMBDA(std::int64_t row) {
          Element const* const values = logits.rows[row];
          auto const sums = maximum_and_sum<Element>(values, logits.columns);
          std::int64_t const target = logits.target(row);
          out[row][0] = sums.maximum;
          out[row][1] = sum_of_exponentials<Element>(values, logits.columns, sums.maximum);
          out[row][2] = logits.here(target) ? kernels::wide<Real>(values[target]) : Real{0};
          out[row][3] = sums.sum;
        });
  }

  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                       double scale) {
    Logits<Element> const logits(call, scale);
    auto const in = kernels::rows_of<Real>(statistics);
    kernels::for_each(
        execution, "cross entropy gradient", logits.count, KOKKOS_LAMBDA(std::int64_t row) {
          Real const maximum = in[row][0];
          Real const weight = logits.weights[row];
          Real const factor = logits.rule.probability_factor(maximum, in[row][1], weight);
          Real const wanted_of_all = weight * logits.rule.wanted_of_all;
          Element* const row_logits = logits.rows[row];
          std::int64_t const columns = logits.columns;
          auto const gradient = [=](Element logit, Real wanted) {
            return kernels::narrow_again<Element>(exp_of_negative(kernels::wide<Real>(logit) - maximum) * factor -
                                                  wanted);
          };
          std::int64_t const target = logits.target(row);
          bool const here = logits.here(target);
          Element const at_target =
              here ? gradient(row_logits[target], wanted_of_all + weight * logits.rule.wanted_of_target) : Element{};
          for (std::int64_t c = 0; c < columns; ++c) {
            row_logits[c] = gradient(row_logits[c], wanted_of_all);
          }
          if (here) {
            row_logits[target] = at_target;
          }
        });
  }

  /// Computes one row after another, each of which stays in the first-level cache: its maximum, its exponentials in
  /// place, its gradient.
  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void losses_and_gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, double scale,
                                  Tensor const& losses) {
    Logits<Element> const logits(call, scale);
    auto const out = kernels::rows_of<Real>(losses);
    kernels::for_each(
        execution, "cross entropy losses and gradient", logits.count, KOKKOS_LAMBDA(std::int64_t row) {
          Element* const values = logits.rows[row];
          std::int64_t const columns = logits.columns;
          kernels::LossRule<Real> const& rule = logits.rule;
          std::int64_t const target = logits.target(row);
          auto const sums = maximum_and_sum<Element>(values, columns);
          Real const weight = logits.weights[row];
          bool const ignored = logits.weights.ignored(row);
          Real const of_target = ignored ? Real{0} : kernels::wide<Real>(values[target]);
          Real const sum = write_exponentials<Element>(values, columns, sums.maximum);
          Real const statistics[] = {sums.maximum, sum, of_target, sums.sum};
          rule.write_losses(statistics, weight, out[row]);
          Real const factor = rule.probability_factor(sums.maximum, sum, weight);
          Real const wanted_of_all = weight * rule.wanted_of_all;
          Real const probability = exp_of_negative(of_target - sums.maximum) * factor;
          for (std::int64_t c = 0; c < columns; ++c) {
            values[c] = kernels::narrow_again<Element>(kernels::wide<Real>(values[c]) * factor - wanted_of_all);
          }
          if (!ignored) {
            values[target] =
                kernels::narrow_again<Element>(probability - wanted_of_all - weight * rule.wanted_of_target);
          }
        });
  }
};

}  // namespace

void add_portable_softmax_cross_entropy_kernels(KernelRegistries& registries) {
  using FrontEnd = SoftmaxCrossEntropyFrontEnd<KokkosSoftmaxCrossEntropy, CompiledTypes>;
  registries.of<SoftmaxCrossEntropy>().add_part("kokkos", priorities::portable, std::make_shared<FrontEnd>());
}

}  // namespace heddle
