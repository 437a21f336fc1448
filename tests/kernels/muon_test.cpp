#include <algorithm>
#include <cmath>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/update.hpp>
#include <heddle/core/tensor/execution.hpp>

#include "kernel_fixture.hpp"

namespace heddle {
namespace {

/// Adds up the operations of the products.
class ProductCounter final : public KernelObserver {
 public:
  void observe(Execution& /*execution*/, KernelCall const& call) override {
    operations_ += call.operation == Gemm::operation ? call.cost.operations : 0;
    call.make();
  }
  double operations() const { return operations_; }

 private:
  double operations_ = 0;
};

class MuonTest : public BuiltInKernelsTest {
 protected:
  MuonTest() { observed_.observe(products_); }

  MatrixProblem problem(std::int64_t rows, std::int64_t columns, Settings const& options = {}) const {
    return {DType::float32, rows, columns, option_values(muon_, options)};
  }
  Tensor transformed(MatrixProblem const& problem) {
    Tensor matrix = random_tensor(problem.dtype, Shape{problem.rows, problem.columns}, 5);
    muon_.matrices.function({observed_, choices_}, problem)->apply(execution_, {matrix, {}});
    return matrix;
  }
  /// The entries of the Gram matrix of the shorter side: on the diagonal, and the largest elsewhere.
  static std::pair<Values, double> gram_of(Tensor const& matrix, MatrixProblem const& problem) {
    Values const x = values(matrix);
    bool const tall = problem.rows > problem.columns;
    std::int64_t const side = std::min(problem.rows, problem.columns);
    std::int64_t const length = std::max(problem.rows, problem.columns);
    auto const at = [&](std::int64_t vector, std::int64_t element) {
      return x[static_cast<std::size_t>(tall ? element * side + vector : vector * length + element)];
    };
    std::pair<Values, double> gram;
    for (std::int64_t i = 0; i < side; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < length; ++k) {
          sum += at(i, k) * at(j, k);
        }
        if (i == j) {
          gram.first.push_back(sum);
        } else {
          gram.second = std::max(gram.second, std::abs(sum));
        }
      }
    }
    return gram;
  }

  KernelRegistries observed_ = registries_;
  KernelChoices choices_;
  RuleDefinition muon_ = rule_definition(registries_, "muon", "");
  ProductCounter products_;
};

TEST_F(MuonTest, SingularValuesComeNearOne) {
  for (bool const rounded : {false, true}) {
    for (auto const& [rows, columns] : {std::pair{24, 80}, {80, 24}, {33, 33}, {1, 9}}) {
      MatrixProblem const plain = problem(rows, columns, {{"match_adam", {false, ""}}, {"bfloat16", {rounded, ""}}});
      Tensor const matrix = transformed(plain);
      auto const [diagonal, others] = gram_of(matrix, plain);
      double const scale = std::max(1.0, static_cast<double>(rows) / columns);
      EXPECT_THAT(diagonal, testing::Each(testing::DoubleNear(scale, 0.6 * scale))) << rows << " x " << columns;
      EXPECT_LE(others, 0.35 * scale) << rows << " x " << columns;
    }
  }
}

TEST_F(MuonTest, AnUpdateIsAsLargeAsAdams) {
  MatrixProblem const matched = problem(40, 90);
  double squares = 0;
  for (double const element : values(transformed(matched))) {
    squares += element * element;
  }
  EXPECT_NEAR(std::sqrt(squares / (40 * 90)), 0.2, 0.05);
}

TEST_F(MuonTest, ItsCostIsThatOfItsProducts) {
  for (auto const& [rows, columns] : {std::pair{24, 80}, {80, 24}, {33, 33}}) {
    MatrixProblem const one = problem(rows, columns, {{"iterations", {std::int64_t{3}, ""}}});
    double const before = products_.operations();
    transformed(one);
    EXPECT_EQ(products_.operations() - before, muon_.matrices.cost(one).operations);
    EXPECT_GT(muon_.matrices.cost(one).bytes, 0);
  }
}

TEST_F(MuonTest, ScratchIsPlanned) {
  for (bool const rounded : {false, true}) {
    MatrixProblem const one = problem(640, 320, {{"bfloat16", {rounded, ""}}});
    Arena scratch;
    Execution execution{execution_.space, scratch};
    Tensor const matrix = random_tensor(one.dtype, Shape{one.rows, one.columns}, 5);
    muon_.matrices.function({registries_, choices_}, one)->apply(execution, {matrix, {}});
    // The products' own scratch is beyond it.
    auto const planned = static_cast<double>(muon_.matrices.scratch_bytes(one));
    EXPECT_GE(static_cast<double>(scratch.peak()), 0.95 * planned);
    EXPECT_EQ(scratch.mark(), 0U);
  }
}

TEST_F(MuonTest, NoDirectionGivesNoUpdate) {
  MatrixProblem const one = problem(5, 7);
  Tensor const matrix = Tensor::allocate(one.dtype, Shape{5, 7});
  copy_from_host(matrix, std::vector<float>(35).data());
  muon_.matrices.function({registries_, choices_}, one)->apply(execution_, {matrix, {}});
  EXPECT_EQ(values(matrix), Values(35));
}

}  // namespace
}  // namespace heddle
