#include "support/factories.hpp"
#include "terms.hpp"
#include "vector/lanes_pairs.hpp"

// The cross-entropy of a whole vocabulary in bfloat16 on the host's vector units: three passes over a row that stays
// in the first-level cache, in pairs of vectors; elements beyond the last whole pair are computed one by one.

namespace heddle {
namespace {

using lanes::Floats;
using lanes::Pair;
using lanes::pair_width;

constexpr float log2_e = 1.44269504F;

float wide(BFloat16 value) {
  return kernels::wide<float>(value);
}

struct MaximumAndSum {
  float maximum;
  float sum;
};

MaximumAndSum maximum_and_sum(BFloat16 const* row, std::int64_t columns) {
  Pair maximum{lanes::all(-INFINITY), lanes::all(-INFINITY)};
  Pair sum{};
  std::int64_t c = 0;
  for (; c + pair_width <= columns; c += pair_width) {
    Pair const value = lanes::load_pair(row + c);
    maximum = {lanes::maximum(value.even, maximum.even), lanes::maximum(value.odd, maximum.odd)};
    sum = {sum.even + value.even, sum.odd + value.odd};
  }
  Floats const largest = lanes::maximum(maximum.even, maximum.odd);
  MaximumAndSum result{largest[0], lanes::sum(sum.even + sum.odd)};
  for (int i = 1; i < lanes::width; ++i) {
    result.maximum = largest[i] > result.maximum ? largest[i] : result.maximum;
  }
  for (; c < columns; ++c) {
    result.maximum = wide(row[c]) > result.maximum ? wide(row[c]) : result.maximum;
    result.sum += wide(row[c]);
  }
  return result;
}

/// Replaces each logit by exp(logit - maximum), rounded, and returns the sum of the unrounded values. Meanwhile
/// prefetches the row at `next`.
float write_exponentials(BFloat16* row, std::int64_t columns, float maximum, BFloat16 const* next) {
  Pair sum{};
  std::int64_t c = 0;
  for (; c + pair_width <= columns; c += pair_width) {
    Pair const value = lanes::load_pair(row + c);
    __builtin_prefetch(next + c);
    Pair const exponential{lanes::rough_exp2_of_negative((value.even - maximum) * log2_e),
                           lanes::rough_exp2_of_negative((value.odd - maximum) * log2_e)};
    sum = {sum.even + exponential.even, sum.odd + exponential.odd};
    lanes::store_pair(exponential, row + c);
  }
  float total = lanes::sum(sum.even + sum.odd);
  for (; c < columns; ++c) {
    float const exponential = exp_of_negative(wide(row[c]) - maximum);
    total += exponential;
    row[c] = kernels::narrow<BFloat16>(exponential);
  }
  return total;
}

/// Replaces each exponential by factor * exponential - wanted.
void write_gradient(BFloat16* row, std::int64_t columns, float factor, float wanted) {
  std::int64_t c = 0;
  for (; c + pair_width <= columns; c += pair_width) {
    Pair const value = lanes::load_pair(row + c);
    lanes::store_pair({value.even * factor - wanted, value.odd * factor - wanted}, row + c);
  }
  for (; c < columns; ++c) {
    row[c] = kernels::narrow<BFloat16>(wide(row[c]) * factor - wanted);
  }
}

class SimdSoftmaxCrossEntropy final : public SoftmaxCrossEntropy {
 public:
  explicit SimdSoftmaxCrossEntropy(std::shared_ptr<SoftmaxCrossEntropy> portable) : portable_(std::move(portable)) {}

  bool supports(SoftmaxCrossEntropyProblem const& problem) const override { return problem.dtype == DType::bfloat16; }
  void statistics(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics) override {
    portable_->statistics(execution, call, statistics);
  }
  void combine(Execution& execution, Tensor const& part_statistics, Tensor const& statistics) override {
    portable_->combine(execution, part_statistics, statistics);
  }
  void losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
              Tensor const& losses) override {
    portable_->losses(execution, call, statistics, losses);
  }
  void add_losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& losses,
                  Tensor const& sums) override {
    portable_->add_losses(execution, call, losses, sums);
  }
  void add_correct(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                   Tensor const& sums) override {
    portable_->add_correct(execution, call, statistics, sums);
  }
  void gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                double scale) override {
    portable_->gradient(execution, call, statistics, scale);
  }
  void losses_and_gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, double scale,
                           Tensor const& losses) override {
    kernels::Logits<BFloat16> const logits(call, scale);
    auto const out = kernels::rows_of<float>(losses);
    kernels::for_each(execution, "cross entropy losses and gradient", logits.count, [=](std::int64_t row) {
      BFloat16* const values = logits.rows[row];
      std::int64_t const columns = logits.columns;
      kernels::LossRule<float> const& rule = logits.rule;
      std::int64_t const target = logits.target(row);
      MaximumAndSum const found = maximum_and_sum(values, columns);
      float const weight = logits.weights[row];
      bool const ignored = logits.weights.ignored(row);
      float const of_target = ignored ? 0.0F : wide(values[target]);
      float const sum = write_exponentials(values, columns, found.maximum, values + logits.rows.stride);
      float const statistics[] = {found.maximum, sum, of_target, found.sum};
      rule.write_losses(statistics, weight, out[row]);
      float const factor = rule.probability_factor(found.maximum, sum, weight);
      float const wanted_of_all = weight * rule.wanted_of_all;
      float const probability = exp_of_negative(of_target - found.maximum) * factor;
      write_gradient(values, columns, factor, wanted_of_all);
      if (!ignored) {
        values[target] = kernels::narrow<BFloat16>(probability - wanted_of_all - weight * rule.wanted_of_target);
      }
    });
  }

 private:
  std::shared_ptr<SoftmaxCrossEntropy> portable_;
};

}  // namespace

void add_simd_bfloat16_softmax_cross_entropy_kernels(KernelRegistries& registries) {
  auto& registry = registries.of<SoftmaxCrossEntropy>();
  registry.add("simd", speeds::simd,
               std::make_shared<SimdSoftmaxCrossEntropy>(registry.select("kokkos", {DType::bfloat16})));
}

}  // namespace heddle
