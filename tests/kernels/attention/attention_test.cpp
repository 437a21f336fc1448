#include "attention_case.hpp"

namespace heddle {
namespace {

using AttentionProperties = AttentionCaseTest;

TEST_F(AttentionProperties, AQueryWithoutKeysGivesZeroAndMinusInfinity) {
  for (DType const dtype : {DType::float32, DType::bfloat16}) {
    for (std::string const& name : names_for<Attention>({.dtype = dtype})) {
      SCOPED_TRACE(name + " " + std::string(name_of(dtype)));
      AttentionTensors const result = run(name, AttentionTensors({"", {3}, {0}, 2, 2, 4}, dtype));
      for (double const value : values(result.output)) {
        EXPECT_EQ(value, 0);
      }
      for (double const value : values(result.log_sum_exp)) {
        EXPECT_EQ(value, -INFINITY);
      }
      for (double const value : values(result.gradients.q)) {
        EXPECT_EQ(value, 0);
      }
    }
  }
}

// The sums over 300 tokens, of many blocks, are in float32: only the results are rounded, once. `amx`, which has no
// float32, rounds weights, too.
TEST_F(AttentionProperties, BFloat16ResultsAreFloat32ResultsRoundedOnce) {
  AttentionCase const test{"", {300}, {}, 1, 1, 16};
  for (std::string const& name : names_for<Attention>({})) {
    SCOPED_TRACE(name);
    AttentionTensors const exact = run(name, AttentionTensors(test, DType::float32));
    AttentionTensors const rounded = run(name, AttentionTensors(test, DType::bfloat16));
    auto const compare = [](Tensor const& actual, Tensor const& expected, double slack, char const* what) {
      Values const is = values(actual);
      Values const should_be = values(expected);
      for (std::size_t i = 0; i < is.size(); ++i) {
        ASSERT_LE(std::abs(is[i] - should_be[i]), std::abs(should_be[i]) / 256 + slack) << what << " " << i;
      }
    };
    compare(rounded.output, exact.output, 1e-6, "output");
    compare(rounded.log_sum_exp, exact.log_sum_exp, 1e-5, "log_sum_exp");
    // Backward may start from the rounded output.
    compare(rounded.gradients.q, exact.gradients.q, 2e-4, "grad q");
    compare(rounded.gradients.k, exact.gradients.k, 2e-4, "grad k");
    compare(rounded.gradients.v, exact.gradients.v, 1e-6, "grad v");
  }
}

// A sequence's rows depend on nothing else: context parallelism, re-batching and other numbers of ranks rely on it.
TEST_F(AttentionProperties, ASequenceIsBitwiseTheSameInAnotherPack) {
  std::vector<std::int32_t> const lengths = {12, 70, 20};
  // With 32 columns `amx` reads rows in their place, and others below them, except at the end of the tensor.
  for (auto const& [dtype, head_dim] : {std::pair{DType::float32, 12}, {DType::bfloat16, 12}, {DType::bfloat16, 32}}) {
    for (std::string const& name : names_for<Attention>({.dtype = dtype})) {
      SCOPED_TRACE(name + " " + std::string(name_of(dtype)));
      AttentionTensors const whole({"", lengths, {}, 2, 2, head_dim, AttentionMask::causal(), -1, 0.3F}, dtype);
      AttentionTensors const all = run(name, whole);
      std::int64_t const begin = lengths[0];
      std::int64_t const rows = lengths[1];
      AttentionTensors part({"", {lengths[1]}, {}, 2, 2, head_dim, AttentionMask::causal(), -1, 0.3F}, dtype);
      part.call.q = whole.call.q.rows(begin, rows);
      part.call.k = whole.call.k.rows(begin, rows);
      part.call.v = whole.call.v.rows(begin, rows);
      part.call.dropout.sample = whole.call.dropout.sample.rows(begin, rows);
      part.call.dropout.position = whole.call.dropout.position.rows(begin, rows);
      part.grad_output = whole.grad_output.rows(begin, rows);
      AttentionTensors const alone = run(name, part);
      expect_same_bits(alone.output, all.output.rows(begin, rows), "output");
      expect_same_bits(alone.log_sum_exp, all.log_sum_exp.rows(begin, rows), "log_sum_exp");
      expect_same_bits(alone.gradients.q, all.gradients.q.rows(begin, rows), "grad q");
      expect_same_bits(alone.gradients.k, all.gradients.k.rows(begin, rows), "grad k");
      expect_same_bits(alone.gradients.v, all.gradients.v.rows(begin, rows), "grad v");
    }
  }
}

TEST_F(AttentionProperties, AHeadIsBitwiseTheSameOnARankThatHoldsOnlyThatHead) {
  for (auto const& [dtype, head_dim] : {std::pair{DType::float32, 6}, {DType::bfloat16, 6}, {DType::bfloat16, 32}}) {
    AttentionTensors const whole({"", {20, 7}, {}, 3, 3, head_dim, {}, -1, 0.3F}, dtype);
    for (std::string const& name : names_for<Attention>({.dtype = dtype})) {
      SCOPED_TRACE(name + " " + std::string(name_of(dtype)));
      AttentionTensors const all = run(name, whole);
      AttentionTensors part({"", {20, 7}, {}, 1, 1, head_dim, {}, -1, 0.3F}, dtype);
      part.call.q = whole.call.q.columns(2 * head_dim, head_dim);
      part.call.k = whole.call.k.columns(2 * head_dim, head_dim);
      part.call.v = whole.call.v.columns(2 * head_dim, head_dim);
      part.call.scale = whole.call.scale;
      part.call.dropout.first_column = whole.call.dropout.first_column + 2;
      part.grad_output = whole.grad_output.columns(2 * head_dim, head_dim);
      AttentionTensors const alone = run(name, part);
      expect_same_bits(alone.output, all.output.columns(2 * head_dim, head_dim), "output");
      expect_same_bits(alone.gradients.v, all.gradients.v.columns(2 * head_dim, head_dim), "grad v");
    }
  }
}

// 1500 tokens need 24 blocks; equal keys give the mean of the values, whatever the blocks.
TEST_F(AttentionProperties, EqualKeysGiveTheMeanOfTheValues) {
  constexpr std::int32_t length = 1500;
  std::vector<double> keys_and_values;
  for (std::int32_t row = 0; row < length; ++row) {
    double const value = row;
    keys_and_values.insert(keys_and_values.end(), {0.5, 0.5, 0.5, 0.5, value, 1, -value, 0});
  }
  Tensor const mean = tensor_of({(length - 1) / 2.0, 1, -(length - 1) / 2.0, 0}, DType::float64, {1, 4});
  for (DType const dtype : {DType::float32, DType::bfloat16}) {
    AttentionTensors const problem({"", {1}, {length}, 1, 1, 4}, dtype);
    Tensor const fused = tensor_of(keys_and_values, dtype, {length, 8});
    AttentionCall call = problem.call;
    call.k = fused.columns(0, 4);
    call.v = fused.columns(4, 4);
    for (std::string const& name : names_for<Attention>({.dtype = dtype})) {
      kernel(name, call.problem()).forward(execution_, call, problem.output, problem.log_sum_exp);
      expect_close(problem.output, mean, dtype, name.c_str());
    }
  }
}

}  // namespace
}  // namespace heddle
