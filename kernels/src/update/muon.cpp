#include <algorithm>
#include <cmath>
#include <heddle/core/operations/elementwise_update.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <utility>

namespace heddle {

namespace {

/// The options' places in RuleOptions.
enum Option : std::size_t { momentum, nesterov, iterations, bfloat16, match_adam };

/// Muon (Jordan et al. 2024): the update is the nearest semi-orthogonal matrix to the momentum, all of whose singular
/// values are 1, with decoupled weight decay.
struct Muon {
  struct Direction {
    static constexpr std::size_t state_tensors = 1;

    double kept;
    bool ahead;

    explicit Direction(UpdateCall const& call) : kept(call.options[momentum]), ahead(call.options[nesterov] != 0) {}

    template <class Real>
    struct Factors {
      Real kept, added, of_momentum, of_gradient, gradient_scale;

      KOKKOS_INLINE_FUNCTION void update(Real& direction, Real gradient, Real& mean) const {
        Real const g = gradient * gradient_scale;
        mean = kept * mean + added * g;
        direction = of_momentum * mean + of_gradient * g;
      }
    };

    template <class Real>
    KOKKOS_INLINE_FUNCTION Factors<Real> factors(double const* scalars) const {
      return {.kept = static_cast<Real>(kept),
              .added = static_cast<Real>(1 - kept),
              .of_momentum = static_cast<Real>(ahead ? kept : 1),
              .of_gradient = static_cast<Real>(ahead ? 1 - kept : 0),
              .gradient_scale = static_cast<Real>(scalars[update_scalars::gradient_scale])};
    }
  };

  struct Step {
    static constexpr std::size_t state_tensors = 0;

    double weight_decay;

    explicit Step(UpdateCall const& call) : weight_decay(call.weight_decay) {}

    template <class Real>
    struct Factors {
      Real kept, learning_rate;

      KOKKOS_INLINE_FUNCTION void update(Real& value, Real direction) const {
        value = kept * value - learning_rate * direction;
      }
    };

    template <class Real>
    KOKKOS_INLINE_FUNCTION Factors<Real> factors(double const* scalars) const {
      double const learning_rate = scalars[update_scalars::learning_rate];
      return {.kept = static_cast<Real>(1 - learning_rate * weight_decay),
              .learning_rate = static_cast<Real>(learning_rate)};
    }
  };
};

std::int64_t short_side(MatrixProblem const& problem) {
  return std::min(problem.rows, problem.columns);
}

DType product_dtype(MatrixProblem const& problem) {
  return problem.options[bfloat16] != 0 ? DType::bfloat16 : problem.dtype;
}

/// The factor of the result. With match_adam its root mean square is 0.2, about Adam's, so that one learning rate
/// serves both (Liu et al. 2025); otherwise the authors' own.
double result_scale(MatrixProblem const& problem) {
  auto const rows = static_cast<double>(problem.rows);
  auto const columns = static_cast<double>(problem.columns);
  return problem.options[match_adam] != 0 ? 0.2 * std::sqrt(std::max(rows, columns))
                                          : std::sqrt(std::max(1.0, rows / columns));
}

/// A Newton-Schulz iteration towards the nearest semi-orthogonal matrix: of x, divided by its Frobenius norm, with the
/// Gram matrix A of its shorter side, x = (3.4445 I - 4.7750 A + 2.0315 A²) x. The coefficients bring small singular
/// values near 1 fast, and leave all within about 0.3 of it. The sums of the products are in the matrix's dtype.
class NewtonSchulz final : public MatrixFunction {
 public:
  NewtonSchulz(KernelSource const& kernels, MatrixProblem const& problem)
      : problem_(problem), tensors_(kernels.select<TensorOps>({problem.dtype})) {
    std::int64_t const side = short_side(problem);
    auto const select = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b,
                            bool accumulate) {
      DType const dtype = product_dtype(problem);
      return kernels.select<Gemm>({.dtype = dtype,
                                   .b_dtype = dtype,
                                   .output_dtype = problem.dtype,
                                   .m = m,
                                   .n = n,
                                   .k = k,
                                   .transpose_a = transpose_a,
                                   .transpose_b = transpose_b,
                                   .accumulate = accumulate});
    };
    gram_ = select(side, side, std::max(problem.rows, problem.columns), is_tall(), !is_tall(), false);
    square_ = select(side, side, side, false, false, true);
    product_ = select(problem.rows, problem.columns, side, false, false, true);
  }

  void apply(Execution& execution, MatrixCall const& call) override {
    Tensor const& matrix = call.matrix;
    ArenaScope const scope(execution.scratch);
    auto const allocate = [&](DType dtype, Shape const& shape) { return execution.scratch.allocate(dtype, shape); };
    std::int64_t const side = short_side(problem_);
    Tensor x = matrix;
    Tensor next = allocate(problem_.dtype, matrix.shape());
    Tensor const gram = allocate(problem_.dtype, {side, side});
    Tensor const polynomial = allocate(problem_.dtype, {side, side});
    DType const rounded = product_dtype(problem_);
    bool const rounds = rounded != problem_.dtype;
    Tensor const x_operand = rounds ? allocate(rounded, matrix.shape()) : Tensor();
    Tensor const operand = rounds ? allocate(rounded, {side, side}) : Tensor();
    auto const in_products = [&](Tensor const& tensor, Tensor const& copy) {
      if (!rounds) {
        return tensor;
      }
      tensors_->copy(execution, tensor, copy);
      return copy;
    };
    divide_by_norm(execution, matrix);
    for (int iteration = 0; iteration < static_cast<int>(problem_.options[iterations]); ++iteration) {
      Tensor const factor = in_products(x, x_operand);
      gram_->multiply(
          execution,
          {.a = factor, .b = factor, .c = gram, .bias = {}, .transpose_a = is_tall(), .transpose_b = !is_tall()});
      tensors_->copy(execution, gram, polynomial);
      tensors_->scale(execution, polynomial, linear / quadratic);
      Tensor const gram_factor = in_products(gram, operand);
      square_->multiply(execution,
                        {.a = gram_factor, .b = gram_factor, .c = polynomial, .bias = {}, .accumulate = true});
      tensors_->scale(execution, polynomial, quadratic);
      Tensor const left = in_products(polynomial, operand);
      tensors_->copy(execution, x, next);
      tensors_->scale(execution, next, constant);
      product_->multiply(
          execution,
          {.a = is_tall() ? factor : left, .b = is_tall() ? left : factor, .c = next, .bias = {}, .accumulate = true});
      std::swap(x, next);
    }
    if (x.raw() != matrix.raw()) {
      tensors_->copy(execution, x, matrix);
    }
    tensors_->scale(execution, matrix, result_scale(problem_));
  }

  /// Products of an iteration: the Gram matrix, its square, and the polynomial with x.
  static Cost cost(MatrixProblem const& problem) {
    auto const side = static_cast<double>(short_side(problem));
    auto const elements = static_cast<double>(problem.rows) * static_cast<double>(problem.columns);
    auto const bytes = static_cast<double>(size_of(problem.dtype));
    Cost const iteration{2 * side * (2 * elements + side * side), (4 * elements + 6 * side * side) * bytes};
    return problem.options[iterations] * iteration;
  }

  static std::int64_t scratch_bytes(MatrixProblem const& problem) {
    std::int64_t const square = short_side(problem) * short_side(problem);
    std::int64_t const elements = problem.rows * problem.columns;
    std::int64_t const rounded =
        problem.options[bfloat16] != 0 ? static_cast<std::int64_t>(sizeof(BFloat16)) * (elements + square) : 0;
    constexpr std::int64_t lines = 6 * 64;  // each tensor begins on a cache line
    return static_cast<std::int64_t>(size_of(problem.dtype)) * (elements + 2 * square) + rounded + lines;
  }

 private:
  static constexpr double constant = 3.4445;
  static constexpr double linear = -4.7750;
  static constexpr double quadratic = 2.0315;

  /// x has its Gram matrix on the right.
  bool is_tall() const { return problem_.rows > problem_.columns; }

  void divide_by_norm(Execution& execution, Tensor const& matrix) const {
    constexpr double min_norm = 1e-7;
    Tensor const sum = execution.scratch.allocate(DType::float64, {1});
    tensors_->fill(execution, sum, 0);
    tensors_->add_sum_of_squares(execution, matrix.reshaped({matrix.size()}), sum);
    double squares = 0;
    copy_to_host(&squares, sum, &execution);
    tensors_->scale(execution, matrix, 1 / std::max(std::sqrt(squares), min_norm));
  }

  MatrixProblem problem_;
  std::shared_ptr<TensorOps> tensors_;
  std::shared_ptr<Gemm> gram_, square_, product_;
};

}  // namespace

void add_muon_rule(KernelRegistries& registries) {
  add_whole_rule<Muon>(
      registries,
      {.name = "muon",
       .state = {"muon.momentum"},
       .options = {RuleOption::fraction("momentum", 0.95, "decay rate of the mean gradient; default: 0.95"),
                   RuleOption::boolean("nesterov", true, "look one update ahead; default: true"),
                   {{.name = "iterations",
                     .type = OptionDescription::Type::integer,
                     .meaning = "Newton-Schulz iterations; default: 5",
                     .min = 1,
                     .max = 100},
                    5},
                   RuleOption::boolean("bfloat16", false,
                                       "compute the iterations' products in bfloat16; default: false"),
                   RuleOption::boolean(
                       "match_adam", true,
                       "updates as large as Adam's, for one learning rate (Liu et al. 2025); default: true")},
       .scope = RuleDefinition::Scope::matrices,
       .matrices = {
           .function = [](KernelSource const& kernels,
                          MatrixProblem const& problem) { return std::make_shared<NewtonSchulz>(kernels, problem); },
           .cost = NewtonSchulz::cost,
           .scratch_bytes = NewtonSchulz::scratch_bytes}});
}

}  // namespace heddle
