// A plug-in: the operation "hadamard" and a layer that calls it, down(gate(x) ∘ up(x)) (Dauphin et al. 2017, without
// their sigmoid).

#include <heddle/core/layers/linear.hpp>
#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/operations/observation.hpp>
#include <heddle/core/operations/trial.hpp>
#include <heddle/core/plugins/entry.hpp>
#include <heddle/core/tensor/doubles.hpp>

namespace hadamard_plugin {

using heddle::Execution;
using heddle::HiddenStates;
using heddle::LayerContext;
using heddle::LayerSpec;
using heddle::Linear;
using heddle::Saved;
using heddle::Tensor;
namespace kernels = heddle::kernels;

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
  virtual void forward(Execution& execution, Tensor const& a, Tensor const& b, Tensor const& output) = 0;
  struct Gradients {
    Tensor a, b;
  };
  /// gradients.a = grad_output ∘ b and gradients.b = grad_output ∘ a; the former may be the memory of grad_output.
  virtual void backward(Execution& execution, Tensor const& a, Tensor const& b, Tensor const& grad_output,
                        Gradients const& gradients) = 0;
};

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

std::string describe(HadamardProblem const& problem) {
  return "products of " + std::string(heddle::name_of(problem.dtype));
}

std::shared_ptr<Hadamard> Hadamard::observed(heddle::ObservedSelection<Hadamard> selection) {
  return std::make_shared<ObservedHadamard>(std::move(selection));
}

/// The problem by which implementations are checked.
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

class HadamardLayer final : public heddle::Layer {
 public:
  explicit HadamardLayer(LayerSpec const& spec)
      : gate_(spec.named(spec.name + ".gate"), {spec.model.d_model, spec.model.d_ff}, Linear::Split::outputs),
        up_(spec.named(spec.name + ".up"), {spec.model.d_model, spec.model.d_ff}, Linear::Split::outputs),
        down_(spec.named(spec.name + ".down"), {spec.model.d_ff, spec.model.d_model}, Linear::Split::inputs),
        hadamard_(spec.kernels.select<Hadamard>({spec.dtype})) {}

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override {
    Tensor const gate = gate_.forward(context, input.hidden);
    Tensor const up = up_.forward(context, input.hidden);
    Tensor const product = context.arena.allocate(up.dtype(), up.shape());
    hadamard_->forward(context.execution, gate, up, product);
    saved.keep(Activations{input.hidden, gate, up, product});
    return {down_.forward(context, product), input.encoder_output};
  }

  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override {
    auto const& [input, gate, up, product] = saved.get<Activations>();
    Tensor const grad = down_.backward(context, grad_output.hidden, product);
    Tensor const grad_up = context.arena.allocate(up.dtype(), up.shape());
    hadamard_->backward(context.execution, gate, up, grad, {grad, grad_up});
    Tensor const grad_input = up_.backward(context, grad_up, input);
    gate_.backward_add(context, grad, input, grad_input);
    return {grad_input, grad_output.encoder_output};
  }

 private:
  struct Activations {
    Tensor input, gate, up, product;
  };

  Linear gate_, up_, down_;
  std::shared_ptr<Hadamard> hadamard_;
};

void register_all(heddle::Registries& registries) {
  registries.kernels.of<Hadamard>().add("portable", 10, std::make_shared<Portable>());
  registries.kernels.of<Hadamard>().add_trial("7 x 19", make_trial);
  // The cost that the pipeline cut uses: three products with a parameter of [d_ff, d_model].
  auto const cost = [](heddle::ModelConfig const& keys, heddle::LayerOptions const&, heddle::LayerLoad const& load) {
    return 2 * heddle::linear_cost(load, keys.d_model, keys.d_ff) + heddle::linear_cost(load, keys.d_ff, keys.d_model);
  };
  auto const unsupported_reason = [](heddle::ModelConfig const& keys, heddle::LayerOptions const&,
                                     heddle::LayerUse const& use) {
    return heddle::uneven_over_tensor("model.d_ff", keys.d_ff, use);
  };
  registries.layers.add<HadamardLayer>("hadamard_layer", {.cost = cost, .unsupported_reason = unsupported_reason});
}

}  // namespace hadamard_plugin

HEDDLE_PLUGIN(hadamard_plugin::register_all)
