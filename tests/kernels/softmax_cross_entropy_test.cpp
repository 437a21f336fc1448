#include <cmath>
#include <heddle/core/operations/softmax_cross_entropy.hpp>

#include "kernel_fixture.hpp"

namespace heddle {
namespace {

struct Case {
  char const* name;
  std::int64_t rows;
  std::int64_t vocabulary;
  double smoothing;
  double range;  ///< of the logits
  double z_loss = 0;
};

void PrintTo(Case const& tested, std::ostream* out) {
  *out << tested.name;
}

struct Problem {
  SoftmaxCrossEntropyCall call;
  Tensor statistics, losses;

  Problem(Case const& test, DType dtype) {
    call.logits = random_tensor(dtype, {test.rows, test.vocabulary}, 1, -test.range, test.range);
    std::vector<std::int32_t> targets;
    for (std::int64_t row = 0; row < test.rows; ++row) {
      targets.push_back(static_cast<std::int32_t>((row * 37 + 5) % test.vocabulary));
    }
    call.targets = int_tensor(targets);
    call.global_vocabulary = test.vocabulary;
    call.label_smoothing = test.smoothing;
    call.z_loss = test.z_loss;
    statistics = Tensor::allocate(statistics_dtype(dtype), {test.rows, SoftmaxCrossEntropy::statistics_columns});
    losses = Tensor::allocate(statistics_dtype(dtype), {test.rows, 2});
  }
};

class SoftmaxCrossEntropyTest : public BuiltInKernelsTest, public testing::WithParamInterface<Case> {
 protected:
  /// The logits end up as the gradient.
  void run(SoftmaxCrossEntropy& kernel, Problem const& problem, double scale) {
    EXPECT_TRUE(kernel.supports(problem.call.problem()));
    kernel.statistics(execution_, problem.call, problem.statistics);
    kernel.losses(execution_, problem.call, problem.statistics, problem.losses);
    kernel.gradient(execution_, problem.call, problem.statistics, scale);
  }

  void expect_one_visit_gives_the_same_as_two(Case const& test) {
    for (auto const& entry : registries_.of<SoftmaxCrossEntropy>().entries()) {
      for (DType const dtype : {DType::float32, DType::float64, DType::bfloat16}) {
        SCOPED_TRACE(entry.name + " " + std::string(name_of(dtype)));
        Problem const two(test, dtype);
        if (!entry.kernel->supports(two.call.problem())) {
          continue;
        }
        run(*entry.kernel, two, 0.25);
        Problem const one(test, dtype);
        entry.kernel->losses_and_gradient(execution_, one.call, 0.25, one.losses);
        EXPECT_EQ(scratch_.mark(), 0U);
        // The same statistics, and gradients that may have been rounded once more: relative to their row's.
        expect_close(one.losses, two.losses, DType::float32, "losses");
        auto const expected = values(two.call.logits);
        auto const actual = values(one.call.logits);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          double const allowed = dtype == DType::bfloat16 ? 8e-3 * (std::abs(expected[i]) + 0.1 / 13) : 1e-6;
          ASSERT_NEAR(actual[i], expected[i], allowed) << i;
        }
      }
    }
  }

  SoftmaxCrossEntropy& reference() { return *registries_.of<SoftmaxCrossEntropy>().select("reference", {}); }
};

TEST_P(SoftmaxCrossEntropyTest, OneVisitGivesTheSameAsTwo) {
  expect_one_visit_gives_the_same_as_two(GetParam());
}

TEST_P(SoftmaxCrossEntropyTest, AShardedVocabularyGivesTheSameAfterReducingTheStatistics) {
  Problem const expected(GetParam(), DType::float64);
  run(reference(), expected, 2);
  std::int64_t const cut = GetParam().vocabulary / 3;
  for (auto const& entry : registries_.of<SoftmaxCrossEntropy>().entries()) {
    for (DType const dtype : {DType::float64, DType::float32, DType::bfloat16}) {
      SCOPED_TRACE(entry.name + " " + std::string(name_of(dtype)));
      Problem left(GetParam(), dtype);
      Problem right(GetParam(), dtype);
      if (!entry.kernel->supports(left.call.problem())) {
        continue;
      }
      right.call.logits = left.call.logits.columns(cut, GetParam().vocabulary - cut);
      right.call.first_token = cut;
      left.call.logits = left.call.logits.columns(0, cut);
      entry.kernel->statistics(execution_, left.call, left.statistics);
      entry.kernel->statistics(execution_, right.call, right.statistics);
      auto parts = values(left.statistics);
      auto const of_right = values(right.statistics);
      parts.insert(parts.end(), of_right.begin(), of_right.end());
      Shape const shape = left.statistics.shape();
      DType const statistic = left.statistics.dtype();
      Tensor const statistics = Tensor::allocate(statistic, shape);
      entry.kernel->combine(execution_, tensor_of(parts, statistic, {2, shape[0], shape[1]}), statistics);
      expect_close(statistics, expected.statistics, dtype, "statistics");
      entry.kernel->losses(execution_, left.call, statistics, left.losses);
      entry.kernel->gradient(execution_, left.call, statistics, 2);
      entry.kernel->gradient(execution_, right.call, statistics, 2);
      expect_close(left.losses, expected.losses, dtype, "losses");
      expect_close(left.call.logits, expected.call.logits.columns(0, cut), dtype, "left gradient");
      expect_close(right.call.logits, expected.call.logits.columns(cut, GetParam().vocabulary - cut), dtype,
                   "right gradient");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, SoftmaxCrossEntropyTest,
                         testing::Values(Case{"smoothed", 13, 301, 0.1, 4}, Case{"plain", 5, 64, 0, 4},
                                         Case{"wide_range", 7, 131, 0.1, 80}, Case{"tiny", 3, 3, 0.3, 1},
                                         Case{"z_loss", 9, 301, 0.1, 4, 0.05}, Case{"large", 3, 10007, 0.1, 6},
                                         Case{"no_rows", 0, 10, 0.1, 1}),
                         [](auto const& tested) { return std::string(tested.param.name); });

class SoftmaxCrossEntropyProperties : public SoftmaxCrossEntropyTest {};

// The smoothed loss is the cross entropy with the smoothed target distribution, written out, and the z-loss.
TEST_F(SoftmaxCrossEntropyProperties, TheLossesAreThoseOfTheDefinition) {
  constexpr double smoothing = 0.1;
  constexpr double z_loss = 0.25;
  for (auto const& entry : registries_.of<SoftmaxCrossEntropy>().entries()) {
    Problem const problem({"", 1, 5, smoothing, 2, z_loss}, DType::float64);
    auto const logits = values(problem.call.logits);
    double sum = 0;
    for (double const logit : logits) {
      sum += std::exp(logit);
    }
    double smoothed = z_loss * std::log(sum) * std::log(sum);
    for (std::size_t c = 0; c < 5; ++c) {
      smoothed -= ((c == 0 ? 1 - smoothing : 0) + smoothing / 5) * (logits[c] - std::log(sum));
    }
    if (!entry.kernel->supports(problem.call.problem())) {
      continue;
    }
    run(*entry.kernel, problem, 1);
    EXPECT_NEAR(values(problem.losses)[0], smoothed, 1e-12) << entry.name;
    EXPECT_NEAR(values(problem.losses)[1], std::log(sum) - logits[0], 1e-12) << entry.name;
  }
}

/// The case's problem with weights and some ignored rows.
Problem weighted_problem(Case const& test, DType dtype) {
  Problem problem(test, dtype);
  std::vector<std::int32_t> targets;
  for (double const target : values(problem.call.targets)) {
    targets.push_back(targets.size() % 3 == 1 ? -1 : static_cast<std::int32_t>(target));
  }
  problem.call.targets = int_tensor(targets);
  problem.call.weights = random_tensor(statistics_dtype(dtype), {test.rows}, 9, 0.25, 3);
  return problem;
}

TEST_F(SoftmaxCrossEntropyProperties, RowsHaveWeightsAndMayBeIgnored) {
  Case const test{"", 8, 71, 0.1, 3, 0.02};
  Problem const plain(test, DType::float64);
  run(reference(), plain, 0.25);
  Values const plain_losses = values(plain.losses);
  Values const plain_gradient = values(plain.call.logits);
  for (auto const& entry : registries_.of<SoftmaxCrossEntropy>().entries()) {
    for (DType const dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      Problem const two = weighted_problem(test, dtype);
      if (!entry.kernel->supports(two.call.problem())) {
        continue;
      }
      SCOPED_TRACE(entry.name + " " + std::string(name_of(dtype)));
      Values const weights = values(two.call.weights);
      Values losses = plain_losses;
      Values gradient = plain_gradient;
      for (std::size_t row = 0; row < 8; ++row) {
        double const weight = row % 3 == 1 ? 0 : weights[row];
        for (std::size_t i = 0; i < 2; ++i) {
          losses[2 * row + i] *= weight;
        }
        for (std::size_t c = 0; c < 71; ++c) {
          gradient[71 * row + c] *= weight;
        }
      }
      run(*entry.kernel, two, 0.25);
      expect_values(two.losses, losses, dtype, "losses");
      expect_values(two.call.logits, gradient, dtype, "gradient");
      Problem const one = weighted_problem(test, dtype);
      entry.kernel->losses_and_gradient(execution_, one.call, 0.25, one.losses);
      expect_values(one.losses, losses, dtype, "losses of one pass");
      expect_values(one.call.logits, gradient, dtype, "gradient of one pass");
    }
  }
}

TEST_F(SoftmaxCrossEntropyProperties, LossesAreAddedUp) {
  for (auto const& entry : registries_.of<SoftmaxCrossEntropy>().entries()) {
    for (DType const dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      Problem const problem = weighted_problem({"", 301, 5, 0.1, 2}, dtype);
      if (!entry.kernel->supports(problem.call.problem())) {
        continue;
      }
      run(*entry.kernel, problem, 1);
      Tensor const sums = tensor_of({0.5, 0.25, 3, 7}, DType::float64, {SoftmaxCrossEntropy::sums_size});
      entry.kernel->add_losses(execution_, problem.call, problem.losses, sums);
      Values expected = {0.5, 0.25, 3, 7};
      Values const losses = values(problem.losses);
      for (std::size_t row = 0; row < 301; ++row) {
        expected[0] += losses[2 * row];
        expected[1] += losses[2 * row + 1];
        expected[2] += row % 3 == 1 ? 0 : 1;
      }
      if (entry.name == "teams") {  // their order is another one
        expect_values(sums, expected, DType::float64, entry.name);
      } else {
        EXPECT_EQ(values(sums), expected) << entry.name << " " << name_of(dtype);  // to the last bit
      }
    }
  }
}

TEST_F(SoftmaxCrossEntropyProperties, RowsWhoseTargetHasTheHighestLogitAreCounted) {
  for (auto const& entry : registries_.of<SoftmaxCrossEntropy>().entries()) {
    for (DType const dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      Problem const problem = weighted_problem({"", 301, 5, 0.1, 2}, dtype);
      if (!entry.kernel->supports(problem.call.problem())) {
        continue;
      }
      Values const logits = values(problem.call.logits);
      auto const targets = to_host<std::int32_t>(problem.call.targets);
      double correct = 0;
      for (std::size_t row = 0; row < 301; ++row) {
        auto const begin = logits.begin() + static_cast<std::ptrdiff_t>(5 * row);
        correct += targets[row] >= 0 && *std::max_element(begin, begin + 5) == begin[targets[row]] ? 1 : 0;
      }
      ASSERT_GT(correct, 20);
      Tensor const sums = tensor_of({0.5, 0.25, 3, 7}, DType::float64, {SoftmaxCrossEntropy::sums_size});
      entry.kernel->statistics(execution_, problem.call, problem.statistics);
      entry.kernel->add_correct(execution_, problem.call, problem.statistics, sums);
      EXPECT_EQ(values(sums), (Values{0.5, 0.25, 3, 7 + correct})) << entry.name << " " << name_of(dtype);
    }
  }
}

TEST_F(SoftmaxCrossEntropyProperties, TheProblemHasBothVocabularies) {
  Problem problem({"", 2, 12, 0, 1}, DType::float32);
  problem.call.global_vocabulary = 48;
  EXPECT_EQ(problem.call.problem().local_vocabulary, 12);
  EXPECT_EQ(problem.call.problem().global_vocabulary, 48);
}

/// Values as in training that diverges: a logit times log2(e) is then rounded by more than the exponent's range.
TEST_F(SoftmaxCrossEntropyProperties, OneVisitOfHugeLogits) {
  expect_one_visit_gives_the_same_as_two({"", 13, 301, 0.1, 1e30});
}

/// Logits of tokens that must not occur: the sum of the logits, which label smoothing needs, is then infinite.
TEST_F(SoftmaxCrossEntropyProperties, LogitsOfMinusInfinityHaveNoProbability) {
  for (auto const& entry : registries_.of<SoftmaxCrossEntropy>().entries()) {
    for (DType const dtype : {DType::float32, DType::bfloat16}) {
      SCOPED_TRACE(entry.name + " " + std::string(name_of(dtype)));
      Problem problem({"", 3, 107, 0, 4}, dtype);
      if (!entry.kernel->supports(problem.call.problem())) {
        continue;
      }
      Values logits = values(problem.call.logits);
      double sum = 0;
      for (std::size_t i = 0; i < logits.size(); ++i) {
        logits[i] = i % 107 % 3 == 0 ? -INFINITY : logits[i];
        sum += i / 107 == 1 ? std::exp(logits[i]) : 0;
      }
      problem.call.logits = tensor_of(logits, dtype, {3, 107});
      entry.kernel->statistics(execution_, problem.call, problem.statistics);
      Values const found = values(problem.statistics);
      EXPECT_NEAR(found[4] + std::log(found[5]), std::log(sum), 1e-5);
      EXPECT_EQ(found[7], -INFINITY);
      entry.kernel->gradient(execution_, problem.call, problem.statistics, 1);
      Values const gradient = values(problem.call.logits);
      for (std::size_t column = 0; column < 107; ++column) {
        double const probability = std::exp(logits[107 + column]) / sum;
        EXPECT_NEAR(gradient[107 + column], probability - (column == 42 ? 1 : 0), 4e-3 * probability + 1e-5) << column;
      }
    }
  }
}

TEST_F(SoftmaxCrossEntropyProperties, NotANumberIsNotHidden) {
  for (auto const& entry : registries_.of<SoftmaxCrossEntropy>().entries()) {
    for (DType const dtype : {DType::float32, DType::bfloat16}) {
      Problem problem({"", 1, 100, 0.1, 2}, dtype);
      if (!entry.kernel->supports(problem.call.problem())) {
        continue;
      }
      std::vector<double> logits(100, 1.0);
      logits[70] = NAN;
      problem.call.logits = tensor_of(logits, dtype, {1, 100});
      run(*entry.kernel, problem, 1);
      EXPECT_TRUE(std::isnan(values(problem.losses)[1])) << entry.name;
      problem.call.logits = tensor_of(logits, dtype, {1, 100});
      entry.kernel->losses_and_gradient(execution_, problem.call, 1, problem.losses);
      EXPECT_TRUE(std::isnan(values(problem.losses)[1])) << entry.name;
    }
  }
}

}  // namespace
}  // namespace heddle
