#pragma once

#include <heddle/core/operations/dropout.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>

namespace heddle {

struct ActivationProblem {
  DType dtype = DType::float32;
  /// "relu", "gelu" (exact, with erf), "gelu_tanh" (its approximation), "silu" (x / (1 + exp(-x))), or a plug-in's own
  std::string function;
  bool gated = false;
};
/// The problem in words, for messages.
std::string describe(ActivationProblem const& problem);
/// The part of a problem that measured times depend on (KernelTimings).
std::string timing_key(ActivationProblem const& problem);
/// The cost of a call of this many elements.
Cost forward_cost(ActivationProblem const& problem, double elements);
Cost backward_cost(ActivationProblem const& problem, double elements);

struct ActivationCall {
  std::string function;
  Tensor input;  ///< [tokens, d_ff]
  Dropout dropout{};
  /// For backward: forward's output, if the caller kept it (or empty). For a function such as relu, whose derivative
  /// follows from its output, it also shows which elements were dropped, without random numbers.
  Tensor output{};
  Tensor gate{};  ///< as input, or empty

  ActivationProblem problem() const { return {input.dtype(), function, !gate.empty()}; }
};

struct ActivationGradients {
  Tensor input;   ///< =, [tokens, d_ff]; may be the same memory as grad_output
  Tensor gate{};  ///< =, as input, where the call has a gate; never the same memory as another tensor of the call
};

/// output = dropout(function(input)), times the gate where there is one (Shazeer 2020: silu gives SwiGLU, gelu GEGLU).
class Activation : public Kernel {
 public:
  static constexpr char const* operation = "activation";
  using Problem = ActivationProblem;
  virtual bool supports(ActivationProblem const& problem) const = 0;
  static std::shared_ptr<Activation> observed(ObservedSelection<Activation> selection);
  /// output = [tokens, d_ff]; may be the same memory as the input or the gate.
  virtual void forward(Execution& execution, ActivationCall const& call, Tensor const& output) = 0;
  virtual void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                        ActivationGradients const& gradients) = 0;
};

}  // namespace heddle
