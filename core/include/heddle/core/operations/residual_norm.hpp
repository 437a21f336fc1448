#pragma once

#include <heddle/core/base/norm_kind.hpp>
#include <heddle/core/operations/dispatch.hpp>
#include <heddle/core/operations/dropout.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>

namespace heddle {

struct ResidualNormProblem {
  DType dtype = DType::float32;
  std::int64_t d_model = 0;
  float dropout_rate = 0;
  /// "layer", "rms" (base/norm_kind.hpp), or a plug-in's own
  std::string kind{NormKind::layer};
  bool bias = true;  ///< the norm has one
};
std::string describe(ResidualNormProblem const& problem);
std::string timing_key(ResidualNormProblem const& problem);
/// The cost of `rows` tokens, with a branch and a norm.
Cost forward_cost(ResidualNormProblem const& problem, double rows);
/// The cost of `rows` tokens, with a branch, a norm and gradients of both outputs.
Cost backward_cost(ResidualNormProblem const& problem, double rows);

/// One pass over the residual stream between two sublayers: sum = residual + dropout(branch), normalized =
/// norm(sum) * weight + bias. Either half can be left out: with an empty `branch`, sum = residual (only a norm); with
/// an empty `weight` there is no norm.
struct ResidualNormCall {
  Tensor residual;  ///< [tokens, d_model]
  Tensor branch;    ///< [tokens, d_model] or empty
  Dropout dropout{};
  Tensor weight;  ///< [d_model] in parameter_dtype, or empty
  Tensor bias;    ///< [d_model] in parameter_dtype, or empty: none
  double epsilon = 1e-5;
  std::string kind{NormKind::layer};

  ResidualNormProblem problem() const {
    return {residual.dtype(), residual.dim(1), dropout.rate, kind, weight.empty() || !bias.empty()};
  }
};

struct ResidualNormOutput {
  Tensor sum;                   ///< [tokens, d_model]; may be empty where there is no branch (the residual is the sum)
  Tensor normalized;            ///< [tokens, d_model]; empty without a norm
  Tensor mean;                  ///< [tokens] in statistics_dtype, 0 where the kind has no centre; empty without a norm
  Tensor reciprocal_deviation;  ///< [tokens] in statistics_dtype: 1 / sqrt(…) of the norm's kind; empty without a norm
};

struct ResidualNormGradients {
  Tensor residual;  ///< =, [tokens, d_model]
  Tensor branch;    ///< =, [tokens, d_model]; empty without a branch; never the same memory as residual
  Tensor weight;    ///< +=, [d_model]
  Tensor bias;      ///< +=, [d_model]; empty where the call has none
};

class ResidualNorm : public Operation<ResidualNormProblem> {
 public:
  static constexpr char const* operation = "residual_norm";
  static std::shared_ptr<ResidualNorm> observed(ObservedSelection<ResidualNorm> selection);
  virtual void forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) = 0;
  /// `grad_normalized` and `grad_sum` are the gradients of the two outputs; one of them may be empty (zero).
  /// gradients.residual may be the same memory as grad_sum or grad_normalized. `output.sum` is the residual where
  /// there was no branch.
  virtual void backward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output,
                        Tensor const& grad_normalized, Tensor const& grad_sum,
                        ResidualNormGradients const& gradients) = 0;
};

/// The front end of implementations: calls `Functions`, a class with these members.
/// - `static bool supports(ResidualNormProblem const&)`, for elements of a floating-point type
/// - `template <class Element> static void forward(execution, call, output)`
/// - `template <class Element> static void backward(execution, call, output, grad_normalized, grad_sum, gradients)`
template <class Functions, class Types = kernels::FloatingTypes>
class ResidualNormFrontEnd final : public ResidualNorm {
 public:
  bool supports(ResidualNormProblem const& problem) const override {
    return Types::contain(problem.dtype) && Functions::supports(problem);
  }
  void forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) override {
    Types::with(call.residual.dtype(),
                [&]<class Element>(Element) { Functions::template forward<Element>(execution, call, output); });
  }
  void backward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output,
                Tensor const& grad_normalized, Tensor const& grad_sum,
                ResidualNormGradients const& gradients) override {
    Types::with(call.residual.dtype(), [&]<class Element>(Element) {
      Functions::template backward<Element>(execution, call, output, grad_normalized, grad_sum, gradients);
    });
  }
};

}  // namespace heddle
