#include "product.hpp"

#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/operations/observation.hpp>

namespace swish {
namespace {

using heddle::Execution;
using heddle::Tensor;
namespace kernels = heddle::kernels;

template <class Element, class Real = kernels::ArithmeticType<Element>>
void multiply_as(Execution& execution, Tensor const& a, Tensor const& b, Tensor const& output) {
  Element const* const factor_a = a.data<Element>();
  Element const* const factor_b = b.data<Element>();
  Element* const product = output.data<Element>();
  kernels::for_each(
      execution, "product", output.size(), KOKKOS_LAMBDA(std::int64_t i) {
        product[i] = kernels::narrow<Element>(kernels::wide<Real>(factor_a[i]) * kernels::wide<Real>(factor_b[i]));
      });
}

class PortableProduct final : public Product {
 public:
  bool supports(ProductProblem const& problem) const override { return problem.dtype != heddle::DType::int32; }

  void forward(Execution& execution, Tensor const& a, Tensor const& b, Tensor const& output) override {
    output.require(a.dtype(), a.shape(), "a product's output");
    kernels::with_floating(a.dtype(), [&]<class Element>(Element) { multiply_as<Element>(execution, a, b, output); });
  }

  void backward(Execution& execution, Tensor const& a, Tensor const& b, Tensor const& grad_output, Tensor const& grad_a,
                Tensor const& grad_b) override {
    grad_output.require(a.dtype(), a.shape(), "a product's grad_output");
    kernels::with_floating(a.dtype(), [&]<class Element>(Element) {
      multiply_as<Element>(execution, grad_output, a, grad_b);
      multiply_as<Element>(execution, grad_output, b, grad_a);  // the last, as it may overwrite grad_output
    });
  }
};

/// Reports the calls and their costs.
class ObservedProduct final : public heddle::ObservedKernel<Product> {
 public:
  using ObservedKernel::ObservedKernel;

  void forward(Execution& execution, Tensor const& a, Tensor const& b, Tensor const& output) override {
    pass(
        execution,
        [&] {
          return description("forward", {a, b, output});
        },
        [=, &execution](Product& kernel) { kernel.forward(execution, a, b, output); });
  }

  void backward(Execution& execution, Tensor const& a, Tensor const& b, Tensor const& grad_output, Tensor const& grad_a,
                Tensor const& grad_b) override {
    pass(
        execution,
        [&] {
          return description("backward", {a, b, grad_output, grad_a, grad_b});
        },
        [=, &execution](Product& kernel) { kernel.backward(execution, a, b, grad_output, grad_a, grad_b); });
  }

 private:
  static heddle::CallDescription description(std::string_view direction, std::initializer_list<Tensor> tensors) {
    Tensor const& first = *tensors.begin();
    return {.direction = direction,
            .variant = "",
            .extents = first.shape().to_string(),
            .dtype = first.dtype(),
            .cost = {.operations = 0, .bytes = heddle::bytes_of(tensors)}};
  }
};

}  // namespace

std::string describe(ProductProblem const& problem) {
  return "products of " + std::string(heddle::name_of(problem.dtype));
}

std::string timing_key(ProductProblem const& problem) {
  return describe(problem);
}

std::shared_ptr<Product> Product::observed(heddle::ObservedSelection<Product> selection) {
  return std::make_shared<ObservedProduct>(std::move(selection));
}

std::shared_ptr<Product> make_product() {
  return std::make_shared<PortableProduct>();
}

}  // namespace swish
