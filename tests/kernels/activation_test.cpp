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

  static ActivationCall make_call(DType dtype, std::string const& function, float rate, std::int64_t padding,
                                  std::int64_t width = columns) {
    Values inputs = random_values(tokens * width, 11, -6, 6);
    inputs[1] = -30;
    inputs[2] = 30;
    ActivationCall call;
    call.function = function;
    call.input = strided_tensor(inputs, dtype, Shape{tokens, width}, padding);
    if (rate > 0) {
      call.dropout = dropout_of(rate, tokens);
      call.dropout.first_column = 13;
    }
    return call;
  }

  Activation& reference() { return *registries_.of<Activation>().select("reference", {DType::float64, "relu"}); }

  void compare(Activation& activation, ActivationCall const& call, std::string const& what) {
    DType const dtype = call.input.dtype();
    ActivationCall oracle = call;
    oracle.input = converted(call.input, DType::float64);
    Tensor const output = random_matrix(dtype, columns, 1, 3);
    Tensor const expected = Tensor::allocate(DType::float64, call.input.shape());
    activation.forward(execution_, call, output);
    reference().forward(execution_, oracle, expected);
    expect_close(output, expected, dtype, what.c_str());
    expect_padding_untouched(output, what);

    Tensor const grad_output = random_matrix(dtype, columns, 2, 2);
    Tensor const grad_input = random_matrix(dtype, columns, 3, 4);
    activation.backward(execution_, call, grad_output, {grad_input});
    reference().backward(execution_, oracle, converted(grad_output, DType::float64), {expected});
    expect_close(grad_input, expected, dtype, (what + " backward").c_str());
    expect_padding_untouched(grad_input, what);
  }
};

TEST_F(ActivationTest, EveryImplementationAgreesWithTheReference) {
  for (auto const& entry : registries_.of<Activation>().entries()) {
    for (char const* const function : {"relu", "gelu", "gelu_tanh", "silu"}) {
      for (float const rate : {0.0F, 0.3F}) {
        for (DType const dtype : {DType::float32, DType::float64, DType::bfloat16}) {
          ActivationCall const call = make_call(dtype, function, rate, 5);
          ASSERT_TRUE(entry.kernel->supports(call.problem()));
          compare(*entry.kernel, call, entry.name + " " + function + " " + std::string(name_of(dtype)));
        }
      }
    }
  }
}

TEST_F(ActivationTest, BackwardOfTheReferenceByCentralDifferences) {
  constexpr std::int64_t width = 9;
  for (char const* const function : {"relu", "gelu", "gelu_tanh", "silu"}) {
    for (float const rate : {0.0F, 0.4F}) {
      ActivationCall const call = make_call(DType::float64, function, rate, 2, width);
      Tensor const upstream = random_matrix(DType::float64, width, 12);
      Tensor const output = Tensor::allocate(DType::float64, call.input.shape());
      auto const loss = [&] {
        reference().forward(execution_, call, output);
        return weighted_sum(upstream, output);
      };
      Tensor const grad_input = Tensor::allocate(DType::float64, call.input.shape());
      reference().backward(execution_, call, upstream, {grad_input});
      expect_gradient(loss, call.input, grad_input, function);
    }
  }
}

TEST_F(ActivationTest, WorksInPlace) {
  for (auto const& entry : registries_.of<Activation>().entries()) {
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
  for (auto const& entry : registries_.of<Activation>().entries()) {
    for (DType const dtype : {DType::float64, DType::float32, DType::bfloat16}) {
      for (float const rate : {0.0F, 0.4F}) {
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

TEST_F(ActivationTest, GatedOnesAgreeWithTheReference) {
  for (auto const& entry : registries_.of<Activation>().entries()) {
    for (char const* const function : {"relu", "gelu", "gelu_tanh", "silu"}) {
      for (float const rate : {0.0F, 0.3F}) {
        for (DType const dtype : {DType::float32, DType::float64, DType::bfloat16}) {
          std::string const what = entry.name + " " + function + " " + std::string(name_of(dtype));
          ActivationCall const call = gated_call(make_call(dtype, function, rate, 5), dtype, 21);
          ActivationCall const oracle = gated_call(make_call(DType::float64, function, rate, 5), DType::float64, 21);
          ASSERT_TRUE(entry.kernel->supports(call.problem())) << what;
          Tensor const output = random_matrix(dtype, columns, 1, 3);
          Tensor const expected = Tensor::allocate(DType::float64, call.input.shape());
          entry.kernel->forward(execution_, call, output);
          reference().forward(execution_, oracle, expected);
          expect_close(output, expected, dtype, what.c_str());

          Tensor const grad = random_matrix(dtype, columns, 2, 2);
          Tensor const grad_gate = random_matrix(dtype, columns, 3, 4);
          Tensor const expected_gate = Tensor::allocate(DType::float64, call.input.shape());
          reference().backward(execution_, oracle, converted(grad, DType::float64), {expected, expected_gate});
          entry.kernel->backward(execution_, call, grad, {grad, grad_gate});  // in place
          expect_close(grad, expected, dtype, (what + " backward").c_str());
          expect_close(grad_gate, expected_gate, dtype, (what + " gate").c_str());
          expect_padding_untouched(grad_gate, what);
        }
      }
    }
  }
}

TEST_F(ActivationTest, GatedBackwardOfTheReferenceByCentralDifferences) {
  constexpr std::int64_t width = 9;
  for (char const* const function : {"relu", "gelu", "gelu_tanh", "silu"}) {
    ActivationCall const call = gated_call(make_call(DType::float64, function, 0.4F, 2, width), DType::float64, 22);
    Tensor const upstream = random_matrix(DType::float64, width, 12);
    Tensor const output = Tensor::allocate(DType::float64, call.input.shape());
    auto const loss = [&] {
      reference().forward(execution_, call, output);
      return weighted_sum(upstream, output);
    };
    ActivationGradients const gradients{Tensor::allocate(DType::float64, call.input.shape()),
                                        Tensor::allocate(DType::float64, call.input.shape())};
    reference().backward(execution_, call, upstream, gradients);
    expect_gradient(loss, call.input, gradients.input, function);
    expect_gradient(loss, call.gate, gradients.gate, function);
  }
}

TEST_F(ActivationTest, SiluIsTheInputTimesItsSigmoid) {
  for (auto const& entry : registries_.of<Activation>().entries()) {
    ActivationCall const call = make_call(DType::float32, "silu", 0, 0);
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
