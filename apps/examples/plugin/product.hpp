#pragma once

#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>

namespace swish {

/// An operation that Heddle does not know: `[kernels] product = "…"` chooses among its implementations, `heddle
/// kernels` lists and times them. It needs exactly what kernel.hpp requires of an interface.
struct ProductProblem {
  heddle::DType dtype = heddle::DType::float32;
};
/// The problem in words, for messages.
std::string describe(ProductProblem const& problem);
/// The part of a problem that measured times depend on.
std::string timing_key(ProductProblem const& problem);

/// The element-wise product; tensors are contiguous, of one shape and one floating-point dtype.
class Product : public heddle::Kernel {
 public:
  static constexpr char const* operation = "product";
  using Problem = ProductProblem;
  virtual bool supports(ProductProblem const& problem) const = 0;
  static std::shared_ptr<Product> observed(heddle::ObservedSelection<Product> selection);

  /// output = a ∘ b.
  virtual void forward(heddle::Execution& execution, heddle::Tensor const& a, heddle::Tensor const& b,
                       heddle::Tensor const& output) = 0;
  /// grad_a = grad_output ∘ b and grad_b = grad_output ∘ a; grad_a may be the same memory as grad_output.
  virtual void backward(heddle::Execution& execution, heddle::Tensor const& a, heddle::Tensor const& b,
                        heddle::Tensor const& grad_output, heddle::Tensor const& grad_a,
                        heddle::Tensor const& grad_b) = 0;
};

std::shared_ptr<Product> make_product();

}  // namespace swish
