#include <cmath>
#include <heddle/core/operations/activation.hpp>
#include <numbers>

#include "kernel_fixture.hpp"

namespace heddle::testing_support {
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
  for (auto const& entry : registries_.of<Activation>().entries()) {
    ActivationCall const call = make_call(DType::float32, "gelu", 0.3F, 0);
    if (!entry.kernel->supports(call.problem())) {
      continue;
    }
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
  for (auto const& entry : registries_.of<Activation>().entries()) {
    for (DType const dtype : {DType::float64, DType::float32, DType::bfloat16}) {
      for (float const rate : {0.0F, 0.4F}) {
        ActivationCall call = make_call(dtype, "relu", rate, 3);
        if (!entry.kernel->supports(call.problem())) {
          continue;
        }
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
  for (auto const& entry : registries_.of<Activation>().entries()) {
    ActivationCall const call = gated_call(make_call(DType::float32, "silu", 0.3F, 5), DType::float32, 21);
    if (!entry.kernel->supports(call.problem())) {
      continue;
    }
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

TEST_F(ActivationTest, SiluIsTheInputTimesItsSigmoid) {
  for (auto const& entry : registries_.of<Activation>().entries()) {
    ActivationCall const call = make_call(DType::float32, "silu", 0, 0);
    if (!entry.kernel->supports(call.problem())) {
      continue;
    }
    Tensor const output = Tensor::allocate(DType::float32, call.input.shape());
    entry.kernel->forward(execution_, call, output);
    Values const x = values(call.input);
    Values const y = values(output);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(y[i], x[i] / (1 + std::exp(-x[i])), 2e-6 * (1 + std::abs(x[i]))) << entry.name << " at " << x[i];
    }
  }
}

TEST_F(ActivationTest, GeluIsTheExactOne) {
  for (auto const& entry : registries_.of<Activation>().entries()) {
    ActivationCall const call = make_call(DType::float32, "gelu", 0, 0);
    if (!entry.kernel->supports(call.problem())) {
      continue;
    }
    Tensor const output = Tensor::allocate(DType::float32, call.input.shape());
    entry.kernel->forward(execution_, call, output);
    Values const x = values(call.input);
    Values const y = values(output);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(y[i], 0.5 * x[i] * (1 + std::erf(x[i] / std::sqrt(2.0))), 2e-6) << entry.name << " at " << x[i];
    }
  }
}

TEST_F(ActivationTest, GeluTanhIsItsFormula) {
  for (auto const& entry : registries_.of<Activation>().entries()) {
    ActivationCall const call = make_call(DType::float32, "gelu_tanh", 0, 0);
    if (!entry.kernel->supports(call.problem())) {
      continue;
    }
    Tensor const output = Tensor::allocate(DType::float32, call.input.shape());
    entry.kernel->forward(execution_, call, output);
    Values const x = values(call.input);
    Values const y = values(output);
    for (std::size_t i = 0; i < x.size(); ++i) {
      double const inner = std::sqrt(2 / std::numbers::pi) * (x[i] + 0.044715 * x[i] * x[i] * x[i]);
      ASSERT_NEAR(y[i], 0.5 * x[i] * (1 + std::tanh(inner)), 2e-6) << entry.name << " at " << x[i];
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
}  // namespace heddle::testing_support
