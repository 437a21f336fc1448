#pragma once

#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>

namespace heddle::kernels {

/// The weights of rows: 0 for a row whose target is ignored.
template <class Real>
struct RowWeights {
  std::int32_t const* targets;
  Real const* weights;  ///< null: 1

  explicit RowWeights(SoftmaxCrossEntropyCall const& call)
      : targets(call.targets.data<std::int32_t>()), weights(rows_of<Real>(call.weights).data) {}

  KOKKOS_INLINE_FUNCTION bool ignored(std::int64_t row) const { return targets[row] < 0; }
  KOKKOS_INLINE_FUNCTION Real operator[](std::int64_t row) const {
    return ignored(row) ? Real{0} : (weights == nullptr ? Real{1} : weights[row]);
  }
};

/// Constants from which the loss and the gradient of each row are computed.
template <class Real>
struct LossRule {
  Real smoothing;
  Real z_loss;
  Real share;          ///< share of one entry of the vocabulary: 1 / its size
  Real scale;          ///< factor of the gradient
  Real wanted_of_all;  ///< scaled, of every entry, and the target's addition to it
  Real wanted_of_target;

  explicit LossRule(SoftmaxCrossEntropyCall const& call, double scale_of_gradient = 1)
      : smoothing(static_cast<Real>(call.label_smoothing)),
        z_loss(static_cast<Real>(call.z_loss)),
        share(Real{1} / static_cast<Real>(call.global_vocabulary)),
        scale(static_cast<Real>(scale_of_gradient)),
        wanted_of_all(
            static_cast<Real>(scale_of_gradient * call.label_smoothing / static_cast<double>(call.global_vocabulary))),
        wanted_of_target(static_cast<Real>(scale_of_gradient * (1 - call.label_smoothing))) {}

  /// The factor of the probabilities in a row's gradient: d(z_loss * log²Z)/d(logit) = 2 z_loss logZ * probability.
  KOKKOS_INLINE_FUNCTION Real probability_factor(Real maximum, Real sum_exp, Real weight) const {
    Real const of_z = z_loss == Real{0} ? Real{1} : 1 + 2 * z_loss * (maximum + std::log(sum_exp));
    return weight * scale * of_z / sum_exp;
  }
  /// Computes the smoothed loss with the z-loss and the plain loss from a row's statistics and weight.
  KOKKOS_INLINE_FUNCTION void write_losses(Real const* statistics, Real weight, Real* losses) const {
    Real const log_normalizer = statistics[0] + std::log(statistics[1]);
    Real const of_target = log_normalizer - statistics[2];
    Real const of_all = log_normalizer - statistics[3] * share;
    Real const of_z = z_loss == Real{0} ? Real{0} : z_loss * log_normalizer * log_normalizer;
    losses[0] = weight == Real{0} ? Real{0} : weight * (of_target + smoothing * (of_all - of_target) + of_z);
    losses[1] = weight == Real{0} ? Real{0} : weight * of_target;
  }
};

/// The logits of a call and what it says about them.
template <class Element>
struct Logits {
  using Real = ArithmeticType<Element>;

  Rows<Element> rows;
  std::int32_t const* targets;
  std::int64_t count, columns, first_token;
  LossRule<Real> rule;
  RowWeights<Real> weights;

  explicit Logits(SoftmaxCrossEntropyCall const& call, double scale = 1)
      : rows(rows_of<Element>(call.logits)),
        targets(call.targets.data<std::int32_t>()),
        count(call.logits.dim(0)),
        columns(call.logits.dim(1)),
        first_token(call.first_token),
        rule(call, scale),
        weights(call) {}

  /// The target's column; below 0 or at least `columns` where it is elsewhere.
  KOKKOS_INLINE_FUNCTION std::int64_t target(std::int64_t row) const { return targets[row] - first_token; }
  KOKKOS_INLINE_FUNCTION bool here(std::int64_t target_column) const {
    return target_column >= 0 && target_column < columns;
  }
};

/// The functions of rows' few numbers, which implementations inherit (SoftmaxCrossEntropyFrontEnd).
struct SharedTerms {
  template <class Real>
  static void combine(Execution& execution, Tensor const& part_statistics, Tensor const& statistics) {
    auto const* const in = part_statistics.data<Real>();
    auto const out = rows_of<Real>(statistics);
    std::int64_t const part_count = part_statistics.dim(0);
    std::int64_t const stride = part_statistics.dim(1) * SoftmaxCrossEntropy::statistics_columns;
    for_each(
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
  static void losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                     Tensor const& losses) {
    auto const in = rows_of<Real>(statistics);
    auto const out = rows_of<Real>(losses);
    LossRule<Real> const rule(call);
    RowWeights<Real> const weights(call);
    for_each(
        execution, "cross entropy losses", statistics.dim(0),
        KOKKOS_LAMBDA(std::int64_t row) { rule.write_losses(in[row], weights[row], out[row]); });
  }

  /// Adds rows in order in one work item: the sum does not depend on how they are split into calls.
  template <class Real>
  static void add_losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& losses,
                         Tensor const& sums) {
    auto const in = rows_of<Real>(losses);
    RowWeights<Real> const rows(call);
    double* const totals = sums.data<double>();
    std::int64_t const count = losses.dim(0);
    for_each(
        execution, "cross entropy sums", 1, KOKKOS_LAMBDA(std::int64_t) {
          // Volatile, because the compiler may not reorder these sums, as it may others.
          double volatile smoothed = totals[0];
          double volatile plain = totals[1];
          std::int64_t counted = 0;
          for (std::int64_t row = 0; row < count; ++row) {
            smoothed = smoothed + static_cast<double>(in[row][0]);
            plain = plain + static_cast<double>(in[row][1]);
            counted += rows.ignored(row) ? 0 : 1;
          }
          totals[0] = smoothed;
          totals[1] = plain;
          totals[2] += static_cast<double>(counted);
        });
  }

  template <class Real>
  static void add_correct(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                          Tensor const& sums) {
    auto const in = rows_of<Real>(statistics);
    RowWeights<Real> const rows(call);
    double* const totals = sums.data<double>();
    std::int64_t const count = statistics.dim(0);
    for_each(
        execution, "cross entropy correct", 1, KOKKOS_LAMBDA(std::int64_t) {
          std::int64_t correct = 0;
          for (std::int64_t row = 0; row < count; ++row) {
            correct += !rows.ignored(row) && in[row][2] >= in[row][0] ? 1 : 0;
          }
          totals[3] += static_cast<double>(correct);
        });
  }
};

}  // namespace heddle::kernels
