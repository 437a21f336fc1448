#include <cmath>
#include <heddle/core/operations/attention.hpp>
#include <numeric>

#include "kernel_fixture.hpp"

namespace heddle::testing_support {
namespace {

struct Case {
  char const* name;
  std::vector<std::int32_t> queries;
  std::vector<std::int32_t> keys;  ///< empty: the queries' own tokens, as columns of a fused [tokens, 3 * width] matrix
  std::int64_t heads;
  std::int64_t head_dim;
  bool causal;
  float dropout;
  bool spread = false;  ///< positions are given and have gaps
};

void PrintTo(Case const& tested, std::ostream* out) {
  *out << tested.name;
}

std::int64_t total(std::vector<std::int32_t> const& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

/// Ascending in each sequence, in runs of five with gaps of three between them.
Tensor spread_positions(std::vector<std::int32_t> const& lengths, std::int32_t first) {
  std::vector<std::int32_t> positions;
  for (std::int32_t const length : lengths) {
    for (std::int32_t i = 0; i < length; ++i) {
      positions.push_back(first + i + 3 * (i / 5));
    }
    ++first;
  }
  return int_tensor(positions);
}

struct Result {
  Tensor output, log_sum_exp, grad_q, grad_k, grad_v;
};

/// One case's inputs and outputs in one dtype.
struct Problem {
  AttentionCall call;
  Tensor output, log_sum_exp, grad_output;
  AttentionGradients gradients;

  Problem(Case const& test, DType dtype) {
    std::int64_t const width = test.heads * test.head_dim;
    std::int64_t const rows = total(test.queries);
    bool const self = test.keys.empty();
    if (self) {
      Tensor const fused = random_tensor(dtype, {rows, 3 * width}, 5);
      Tensor const grad = Tensor::allocate(dtype, {rows, 3 * width});
      call.q = fused.columns(0, width), call.k = fused.columns(width, width), call.v = fused.columns(2 * width, width);
      gradients = {grad.columns(0, width), grad.columns(width, width), grad.columns(2 * width, width)};
    } else {
      std::int64_t const key_rows = total(test.keys);
      call.q = random_tensor(dtype, {rows, width}, 5), gradients.q = Tensor::allocate(dtype, {rows, width});
      Tensor const fused = random_tensor(dtype, {key_rows, 2 * width}, 6);
      Tensor const grad = Tensor::allocate(dtype, {key_rows, 2 * width});
      call.k = fused.columns(0, width), call.v = fused.columns(width, width);
      gradients.k = grad.columns(0, width), gradients.v = grad.columns(width, width);
    }
    call.queries = sequences_of(test.queries);
    call.keys = sequences_of(self ? test.queries : test.keys);
    call.heads = test.heads;
    call.scale = 1.5 / std::sqrt(static_cast<double>(test.head_dim));
    call.mask = test.causal ? AttentionMask::causal() : AttentionMask::bidirectional();
    if (test.spread) {
      call.query_position = spread_positions(test.queries, 4);
      call.key_position = spread_positions(self ? test.queries : test.keys, 2);
    }
    if (test.dropout > 0) {
      call.dropout = dropout_of(test.dropout, rows);
      call.dropout.first_column = 2;
    }
    output = Tensor::allocate(dtype, {rows, width});
    log_sum_exp = Tensor::allocate(statistics_dtype(dtype), {rows, test.heads});
    grad_output = random_tensor(dtype, {rows, width}, 7);
  }
};

class AttentionTest : public BuiltInKernelsTest, public testing::WithParamInterface<Case> {
 protected:
  Result run(Attention& kernel, Problem const& problem) {
    EXPECT_TRUE(kernel.supports(problem.call.problem()));
    kernel.forward(execution_, problem.call, problem.output, problem.log_sum_exp);
    kernel.backward(execution_, problem.call, problem.output, problem.log_sum_exp, problem.grad_output,
                    problem.gradients);
    return {problem.output, problem.log_sum_exp, problem.gradients.q, problem.gradients.k, problem.gradients.v};
  }

  Result run(std::string const& name, Problem const& problem) {
    return run(kernel(name, problem.call.problem()), problem);
  }
  Attention& kernel(std::string const& name, AttentionProblem const& problem) {
    return *registries_.of<Attention>().select(name, problem);
  }
  Attention& reference() { return kernel("reference", {}); }
};

void expect_results_close(Result const& actual, Result const& expected, DType dtype) {
  expect_close(actual.output, expected.output, dtype, "output");
  expect_close(actual.log_sum_exp, expected.log_sum_exp, dtype, "log_sum_exp");
  expect_close(actual.grad_q, expected.grad_q, dtype, "grad q");
  expect_close(actual.grad_k, expected.grad_k, dtype, "grad k");
  expect_close(actual.grad_v, expected.grad_v, dtype, "grad v");
}

TEST_P(AttentionTest, EveryImplementationAgreesWithTheReference) {
  Result const expected = run(reference(), Problem(GetParam(), DType::float64));
  for (auto const& entry : registries_.of<Attention>().entries()) {
    for (DType const dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      Problem const problem(GetParam(), dtype);
      if (entry.kernel->supports(problem.call.problem())) {
        SCOPED_TRACE(entry.name + " " + std::string(name_of(dtype)));
        expect_results_close(run(*entry.kernel, problem), expected, dtype);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionTest,
                         testing::Values(Case{"self", {5, 1, 0, 67, 30}, {}, 3, 7, false, 0},
                                         Case{"self_causal", {130, 1, 64, 0, 33}, {}, 2, 16, true, 0},
                                         Case{"self_dropout", {66, 9, 17}, {}, 2, 32, false, 0.3F},
                                         Case{"self_causal_dropout", {1, 130, 5}, {}, 3, 5, true, 0.45F},
                                         Case{"cross", {3, 67, 0, 5, 1}, {70, 2, 4, 0, 1}, 2, 9, false, 0},
                                         Case{"cross_dropout", {3, 67, 20}, {130, 2, 21}, 2, 33, false, 0.1F},
                                         Case{"cross_causal_more_keys", {1, 65, 4}, {40, 130, 4}, 1, 8, true, 0.2F},
                                         Case{"cross_causal_fewer_keys", {9, 70, 3}, {4, 2, 0}, 2, 8, true, 0},
                                         Case{"wide_head", {11, 70}, {}, 1, 130, true, 0},
                                         Case{"spread", {1, 70, 0, 9}, {90, 131, 3, 0}, 2, 8, false, 0, true},
                                         Case{"spread_causal", {1, 70, 0, 9}, {90, 131, 3, 4}, 2, 8, true, 0, true},
                                         Case{"spread_causal_dropout", {131, 0, 9}, {}, 2, 8, true, 0.4F, true}),
                         [](auto const& tested) { return std::string(tested.param.name); });

class AttentionReference : public AttentionTest {};

TEST_P(AttentionReference, BackwardIsTheDerivativeOfForward) {
  Problem const problem(GetParam(), DType::float64);
  Result const result = run(reference(), problem);
  Tensor const output = Tensor::allocate(DType::float64, problem.output.shape());
  auto const loss = [&] {
    reference().forward(execution_, problem.call, output, problem.log_sum_exp);
    return weighted_sum(problem.grad_output, output);
  };
  expect_gradient(loss, problem.call.q, result.grad_q, "q");
  expect_gradient(loss, problem.call.k, result.grad_k, "k");
  expect_gradient(loss, problem.call.v, result.grad_v, "v");
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionReference,
                         testing::Values(Case{"self", {4, 1, 0}, {}, 2, 3, false, 0},
                                         Case{"self_causal_dropout", {5, 2}, {}, 1, 3, true, 0.4F},
                                         Case{"cross", {3, 2, 1}, {1, 9, 0}, 2, 2, false, 0.2F},
                                         Case{"spread", {3, 7, 1}, {8, 9, 0}, 2, 2, true, 0.2F, true}),
                         [](auto const& tested) { return std::string(tested.param.name); });

class AttentionProperties : public AttentionTest {};

TEST_F(AttentionProperties, AQueryWithoutKeysGivesZeroAndMinusInfinity) {
  for (DType const dtype : {DType::float32, DType::bfloat16}) {
    for (std::string const& name : names_for<Attention>({.dtype = dtype})) {
      SCOPED_TRACE(name + " " + std::string(name_of(dtype)));
      Result const result = run(name, Problem({"", {3}, {0}, 2, 4, false, 0}, dtype));
      for (double const value : values(result.output)) {
        EXPECT_EQ(value, 0);
      }
      for (double const value : values(result.log_sum_exp)) {
        EXPECT_EQ(value, -INFINITY);
      }
      for (double const value : values(result.grad_q)) {
        EXPECT_EQ(value, 0);
      }
    }
  }
}

// The sums over 300 tokens, of many blocks, are in float32: only the results are rounded, once. `amx`, which has no
// float32, rounds weights, too.
TEST_F(AttentionProperties, BFloat16ResultsAreFloat32ResultsRoundedOnce) {
  Case const test{"", {300}, {}, 1, 16, false, 0};
  for (std::string const& name : names_for<Attention>({})) {
    SCOPED_TRACE(name);
    Result const exact = run(name, Problem(test, DType::float32));
    Result const rounded = run(name, Problem(test, DType::bfloat16));
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
    compare(rounded.grad_q, exact.grad_q, 2e-4, "grad q");
    compare(rounded.grad_k, exact.grad_k, 2e-4, "grad k");
    compare(rounded.grad_v, exact.grad_v, 1e-6, "grad v");
  }
}

// A sequence's rows depend on nothing else: context parallelism, re-batching and other numbers of ranks rely on it.
TEST_F(AttentionProperties, ASequenceIsBitwiseTheSameInAnotherPack) {
  std::vector<std::int32_t> const lengths = {12, 70, 20};
  // With 32 columns `amx` reads rows in their place, and others below them, except at the end of the tensor.
  for (auto const& [dtype, head_dim] : {std::pair{DType::float32, 12}, {DType::bfloat16, 12}, {DType::bfloat16, 32}}) {
    for (std::string const& name : names_for<Attention>({.dtype = dtype})) {
      SCOPED_TRACE(name + " " + std::string(name_of(dtype)));
      Problem const whole({"", lengths, {}, 2, head_dim, true, 0.3F}, dtype);
      Result const all = run(name, whole);
      std::int64_t const begin = lengths[0];
      std::int64_t const rows = lengths[1];
      Problem part({"", {lengths[1]}, {}, 2, head_dim, true, 0.3F}, dtype);
      part.call.q = whole.call.q.rows(begin, rows);
      part.call.k = whole.call.k.rows(begin, rows);
      part.call.v = whole.call.v.rows(begin, rows);
      part.call.dropout.sample = whole.call.dropout.sample.rows(begin, rows);
      part.call.dropout.position = whole.call.dropout.position.rows(begin, rows);
      part.grad_output = whole.grad_output.rows(begin, rows);
      Result const alone = run(name, part);
      expect_same_bits(alone.output, all.output.rows(begin, rows), "output");
      expect_same_bits(alone.log_sum_exp, all.log_sum_exp.rows(begin, rows), "log_sum_exp");
      expect_same_bits(alone.grad_q, all.grad_q.rows(begin, rows), "grad q");
      expect_same_bits(alone.grad_k, all.grad_k.rows(begin, rows), "grad k");
      expect_same_bits(alone.grad_v, all.grad_v.rows(begin, rows), "grad v");
    }
  }
}

TEST_F(AttentionProperties, AHeadIsBitwiseTheSameOnARankThatHoldsOnlyThatHead) {
  for (auto const& [dtype, head_dim] : {std::pair{DType::float32, 6}, {DType::bfloat16, 6}, {DType::bfloat16, 32}}) {
    Problem const whole({"", {20, 7}, {}, 3, head_dim, false, 0.3F}, dtype);
    for (std::string const& name : names_for<Attention>({.dtype = dtype})) {
      SCOPED_TRACE(name + " " + std::string(name_of(dtype)));
      Result const all = run(name, whole);
      Problem part({"", {20, 7}, {}, 1, head_dim, false, 0.3F}, dtype);
      part.call.q = whole.call.q.columns(2 * head_dim, head_dim);
      part.call.k = whole.call.k.columns(2 * head_dim, head_dim);
      part.call.v = whole.call.v.columns(2 * head_dim, head_dim);
      part.call.scale = whole.call.scale;
      part.call.dropout.first_column = whole.call.dropout.first_column + 2;
      part.grad_output = whole.grad_output.columns(2 * head_dim, head_dim);
      Result const alone = run(name, part);
      expect_same_bits(alone.output, all.output.columns(2 * head_dim, head_dim), "output");
      expect_same_bits(alone.grad_v, all.grad_v.columns(2 * head_dim, head_dim), "grad v");
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
    Problem const problem({"", {1}, {length}, 1, 4, false, 0}, dtype);
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
}  // namespace heddle::testing_support
