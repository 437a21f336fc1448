#pragma once

#include <heddle/core/operations/dispatch.hpp>
#include <heddle/core/operations/dropout.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>

namespace heddle {

struct ActivationProblem {
  DType dtype = DType::float32;
  /// A name of base/activation_functions.hpp, or a plug-in's own.
  std::string function;
  bool gated = false;
};
std::string describe(ActivationProblem const& problem);
std::string timing_key(ActivationProblem const& problem);
Cost forward_cost(ActivationProblem const& problem, double elements);
Cost backward_cost(ActivationProblem const& problem, double elements);

struct ActivationCall {
  std::string function;
  Tensor input;  ///< [tokens, d_ff]
  Dropout dropout{};
  /// For backward: forward's output, if the caller kept it (or empty). For a function such as relu, whose derivative
  /// follows from its output, it also shows which elements were dropped, without random numbers.
  Tensor output{};
  Tensor gate{};  ///< [tokens, d_ff], or empty

  ActivationProblem problem() const { return {input.dtype(), function, !gate.empty()}; }
};

struct ActivationGradients {
  Tensor input;   ///< =, [tokens, d_ff]; may be the same memory as grad_output
  Tensor gate{};  ///< =, as input, where the call has a gate; never the same memory as another tensor of the call
};

/// Throws if the tensors of a backward call do not have the input's dtype and shape.
void require_gradients(ActivationCall const& call, Tensor const& grad_output, ActivationGradients const& gradients);

/// output = dropout(function(input)), times the gate where there is one (Shazeer 2020: silu gives SwiGLU, gelu GEGLU).
class Activation : public Operation<ActivationProblem> {
 public:
  static constexpr char const* operation = "activation";
  static std::shared_ptr<Activation> observed(ObservedSelection<Activation> selection);
  /// output = [tokens, d_ff]; may be the same memory as the input or the gate.
  virtual void forward(Execution& execution, ActivationCall const& call, Tensor const& output) = 0;
  virtual void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                        ActivationGradients const& gradients) = 0;
};

/// The front end of implementations: checks a call's tensors and calls `Functions`, a class with these members.
/// - `static bool supports(ActivationProblem const&)`, for elements of a floating-point type
/// - `template <class Element> static void forward(execution, call, output)`
/// - `template <class Element> static void backward(execution, call, grad_output, gradients)`
template <class Functions, class Types = kernels::FloatingTypes>
class ActivationFrontEnd final : public Activation {
 public:
  bool supports(ActivationProblem const& problem) const override {
    return Types::contain(problem.dtype) && Functions::supports(problem);
  }
  void forward(Execution& execution, ActivationCall const& call, Tensor const& output) override {
    output.require(call.input.dtype(), call.input.shape(), "an activation's output");
    Types::with(call.input.dtype(),
                [&]<class Element>(Element) { Functions::template forward<Element>(execution, call, output); });
  }
  void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                ActivationGradients const& gradients) override {
    require_gradients(call, grad_output, gradients);
    Types::with(call.input.dtype(), [&]<class Element>(Element) {
      Functions::template backward<Element>(execution, call, grad_output, gradients);
    });
  }
};

}  // namespace heddle
