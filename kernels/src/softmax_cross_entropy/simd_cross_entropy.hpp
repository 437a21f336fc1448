#pragma once

#include "support/factories.hpp"
#include "terms.hpp"
#include "vector/lanes_pairs.hpp"

/// The cross-entropy on the host's vector units: two or three passes over a row that stays in a near cache, 32
/// elements at a time; elements beyond the last whole block are computed one by one. The kernels are in an unnamed
/// namespace, so that each element type's file has its own copy, which the compiler may inline.
namespace heddle::simd_cross_entropy {
namespace {

using lanes::Floats;
using lanes::Pair;

inline constexpr float log2_e = 1.44269504F;
inline constexpr std::int64_t block = lanes::pair_width;

/// e^x for x that are at most 0. The relative error is about |x| · 6e-8, and 2⁻⁹ or less for bfloat16.
template <class Element>
Pair exponentials(Pair x) {
  if constexpr (std::is_same_v<Element, float>) {
    return {lanes::exp2_of_negative(x.even * log2_e), lanes::exp2_of_negative(x.odd * log2_e)};
  } else {
    return {lanes::rough_exp2_of_negative(x.even * log2_e), lanes::rough_exp2_of_negative(x.odd * log2_e)};
  }
}

struct MaximumAndSum {
  float maximum;
  float sum;
};

template <class Element>
MaximumAndSum maximum_and_sum(Element const* row, std::int64_t columns) {
  Pair maximum{lanes::all(-INFINITY), lanes::all(-INFINITY)};
  Pair sum{};
  std::int64_t c = 0;
  for (; c + block <= columns; c += block) {
    Pair const value = lanes::load_block(row + c);
    maximum = {lanes::maximum(value.even, maximum.even), lanes::maximum(value.odd, maximum.odd)};
    sum = {sum.even + value.even, sum.odd + value.odd};
  }
  MaximumAndSum result{lanes::largest(lanes::maximum(maximum.even, maximum.odd)), lanes::sum(sum.even + sum.odd)};
  for (; c < columns; ++c) {
    auto const value = kernels::wide<float>(row[c]);
    result.maximum = value > result.maximum ? value : result.maximum;
    result.sum += value;
  }
  return result;
}

/// The sum of exp(logit - maximum) before any rounding. With `write`, the exponentials replace the logits. Meanwhile
/// prefetches the row at `next`.
template <bool write, class Element>
float sum_of_exponentials(Element* row, std::int64_t columns, float maximum, Element const* next) {
  constexpr std::int64_t line = 64 / static_cast<std::int64_t>(sizeof(Element));
  Pair sum{};
  std::int64_t c = 0;
  for (; c + block <= columns; c += block) {
    for (std::int64_t ahead = 0; ahead < block; ahead += line) {
      __builtin_prefetch(next + c + ahead);
    }
    Pair const value = lanes::load_block(row + c);
    Pair const exponential = exponentials<Element>({value.even - maximum, value.odd - maximum});
    sum = {sum.even + exponential.even, sum.odd + exponential.odd};
    if constexpr (write) {
      lanes::store_block(exponential, row + c);
    }
  }
  float total = lanes::sum(sum.even + sum.odd);
  for (; c < columns; ++c) {
    float const exponential = exp_of_negative(kernels::wide<float>(row[c]) - maximum);
    total += exponential;
    if constexpr (write) {
      row[c] = kernels::narrow<Element>(exponential);
    }
  }
  return total;
}

/// Replaces each exponential by factor * exponential - wanted. Without `exponential` the row has logits, of which the
/// exponentials are exp(logit - maximum).
template <bool exponential, class Element>
void write_gradient(Element* row, std::int64_t columns, float maximum, float factor, float wanted) {
  std::int64_t c = 0;
  for (; c + block <= columns; c += block) {
    Pair value = lanes::load_block(row + c);
    if constexpr (!exponential) {
      value = exponentials<Element>({value.even - maximum, value.odd - maximum});
    }
    lanes::store_block({value.even * factor - wanted, value.odd * factor - wanted}, row + c);
  }
  for (; c < columns; ++c) {
    auto const value = kernels::wide<float>(row[c]);
    row[c] = kernels::narrow<Element>((exponential ? value : exp_of_negative(value - maximum)) * factor - wanted);
  }
}

/// Replaces a row by its gradient: see write_gradient. `of_target` is the target's logit.
template <bool exponential, class Element>
void replace_row(kernels::Logits<Element> const& logits, std::int64_t row, float maximum, float factor,
                 float of_target) {
  Element* const values = logits.rows[row];
  float const weight = logits.weights[row];
  float const wanted_of_all = weight * logits.rule.wanted_of_all;
  write_gradient<exponential>(values, logits.columns, maximum, factor, wanted_of_all);
  if (std::int64_t const target = logits.target(row); logits.here(target)) {
    float const probability = exp_of_negative(of_target - maximum) * factor;
    values[target] = kernels::narrow<Element>(probability - wanted_of_all - weight * logits.rule.wanted_of_target);
  }
}

template <class Element>
float logit_of_target(kernels::Logits<Element> const& logits, std::int64_t row) {
  std::int64_t const target = logits.target(row);
  return logits.here(target) ? kernels::wide<float>(logits.rows[row][target]) : 0.0F;
}

struct SimdSoftmaxCrossEntropy : kernels::SharedTerms {
  template <class Element>
  static void statistics(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics) {
    kernels::Logits<Element> const logits(call);
    auto const out = kernels::rows_of<float>(statistics);
    kernels::for_each(execution, "cross entropy statistics", logits.count, [=](std::int64_t row) {
      Element* const values = logits.rows[row];
      MaximumAndSum const found = maximum_and_sum(values, logits.columns);
      out[row][0] = found.maximum;
      out[row][1] = sum_of_exponentials<false>(values, logits.columns, found.maximum, values + logits.rows.stride);
      out[row][2] = logit_of_target(logits, row);
      out[row][3] = found.sum;
    });
  }

  template <class Element>
  static void gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                       double scale) {
    kernels::Logits<Element> const logits(call, scale);
    auto const in = kernels::rows_of<float>(statistics);
    kernels::for_each(execution, "cross entropy gradient", logits.count, [=](std::int64_t row) {
      float const factor = logits.rule.probability_factor(in[row][0], in[row][1], logits.weights[row]);
      replace_row<false>(logits, row, in[row][0], factor, logit_of_target(logits, row));
    });
  }

  template <class Element>
  static void losses_and_gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, double scale,
                                  Tensor const& losses) {
    kernels::Logits<Element> const logits(call, scale);
    auto const out = kernels::rows_of<float>(losses);
    kernels::for_each(execution, "cross entropy losses and gradient", logits.count, [=](std::int64_t row) {
      Element* const values = logits.rows[row];
      MaximumAndSum const found = maximum_and_sum(values, logits.columns);
      float const of_target = logit_of_target(logits, row);
      float const sum = sum_of_exponentials<true>(values, logits.columns, found.maximum, values + logits.rows.stride);
      float const statistics[] = {found.maximum, sum, of_target, found.sum};
      float const weight = logits.weights[row];
      logits.rule.write_losses(statistics, weight, out[row]);
      replace_row<true>(logits, row, found.maximum, logits.rule.probability_factor(found.maximum, sum, weight),
                        of_target);
    });
  }
};

template <class Element>
void add_simd_softmax_cross_entropy(KernelRegistries& registries) {
  using FrontEnd = SoftmaxCrossEntropyFrontEnd<SimdSoftmaxCrossEntropy, kernels::ElementTypes<Element>>;
  registries.of<SoftmaxCrossEntropy>().add_part("simd", priorities::simd, std::make_shared<FrontEnd>());
}

}  // namespace
}  // namespace heddle::simd_cross_entropy
