#include <cmath>
#include <heddle/core/operations/adam.hpp>

#include "kernel_fixture.hpp"

namespace heddle::testing_support {
namespace {

/// A size of more than one work item, and no multiple of a vector.
constexpr std::int64_t size = 4099;
constexpr int steps = 10;

struct State {
  Values value, first_moment, second_moment;
};

Values gradient_at(int step) {
  return random_values(size, static_cast<std::uint32_t>(100 + step));
}

constexpr double gradient_scale = 0.7;
constexpr double learning_rate = 0.01;

AdamStep step_at(std::int64_t step) {
  return {.learning_rate = learning_rate, .gradient_scale = gradient_scale, .step = step};
}

AdamCall settings(bool decoupled, double weight_decay) {
  AdamCall call;
  call.scalars = Tensor::allocate(DType::float64, {adam_scalars::count});
  call.beta1 = 0.9;
  call.beta2 = 0.98;
  call.epsilon = 1e-9;
  call.weight_decay = weight_decay;
  call.decoupled = decoupled;
  return call;
}

/// Algorithm 1 of Kingma & Ba 2015 and algorithm 2 of Loshchilov & Hutter 2019, step by step.
State by_hand(AdamCall const& call) {
  State state{random_values(size, 1), Values(size, 0.0), Values(size, 0.0)};
  for (int step = 1; step <= steps; ++step) {
    Values const gradient = gradient_at(step);
    for (std::size_t i = 0; i < state.value.size(); ++i) {
      double const decay = call.weight_decay * state.value[i];
      double const g = gradient_scale * gradient[i] + (call.decoupled ? 0 : decay);
      state.first_moment[i] = call.beta1 * state.first_moment[i] + (1 - call.beta1) * g;
      state.second_moment[i] = call.beta2 * state.second_moment[i] + (1 - call.beta2) * g * g;
      double const first = state.first_moment[i] / (1 - std::pow(call.beta1, step));
      double const second = state.second_moment[i] / (1 - std::pow(call.beta2, step));
      state.value[i] -= learning_rate * (first / (std::sqrt(second) + call.epsilon) + (call.decoupled ? decay : 0));
    }
  }
  return state;
}

class AdamTest : public BuiltInKernelsTest {};

TEST_F(AdamTest, TenStepsOfEveryImplementationFollowTheFormula) {
  for (bool const decoupled : {false, true}) {
    for (double const weight_decay : {0.0, 0.1}) {
      State const expected = by_hand(settings(decoupled, weight_decay));
      for (auto const& entry : registries_.of<Adam>().entries()) {
        for (DType const dtype : {DType::float32, DType::float64}) {
          ASSERT_TRUE(entry.kernel->supports({dtype}));
          AdamCall call = settings(decoupled, weight_decay);
          call.value = tensor_of(random_values(size, 1), dtype, Shape{size});
          call.first_moment = Tensor::allocate(dtype, Shape{size});
          call.second_moment = Tensor::allocate(dtype, Shape{size});
          for (int step = 1; step <= steps; ++step) {
            call.gradient = tensor_of(gradient_at(step), dtype, Shape{size});
            write_adam_scalars(call, step_at(step));
            entry.kernel->update(execution_, call);
          }
          std::string const what = entry.name + " " + std::string(name_of(dtype));
          expect_values(call.value, expected.value, dtype, what + " value");
          expect_values(call.first_moment, expected.first_moment, dtype, what + " first moment");
          expect_values(call.second_moment, expected.second_moment, dtype, what + " second moment");
          ASSERT_FALSE(HasFatalFailure());
        }
      }
    }
  }
}

TEST_F(AdamTest, AZeroGradientLeavesTheValueAlone) {
  for (auto const& entry : registries_.of<Adam>().entries()) {
    AdamCall call = settings(false, 0);
    call.value = tensor_of({1, -2, 3}, DType::float32, Shape{3});
    call.gradient = Tensor::allocate(DType::float32, Shape{3});
    call.first_moment = Tensor::allocate(DType::float32, Shape{3});
    call.second_moment = Tensor::allocate(DType::float32, Shape{3});
    write_adam_scalars(call, step_at(1));
    entry.kernel->update(execution_, call);
    EXPECT_EQ(values(call.value), (Values{1, -2, 3})) << entry.name;
  }
}

}  // namespace
}  // namespace heddle::testing_support
