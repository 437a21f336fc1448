#include <heddle/core/operations/residual_norm.hpp>

#include "kernel_fixture.hpp"

namespace heddle {
namespace {

struct Case {
  char const* name;
  std::int64_t rows;
  std::int64_t columns;
  bool branch;
  bool norm;
  float dropout;
  bool grad_normalized;
  bool grad_sum;
  std::string_view kind = NormKind::layer;
  bool bias = true;
};

void PrintTo(Case const& tested, std::ostream* out) {
  *out << tested.name;
}

/// One case's inputs and outputs in one dtype. The weight gradients start at 0.5, because kernels add to them.
struct Problem {
  ResidualNormCall call;
  ResidualNormOutput output;
  Tensor grad_normalized, grad_sum;
  ResidualNormGradients gradients;

  Problem(Case const& test, DType dtype) {
    Shape const matrix{test.rows, test.columns};
    call.residual = random_tensor(dtype, matrix, 1, -3, 5);
    if (test.branch) {
      call.branch = random_tensor(dtype, matrix, 2);
      output.sum = Tensor::allocate(dtype, matrix);
      gradients.branch = Tensor::allocate(dtype, matrix);
    }
    if (test.dropout > 0) {
      call.dropout = dropout_of(test.dropout, test.rows);
    }
    if (test.norm) {
      DType const statistics = statistics_dtype(dtype);
      call.weight = random_tensor(statistics, {test.columns}, 3, 0.5, 1.5);
      call.bias = test.bias ? random_tensor(statistics, {test.columns}, 4) : Tensor{};
      call.kind = test.kind;
      output.normalized = Tensor::allocate(dtype, matrix);
      output.mean = Tensor::allocate(statistics, {test.rows});
      output.reciprocal_deviation = Tensor::allocate(statistics, {test.rows});
      std::vector<double> const start(static_cast<std::size_t>(test.columns), 0.5);
      gradients.weight = tensor_of(start, statistics, {test.columns});
      gradients.bias = test.bias ? tensor_of(start, statistics, {test.columns}) : Tensor{};
    }
    grad_normalized = test.grad_normalized ? random_tensor(dtype, matrix, 5) : Tensor{};
    grad_sum = test.grad_sum ? random_tensor(dtype, matrix, 6) : Tensor{};
    gradients.residual = Tensor::allocate(dtype, matrix);
  }

  /// As backward requires it: without a branch the residual is the sum.
  ResidualNormOutput backward_output() const {
    ResidualNormOutput result = output;
    result.sum = output.sum.empty() ? call.residual : output.sum;
    return result;
  }
};

class ResidualNormTest : public BuiltInKernelsTest, public testing::WithParamInterface<Case> {
 protected:
  void run(ResidualNorm& kernel, Problem const& problem) {
    EXPECT_TRUE(kernel.supports(problem.call.problem()));
    kernel.forward(execution_, problem.call, problem.output);
    kernel.backward(execution_, problem.call, problem.backward_output(), problem.grad_normalized, problem.grad_sum,
                    problem.gradients);
  }

  ResidualNorm& reference() { return *registries_.of<ResidualNorm>().select("reference", {}); }
};

void compare(Tensor const& actual, Tensor const& expected, DType dtype, char const* what) {
  if (!expected.empty()) {
    expect_close(actual, expected, dtype, what);
  }
}

void compare(Problem const& actual, Problem const& expected, DType dtype) {
  compare(actual.output.sum, expected.output.sum, dtype, "sum");
  compare(actual.output.normalized, expected.output.normalized, dtype, "normalized");
  compare(actual.output.mean, expected.output.mean, dtype, "mean");
  compare(actual.output.reciprocal_deviation, expected.output.reciprocal_deviation, dtype, "reciprocal deviation");
  compare(actual.gradients.residual, expected.gradients.residual, dtype, "grad residual");
  compare(actual.gradients.branch, expected.gradients.branch, dtype, "grad branch");
  compare(actual.gradients.weight, expected.gradients.weight, dtype, "grad weight");
  compare(actual.gradients.bias, expected.gradients.bias, dtype, "grad bias");
}

TEST_P(ResidualNormTest, TheResidualsGradientMayOverwriteWhatItIsMadeFrom) {
  for (auto const& entry : registries_.of<ResidualNorm>().entries()) {
    for (DType const dtype : {DType::float32, DType::bfloat16}) {
      SCOPED_TRACE(entry.name + " " + std::string(name_of(dtype)));
      Problem const expected(GetParam(), dtype);
      if (!entry.kernel->supports(expected.call.problem())) {
        continue;
      }
      run(*entry.kernel, expected);
      using Member = Tensor Problem::*;  // nvcc puts parentheses round the name of such a variable, and warns of them
      for (Member const overwritten : {&Problem::grad_sum, &Problem::grad_normalized}) {
        Problem problem(GetParam(), dtype);
        if (!(problem.*overwritten).empty()) {
          problem.gradients.residual = problem.*overwritten;
          run(*entry.kernel, problem);
          compare(problem, expected, dtype);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ResidualNormTest,
    testing::Values(Case{"whole", 70, 67, true, true, 0, true, true},
                    Case{"whole_dropout", 70, 301, true, true, 0.3F, true, true},
                    Case{"norm_feeds_all", 65, 40, true, true, 0.2F, true, false},
                    Case{"norm_unused", 5, 9, true, true, 0.2F, false, true},
                    Case{"norm_alone", 129, 33, false, true, 0, true, true},
                    Case{"norm_alone_without_stream", 3, 128, false, true, 0, true, false},
                    Case{"sum_alone", 6, 130, true, false, 0.5F, false, true},
                    Case{"neither", 4, 5, false, false, 0, false, true},
                    Case{"pairs", 7, 96, true, true, 0.3F, true, true},
                    Case{"pairs_without_stream", 6, 320, true, true, 0.1F, true, false},
                    Case{"pairs_of_a_large_model", 9, 1024, true, true, 0.1F, true, true},
                    Case{"pairs_at_their_longest", 9, 2048, true, true, 0.1F, true, true},
                    Case{"pairs_norm_alone", 9, 128, false, true, 0, true, true},
                    Case{"pairs_norm_unused", 5, 32, true, true, 0.2F, false, true},
                    Case{"pairs_for_several_threads", 300, 128, true, true, 0.1F, true, true},
                    Case{"pairs_for_several_threads_norm_unused", 261, 96, true, true, 0.2F, false, true},
                    Case{"one_column", 3, 1, true, true, 0, true, true},
                    Case{"rms", 70, 67, true, true, 0.3F, true, true, NormKind::rms, false},
                    Case{"rms_alone", 9, 96, false, true, 0, true, false, NormKind::rms, false},
                    Case{"rms_in_groups", 13, 128, true, true, 0.1F, true, true, NormKind::rms, false},
                    Case{"rms_for_several_threads", 131, 192, true, true, 0, true, true, NormKind::rms, false},
                    Case{"rms_in_groups_and_bias", 6, 64, true, true, 0, true, true, NormKind::rms, true},
                    Case{"rms_and_bias", 5, 33, true, true, 0, true, true, NormKind::rms, true},
                    Case{"no_bias", 13, 96, true, true, 0.1F, true, true, NormKind::layer, false},
                    Case{"no_rows", 0, 8, true, true, 0.1F, true, true}),
    [](auto const& tested) { return std::string(tested.param.name); });

class ResidualNormProperties : public ResidualNormTest {};

TEST_F(ResidualNormProperties, TheVarianceOfLargeNumbersKeepsItsDigits) {
  std::vector<double> row;
  for (int c = 0; c < 64; ++c) {
    row.push_back(10000 + (c % 2 == 0 ? 1 : -1));
  }
  for (auto const& entry : registries_.of<ResidualNorm>().entries()) {
    Problem problem({"", 1, 64, false, true, 0, true, false}, DType::float32);
    problem.call.residual = tensor_of(row, DType::float32, {1, 64});
    if (!entry.kernel->supports(problem.call.problem())) {
      continue;  // bfloat16 has no such digits
    }
    entry.kernel->forward(execution_, problem.call, problem.output);
    EXPECT_NEAR(values(problem.output.reciprocal_deviation)[0], 1, 1e-5) << entry.name;
  }
}

TEST_F(ResidualNormProperties, AnRmsNormDividesByTheRootOfTheMeanSquare) {
  for (auto const& entry : registries_.of<ResidualNorm>().entries()) {
    Problem problem({"", 1, 4, false, true, 0, true, false, NormKind::rms, false}, DType::float64);
    problem.call.residual = tensor_of({1, -1, 2, -2}, DType::float64, {1, 4});
    problem.call.weight = tensor_of({1, 2, 3, 4}, DType::float64, {4});
    problem.call.epsilon = 1.5;
    if (!entry.kernel->supports(problem.call.problem())) {
      continue;
    }
    entry.kernel->forward(execution_, problem.call, problem.output);
    expect_values(problem.output.normalized, {0.5, -1, 3, -4}, DType::float64, entry.name);  // sqrt(2.5 + 1.5) = 2
  }
}

// Backward reads the stored sum again, so the statistics must be those of the stored values.
TEST_F(ResidualNormProperties, TheMeanIsThatOfTheSumAsRounded) {
  for (auto const& entry : registries_.of<ResidualNorm>().entries()) {
    Problem problem({"", 1, 32, true, true, 0, true, true}, DType::bfloat16);
    problem.call.residual = tensor_of(std::vector<double>(32, 256), DType::bfloat16, {1, 32});
    problem.call.branch = tensor_of(std::vector<double>(32, 1.25), DType::bfloat16, {1, 32});
    if (!entry.kernel->supports(problem.call.problem())) {
      continue;
    }
    entry.kernel->forward(execution_, problem.call, problem.output);
    EXPECT_EQ(values(problem.output.sum)[0], 258) << entry.name;
    EXPECT_EQ(values(problem.output.mean)[0], 258) << entry.name;
  }
}

TEST_F(ResidualNormProperties, RowsAreBitwiseTheSameInAnotherPack) {
  for (auto const& entry : registries_.of<ResidualNorm>().entries()) {
    for (auto const& [dtype, columns] : {std::pair{DType::float32, 100}, std::pair{DType::bfloat16, 96}}) {
      SCOPED_TRACE(entry.name + " " + std::string(name_of(dtype)));
      Problem const whole({"", 50, columns, true, true, 0.3F, true, true}, dtype);
      if (!entry.kernel->supports(whole.call.problem())) {
        continue;
      }
      run(*entry.kernel, whole);
      Problem part({"", 17, columns, true, true, 0.3F, true, true}, dtype);
      part.call.residual = whole.call.residual.rows(33, 17);
      part.call.branch = whole.call.branch.rows(33, 17);
      part.call.dropout.sample = whole.call.dropout.sample.rows(33, 17);
      part.call.dropout.position = whole.call.dropout.position.rows(33, 17);
      part.grad_normalized = whole.grad_normalized.rows(33, 17);
      part.grad_sum = whole.grad_sum.rows(33, 17);
      run(*entry.kernel, part);
      expect_same_bits(part.output.sum, whole.output.sum.rows(33, 17), "sum");
      expect_same_bits(part.output.normalized, whole.output.normalized.rows(33, 17), "normalized");
      expect_same_bits(part.gradients.residual, whole.gradients.residual.rows(33, 17), "grad residual");
      expect_same_bits(part.gradients.branch, whole.gradients.branch.rows(33, 17), "grad branch");
    }
  }
}

// A split of d_model that cuts through a group of eight random numbers: `simd` may leave it to others.
TEST_F(ResidualNormProperties, DropoutStartsAtAnyColumn) {
  Case const test{"", 6, 64, true, true, 0.4F, true, true};
  for (std::int32_t const first_column : {8, 13}) {
    Problem expected(test, DType::float64);
    expected.call.dropout.first_column = first_column;
    run(reference(), expected);
    for (auto const& entry : registries_.of<ResidualNorm>().entries()) {
      Problem problem(test, DType::bfloat16);
      problem.call.dropout.first_column = first_column;
      if (!entry.kernel->supports(problem.call.problem())) {
        continue;  // one that computes on one thread where there are several
      }
      SCOPED_TRACE(entry.name);
      run(*entry.kernel, problem);
      compare(problem, expected, DType::bfloat16);
    }
  }
}

}  // namespace
}  // namespace heddle
