#include <cmath>
#include <heddle/core/operations/activation.hpp>
#include <numbers>

#include "kernel_fixture.hpp"

namespace heddle {
namespace {

/// Shapes of 11 rows, and of more columns than one batch of random counters decides.
constexpr std::int64_t tokens = 11;
constexpr std::int64_t columns = 301;

class ActivationTest : public BuiltInKernelsTest {
 protected:
  static Tensor random_matrix(DType dtype, std::int64_t width, std::uint64_t seed, std::int64_t padding = 0) {
    return strided_tensor(random_values(tokens * width, seed), dtype, Shape{tokens, width}, padding);
  }

  static ActivationCall make_call(DType dtype, std::string const& function, float rate, std::int64_t padding) {
    Values inputs = random_values(tokens * columns, 11, -6, 6);
    inputs[1] = -30;
    inputs[2] = 30;
    ActivationCall call;
    call.function = function;
    call.input = strided_tensor(inputs, dtype, Shape{tokens, columns}, padding);
    if (rate > 0) {
      call.dropout = dropout_of(rate, tokens);
      call.dropout.first_column = 16;  // a whole group of random numbers, which `simd` needs
    }
    return call;
  }
};

TEST_F(ActivationTest, WorksInPlace) {
  for (auto const& entry : supporting<Activation>(make_call(DType::float32, "gelu", 0.3F, 0).problem())) {
    ActivationCall const call = make_call(DType::float32, "gelu", 0.3F, 0);
    Tensor const apart = Tensor::allocate(DType::float32, call.input.shape());
    Tensor const grad = random_matrix(DType::float32, columns, 3);
    entry.kernel->backward(execution_, call, grad, {apart});
    entry.kernel->backward(execution_, call, grad, {grad});
    expect_same_bits(grad, apart, entry.name.c_str());
    entry.kernel->forward(execution_, call, apart);
    entry.kernel->forward(execution_, call, call.input);
    expect_same_bits(call.input, apart, entry.name.c_str());
  }
}

TEST_F(ActivationTest, ReluKnowsFromItsOutputWhatWasDropped) {
  for (DType const dtype : {DType::float64, DType::float32, DType::bfloat16}) {
    for (float const rate : {0.0F, 0.4F}) {
      for (auto const& entry : supporting<Activation>(make_call(dtype, "relu", rate, 3).problem())) {
        ActivationCall call = make_call(dtype, "relu", rate, 3);
        Tensor const grad = random_matrix(dtype, columns, 4);
        Tensor const drawn = Tensor::allocate(dtype, call.input.shape());
        Tensor const read = Tensor::allocate(dtype, call.input.shape());
        entry.kernel->backward(execution_, call, grad, {drawn});
        call.output = Tensor::allocate(dtype, call.input.shape());
        entry.kernel->forward(execution_, call, call.output);
        entry.kernel->backward(execution_, call, grad, {read});
        expect_close(read, drawn, dtype, entry.name.c_str());
      }
    }
  }
}

/// The call with a gate.
ActivationCall gated_call(ActivationCall call, DType dtype, std::uint64_t seed) {
  call.gate = strided_tensor(random_values(call.input.size(), seed), dtype, call.input.shape(), 2);
  return call;
}

TEST_F(ActivationTest, GatedOnesWorkInPlace) {
  ActivationCall const call = gated_call(make_call(DType::float32, "silu", 0.3F, 5), DType::float32, 21);
  for (auto const& entry : supporting<Activation>(call.problem())) {
    ActivationGradients const apart{Tensor::allocate(DType::float32, call.input.shape()),
                                    Tensor::allocate(DType::float32, call.input.shape())};
    Tensor const grad = random_matrix(DType::float32, columns, 2, 2);
    Tensor const grad_gate = random_matrix(DType::float32, columns, 3, 4);
    entry.kernel->backward(execution_, call, grad, apart);
    entry.kernel->backward(execution_, call, grad, {grad, grad_gate});
    expect_same_bits(grad, apart.input, entry.name.c_str());
    expect_same_bits(grad_gate, apart.gate, entry.name.c_str());
  }
}

TEST_F(ActivationTest, FunctionsAreTheirFormulas) {
  std::map<std::string, double (*)(double)> const formulas{
      {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
      {"gelu", [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
      {"gelu_tanh", [](double x) {
         return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
       }}};
  for (auto const& [function, formula] : formulas) {
    ActivationCall const call = make_call(DType::float32, function, 0, 0);
    for (auto const& entry : supporting<Activation>(call.problem())) {
      Tensor const output = Tensor::allocate(DType::float32, call.input.shape());
      entry.kernel->forward(execution_, call, output);
      Values const x = values(call.input);
      Values const y = values(output);
      for (std::size_t i = 0; i < x.size(); ++i) {
        double const tolerance = function == "silu" ? 2e-6 * (1 + std::abs(x[i])) : 2e-6;
        ASSERT_NEAR(y[i], formula(x[i]), tolerance) << entry.name << ": " << function << " at " << x[i];
      }
    }
  }
}

TEST_F(ActivationTest, OtherFunctionsAndTypesAreNotSupported) {
  for (auto const& entry : registries_.of<Activation>().entries()) {
    EXPECT_FALSE(entry.kernel->supports({DType::float32, "swish"})) << entry.name;
    EXPECT_FALSE(entry.kernel->supports({DType::int32, "relu"})) << entry.name;
  }
}

}  // namespace
}  // namespace heddle
