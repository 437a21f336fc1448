#include "hadamard.hpp"

#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/operations/observation.hpp>
#include <heddle/core/tensor/doubles.hpp>

namespace hadamard_plugin {
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
      execution, "hadamard", output.size(), KOKKOS_LAMBDA(std::int64_t i) {
        product[i] = kernels::narrow<Element>(kernels::wide<Real>(factor_a[i]) * kernels::wide<Real>(factor_b[i]));
      });
}

class Portable final : public Hadamard {
 public:
  bool supports(HadamardProblem const& problem) const override { return problem.dtype != heddle::DType::int32; }

  void forward(Execution& execution, Tensor const& a, Tensor const& b, Tensor const& output) override {
    kernels::with_floating(a.dtype(), [&]<class Element>(Element) { multiply_as<Element>(execution, a, b, output); });
  }
  void backward(Execution& execution, Tensor const& a, Tensor const& b, Tensor const& grad_output,
                Gradients const& gradients) override {
    kernels::with_floating(a.dtype(), [&]<class Element>(Element) {
      multiply_as<Element>(execution, grad_output, a, gradients.b);
      multiply_as<Element>(execution, grad_output, b, gradients.a);  // the last, as it may overwrite grad_output
    });
  }
};

/// Reports the calls and their costs: for `heddle kernels --benchmark`, and for the memory plan, which calls nothing.
class ObservedHadamard final : public heddle::ObservedKernel<Hadamard> {
 public:
  using ObservedKernel::ObservedKernel;

  void forward(Execution& execution, Tensor const& a, Tensor const& b, Tensor const& output) override {
    pass<&Hadamard::forward>(execution, heddle::traffic("forward", {a, b, output}), a, b, output);
  }
  void backward(Execution& execution, Tensor const& a, Tensor const& b, Tensor const& grad_output,
                Gradients const& gradients) override {
    pass<&Hadamard::backward>(execution, heddle::traffic("backward", {a, b, grad_output, gradients.a, gradients.b}), a,
                              b, grad_output, gradients);
  }
};

}  // namespace

std::string describe(HadamardProblem const& problem) {
  return "products of " + std::string(heddle::name_of(problem.dtype));
}

std::shared_ptr<Hadamard> Hadamard::observed(heddle::ObservedSelection<Hadamard> selection) {
  return std::make_shared<ObservedHadamard>(std::move(selection));
}

std::shared_ptr<Hadamard> make_portable() {
  return std::make_shared<Portable>();
}

heddle::Trial<Hadamard> make_trial(heddle::TrialTensors& tensors, heddle::DType dtype) {
  heddle::Shape const shape{7, 19};
  Tensor const a = tensors.input(dtype, shape);
  Tensor const b = tensors.input(dtype, shape);
  Tensor const upstream = tensors.input(dtype, shape);
  Tensor const output = tensors.output(dtype, shape);
  Hadamard::Gradients const gradients{tensors.output(dtype, shape), tensors.output(dtype, shape)};
  std::vector<double> expected = to_doubles(a);  // the definition, as no `reference` is registered
  std::vector<double> const factors = to_doubles(b);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] *= factors[i];
  }
  return {.problem = {dtype},
          .forward = [=](Hadamard& kernel, Execution& execution) { kernel.forward(execution, a, b, output); },
          .backward = [=](Hadamard& kernel,
                          Execution& execution) { kernel.backward(execution, a, b, upstream, gradients); },
          .outputs = {{"output", output, upstream, expected}},
          .gradients = {{"a", a, gradients.a}, {"b", b, gradients.b}}};
}

}  // namespace hadamard_plugin
