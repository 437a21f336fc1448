#pragma once

#include <array>
#include <cstdint>
#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace heddle {

/// The values of an attention layer's option `score` that Heddle has; plug-ins add others.
inline constexpr std::array<std::string_view, 4> built_in_scores{"scaled_dot_product", "dot_product", "additive",
                                                                 "linear"};

struct AttentionScoreProblem {
  DType dtype = DType::float32;
  std::string function;  ///< the name of the score
};
std::string describe(AttentionScoreProblem const& problem);

/// A function f of the scores of attention, which a plug-in brings. A query and a key that see each other have the
/// score s = scale * q · k + bias and give v a weight that is
/// - exp(f(s)) / Σ exp(f(s)), the softmax over all keys that the query sees, where the score is normalized,
/// - f(s) otherwise: no key depends on another one (sigmoid attention: Ramapuram et al. 2024).
///
/// Attention computes the products, masks, dropout and sums, and calls f for a block of scores at a time. Blocks are
/// merged in any order, which is why caches, windows and the ring of context parallelism need nothing of f.
class AttentionScore : public Operation<AttentionScoreProblem> {
 public:
  static constexpr char const* operation = "attention_score";
  /// The selected score itself: its calls are part of attention's, which are observed.
  static std::shared_ptr<AttentionScore> observed(ObservedSelection<AttentionScore> selection);

  AttentionScore(std::string name, bool normalized) : name_(std::move(name)), normalized_(normalized) {}

  std::string const& name() const { return name_; }
  bool normalized() const { return normalized_; }
  bool supports(AttentionScoreProblem const& problem) const override {
    return problem.function == name_ && (problem.dtype == DType::float32 || problem.dtype == DType::float64);
  }

  /// values[i] = f(scores[i]) and, where it is not null, slopes[i] = f'(scores[i]), in host memory; values may be
  /// scores. Several threads may call it at once.
  virtual void apply(std::int64_t count, float const* scores, float* values, float* slopes) const = 0;
  virtual void apply(std::int64_t count, double const* scores, double* values, double* slopes) const = 0;

 private:
  std::string name_;
  bool normalized_;
};

/// Makes an AttentionScore of `Function`, a class with these members:
/// - `static constexpr bool normalized`
/// - `template <class Real> static Real value(Real score)`: f
/// - `template <class Real> static Real slope(Real score)`: its derivative
template <class Function>
class AttentionScoreFrontEnd final : public AttentionScore {
 public:
  explicit AttentionScoreFrontEnd(std::string name) : AttentionScore(std::move(name), Function::normalized) {}

  void apply(std::int64_t count, float const* scores, float* values, float* slopes) const override {
    compute(count, scores, values, slopes);
  }
  void apply(std::int64_t count, double const* scores, double* values, double* slopes) const override {
    compute(count, scores, values, slopes);
  }

 private:
  template <class Real>
  static void compute(std::int64_t count, Real const* scores, Real* values, Real* slopes) {
    for (std::int64_t i = 0; slopes != nullptr && i < count; ++i) {
      slopes[i] = Function::slope(scores[i]);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      values[i] = Function::value(scores[i]);
    }
  }
};

}  // namespace heddle
