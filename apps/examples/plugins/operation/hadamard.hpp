#pragma once

#include <heddle/core/operations/trial.hpp>
#include <memory>
#include <string>

namespace hadamard_plugin {

/// An operation that Heddle does not know: `[kernels] hadamard = "…"` chooses among its implementations, `heddle
/// kernels` lists, times and checks them. It needs exactly what kernel.hpp requires of an interface.
struct HadamardProblem {
  heddle::DType dtype = heddle::DType::float32;
};
/// Describes the problem, for messages.
std::string describe(HadamardProblem const& problem);

/// The element-wise product; tensors are contiguous, of one shape and one floating-point dtype.
class Hadamard : public heddle::Operation<HadamardProblem> {
 public:
  static constexpr char const* operation = "hadamard";
  static std::shared_ptr<Hadamard> observed(heddle::ObservedSelection<Hadamard> selection);

  /// output = a ∘ b.
  virtual void forward(heddle::Execution& execution, heddle::Tensor const& a, heddle::Tensor const& b,
                       heddle::Tensor const& output) = 0;
  struct Gradients {
    heddle::Tensor a, b;
  };
  /// gradients.a = grad_output ∘ b and gradients.b = grad_output ∘ a; the former may be the memory of grad_output.
  virtual void backward(heddle::Execution& execution, heddle::Tensor const& a, heddle::Tensor const& b,
                        heddle::Tensor const& grad_output, Gradients const& gradients) = 0;
};

std::shared_ptr<Hadamard> make_portable();
/// The problem by which implementations are checked.
heddle::Trial<Hadamard> make_trial(heddle::TrialTensors& tensors, heddle::DType dtype);

}  // namespace hadamard_plugin
