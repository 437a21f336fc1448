#include <algorithm>
#include <cmath>
#include <heddle/core/operations/elementwise_update.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <numeric>
#include <optional>

#include "support/orthogonal_basis.hpp"

namespace heddle {

namespace {

/// The options' places in RuleOptions.
enum Option : std::size_t { beta1, beta2, shampoo_beta, epsilon, frequency, max_side, correct_bias };

/// SOAP (Vyas et al. 2024): Adam in the eigenbases of the covariances of a gradient's rows and columns, as the authors'
/// code has it. Its first update only finds the bases. Decay is decoupled.
struct Soap {
  using Direction = GradientDirection;

  struct Step {
    static constexpr std::size_t state_tensors = 0;

    double weight_decay;

    explicit Step(UpdateCall const& call) : weight_decay(call.weight_decay) {}

    template <class Real>
    struct Factors {
      Real kept, taken;

      KOKKOS_INLINE_FUNCTION void update(Real& value, Real direction) const {
        value = kept * (value - taken * direction);
      }
    };

    template <class Real>
    KOKKOS_INLINE_FUNCTION Factors<Real> factors(double const* scalars) const {
      double const learning_rate = scalars[update_scalars::learning_rate];
      double const* const numbers = scalars + update_scalars::numbers;
      return {.kept = static_cast<Real>(1 - learning_rate * weight_decay * numbers[1]),
              .taken = static_cast<Real>(learning_rate * numbers[0])};
    }
  };
};

/// The factor of the learning rate by the bias correction, and of the decay: none in the first update.
RuleDefinition::Numbers numbers_of(RuleOptions const& options, UpdateStep const& step) {
  auto const at = static_cast<double>(step.step - 1);
  if (at < 1) {
    return {};
  }
  double const correction = std::sqrt(1 - std::pow(options[beta2], at)) / (1 - std::pow(options[beta1], at));
  return {options[correct_bias] != 0 ? correction : 1, 1};
}

/// Adam's moments, and direction = its step without the bias correction, of a work item's elements.
template <class Real>
struct Moments {
  static constexpr std::int64_t block = 4096;

  Real* direction;  ///< the gradient before
  Real* first;
  Real* second;
  std::int64_t size;
  Real beta1, beta2, new1, new2, epsilon;

  KOKKOS_INLINE_FUNCTION void update(Real& step, Real const gradient, Real& mean, Real& square) const {
    mean = beta1 * mean + new1 * gradient;
    square = beta2 * square + new2 * gradient * gradient;
    step = mean / (std::sqrt(square) + epsilon);
  }
  std::int64_t items() const { return (size + block - 1) / block; }
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t item) const {
    std::int64_t const end = (item + 1) * block < size ? (item + 1) * block : size;
    for (std::int64_t i = item * block; i < end; ++i) {
      update(direction[i], direction[i], first[i], second[i]);
    }
  }
};

/// One side of a matrix: the covariance of its rows, or of its columns, and an orthogonal basis [side, side] near its
/// eigenvectors, which are the columns.
struct Side {
  bool left;
  std::int64_t size;
  Tensor covariance;
  Tensor basis;
};

std::int64_t rotated(std::int64_t side, MatrixProblem const& problem) {
  return side <= static_cast<std::int64_t>(problem.options[max_side]) ? side : 0;
}

class EigenbasisAdam final : public MatrixFunction {
 public:
  EigenbasisAdam(KernelSource const& kernels, MatrixProblem const& problem)
      : problem_(problem), tensors_(kernels.select<TensorOps>({problem.dtype})) {
    std::int64_t const m = problem.rows;
    std::int64_t const n = problem.columns;
    auto const select = [&](std::int64_t rows, std::int64_t columns, std::int64_t inner, bool transpose_a,
                            bool transpose_b) {
      return kernels.select<Gemm>({.dtype = problem.dtype,
                                   .b_dtype = problem.dtype,
                                   .output_dtype = problem.dtype,
                                   .m = rows,
                                   .n = columns,
                                   .k = inner,
                                   .transpose_a = transpose_a,
                                   .transpose_b = transpose_b});
    };
    left_ = select(m, n, m, true, false);
    right_ = select(m, n, n, false, false);
    left_back_ = select(m, n, m, false, false);
    right_back_ = select(m, n, n, false, true);
    left_covariance_ = select(m, m, n, false, true);
    right_covariance_ = select(n, n, m, true, false);
    square_ = select(std::max(m, n), std::max(m, n), std::max(m, n), false, false);
  }

  void apply(Execution& execution, MatrixCall const& call) override {
    kernels::ElementTypes<float, double>::with(problem_.dtype,
                                               [&]<class Real>(Real) { apply_as<Real>(execution, call); });
  }

  static std::vector<MatrixState> state(MatrixProblem const& problem) {
    std::vector<MatrixState> state{{"soap.first_moment", {problem.rows, problem.columns}},
                                   {"soap.second_moment", {problem.rows, problem.columns}}};
    if (std::int64_t const side = rotated(problem.rows, problem); side > 0) {
      state.push_back({"soap.row_covariance", {side, side}});
      state.push_back({"soap.row_basis", {side, side}});
    }
    if (std::int64_t const side = rotated(problem.columns, problem); side > 0) {
      state.push_back({"soap.column_covariance", {side, side}});
      state.push_back({"soap.column_basis", {side, side}});
    }
    return state;
  }

  /// Products of an update; those of new bases, of their QR decompositions and of the momentum that follows them count
  /// in their share of the updates.
  static Cost cost(MatrixProblem const& problem) {
    auto const elements = static_cast<double>(problem.rows) * static_cast<double>(problem.columns);
    auto const m = static_cast<double>(rotated(problem.rows, problem));
    auto const n = static_cast<double>(rotated(problem.columns, problem));
    double const share = 1 / problem.options[frequency];
    double const cubes = m * m * m + n * n * n;
    constexpr double of_basis = 2 + 8.0 / 3;
    Cost const once{6 * elements * (m + n) + share * (of_basis * cubes + 4 * elements * (m + n)),
                    (12 * elements + 5 * (m * m + n * n)) * static_cast<double>(size_of(problem.dtype))};
    return once;
  }

  /// And, on the host, two matrices of the larger side and LAPACK's work memory.
  static std::int64_t scratch_bytes(MatrixProblem const& problem) {
    std::int64_t const side = std::max(rotated(problem.rows, problem), rotated(problem.columns, problem));
    constexpr std::int64_t lines = 5 * 64;  // each tensor begins on a cache line
    return static_cast<std::int64_t>(size_of(problem.dtype)) * (2 * problem.rows * problem.columns + 5 * side * side) +
           lines;
  }

 private:
  std::vector<Side> sides(MatrixCall const& call) const {
    std::vector<Side> sides;
    std::size_t next = 2;
    for (bool const left : {true, false}) {
      if (std::int64_t const size = rotated(left ? problem_.rows : problem_.columns, problem_); size > 0) {
        sides.push_back({left, size, call.state[next], call.state[next + 1]});
        next += 2;
      }
    }
    return sides;
  }

  template <class Real>
  void apply_as(Execution& execution, MatrixCall const& call) const {
    ArenaScope const scope(execution.scratch);
    std::vector<Side> const sides = this->sides(call);
    if (call.step == 1) {
      add_covariances(execution, sides, call.matrix);
      for (Side const& side : sides) {
        find_basis<Real>(side);
      }
      tensors_->fill(execution, call.matrix, 0);  // so that no update uses bases of its own gradient
      return;
    }
    Tensor const projected = execution.scratch.allocate(problem_.dtype, call.matrix.shape());
    Tensor const between = execution.scratch.allocate(problem_.dtype, call.matrix.shape());
    auto const project = [&](Tensor const& from, Tensor const& to, bool back) {
      rotate(execution, sides, from, to, between, back);
    };
    project(call.matrix, projected, false);
    add_covariances(execution, sides, call.matrix);
    Moments<Real> const moments{projected.data<Real>(),
                                call.state[0].data<Real>(),
                                call.state[1].data<Real>(),
                                projected.size(),
                                static_cast<Real>(problem_.options[beta1]),
                                static_cast<Real>(problem_.options[beta2]),
                                static_cast<Real>(1 - problem_.options[beta1]),
                                static_cast<Real>(1 - problem_.options[beta2]),
                                static_cast<Real>(problem_.options[epsilon])};
    kernels::for_each(execution, "heddle::soap_moments", moments.items(), moments);
    project(projected, call.matrix, true);
    if ((call.step - 1) % static_cast<std::int64_t>(problem_.options[frequency]) == 0) {
      project(call.state[0], projected, true);
      for (Side const& side : sides) {
        follow<Real>(execution, side, call.state[1], between);
      }
      project(projected, call.state[0], false);
    }
  }

  /// covariance += (1 - shampoo_beta) (G Gᵀ - covariance), of the other side with Gᵀ G.
  void add_covariances(Execution& execution, std::vector<Side> const& sides, Tensor const& gradient) const {
    ArenaScope const scope(execution.scratch);
    Tensor const share = execution.scratch.allocate(DType::float64, {1});
    tensors_->fill(execution, share, 1 - problem_.options[shampoo_beta]);
    for (Side const& side : sides) {
      ArenaScope const of_side(execution.scratch);
      Tensor const product = execution.scratch.allocate(problem_.dtype, {side.size, side.size});
      Gemm& gemm = side.left ? *left_covariance_ : *right_covariance_;
      gemm.multiply(execution, {.a = gradient,
                                .b = gradient,
                                .c = product,
                                .bias = {},
                                .transpose_a = !side.left,
                                .transpose_b = side.left});
      tensors_->mix(execution, side.covariance, product, share);
    }
  }

  /// to = Lᵀ from R for the bases L and R, or back: L from Rᵀ. A side without a basis stays. `to` may not be `from`.
  void rotate(Execution& execution, std::vector<Side> const& sides, Tensor const& from, Tensor const& to,
              Tensor const& between, bool back) const {
    Tensor source = from;
    for (std::size_t index = 0; index < sides.size(); ++index) {
      auto const& [left, size, covariance, basis] = sides[index];
      Tensor const result = index + 1 < sides.size() ? between : to;
      if (left) {
        (back ? *left_back_ : *left_)
            .multiply(execution, {.a = basis, .b = source, .c = result, .bias = {}, .transpose_a = !back});
      } else {
        (back ? *right_back_ : *right_)
            .multiply(execution, {.a = source, .b = basis, .c = result, .bias = {}, .transpose_b = back});
      }
      source = result;
    }
    if (sides.empty()) {
      tensors_->copy(execution, from, to);
    }
  }

  /// basis = the covariance's eigenvectors, those of the largest eigenvalues first.
  template <class Real>
  void find_basis(Side const& side) const {
    auto vectors = to_host<Real>(side.covariance);
    kernels::replace_by_eigenvectors(vectors, side.size);
    std::vector<std::int64_t> last_first(static_cast<std::size_t>(side.size));
    std::iota(last_first.rbegin(), last_first.rend(), 0);
    set_columns(side.basis, vectors, last_first);
  }

  /// One step of a power iteration from the basis towards the eigenvectors, in the order of falling eigenvalues, and
  /// the second moment in that order.
  template <class Real>
  void follow(Execution& execution, Side const& side, Tensor const& second_moment, Tensor const& reordered) const {
    ArenaScope const scope(execution.scratch);
    Tensor const product = execution.scratch.allocate(problem_.dtype, {side.size, side.size});
    square_->multiply(execution, {.a = side.covariance, .b = side.basis, .c = product, .bias = {}});
    Tensor const order = execution.scratch.allocate(DType::int32, {side.size});
    auto const basis = to_host<Real>(side.basis);
    std::vector<Real> products(basis.size());
    copy_to_host(products.data(), product, &execution);
    std::vector<std::int32_t> const indices = order_of(basis, products, side.size);
    copy_from_host(order, indices.data());
    side.left ? tensors_->gather_rows(execution, second_moment, order, reordered)
              : tensors_->gather_columns(execution, second_moment, order, reordered);
    tensors_->copy(execution, reordered, second_moment);
    std::vector<Real> vectors(basis.size());
    std::vector<std::int64_t> same(indices.size());
    std::iota(same.begin(), same.end(), 0);
    for (std::size_t row = 0; row < indices.size(); ++row) {
      for (std::size_t column = 0; column < indices.size(); ++column) {
        vectors[column * indices.size() + row] =
            products[row * indices.size() + static_cast<std::size_t>(indices[column])];
      }
    }
    kernels::make_orthogonal(vectors, side.size);
    set_columns(side.basis, vectors, same);
  }

  /// The columns by falling estimates of their eigenvalues, the diagonal of basisᵀ (covariance basis).
  template <class Real>
  static std::vector<std::int32_t> order_of(std::vector<Real> const& basis, std::vector<Real> const& products,
                                            std::int64_t size) {
    auto const side = static_cast<std::size_t>(size);
    std::vector<double> estimates(side);
    for (std::size_t index = 0; index < basis.size(); ++index) {
      estimates[index % side] += static_cast<double>(basis[index]) * static_cast<double>(products[index]);
    }
    std::vector<std::int32_t> order(side);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::ranges::greater(),
                             [&](std::int32_t column) { return estimates[static_cast<std::size_t>(column)]; });
    return order;
  }

  /// basis = the vectors, which are rows, in this order as columns.
  template <class Real>
  static void set_columns(Tensor const& basis, std::vector<Real> const& vectors,
                          std::vector<std::int64_t> const& order) {
    std::size_t const side = order.size();
    std::vector<Real> columns(vectors.size());
    for (std::size_t row = 0; row < side; ++row) {
      for (std::size_t column = 0; column < side; ++column) {
        columns[row * side + column] = vectors[static_cast<std::size_t>(order[column]) * side + row];
      }
    }
    copy_from_host(basis, columns.data());
  }

  MatrixProblem problem_;
  std::shared_ptr<TensorOps> tensors_;
  std::shared_ptr<Gemm> left_, right_, left_back_, right_back_, left_covariance_, right_covariance_, square_;
};

RuleOption count(std::string name, double value, std::string meaning) {
  return {{.name = std::move(name), .type = OptionDescription::Type::integer, .meaning = std::move(meaning), .min = 1},
          value};
}

}  // namespace

void add_soap_rule(KernelRegistries& registries) {
  add_whole_rule<Soap>(
      registries,
      {.name = "soap",
       .options = {RuleOption::fraction("beta1", 0.95, "decay rate of the first moment; default: 0.95"),
                   RuleOption::fraction("beta2", 0.95, "decay rate of the second moment; default: 0.95"),
                   RuleOption::fraction("shampoo_beta", 0.95, "decay rate of the covariances; default: 0.95"),
                   {{.name = "epsilon",
                     .type = OptionDescription::Type::number,
                     .meaning = "added to the denominator; default: 1e-8",
                     .above_min = true},
                    1e-8},
                   count("precondition_frequency", 10, "updates from one basis to the next; default: 10"),
                   count("max_precond_dim", 10000, "longest side of a matrix that gets a basis; default: 10000"),
                   RuleOption::boolean("correct_bias", true, "Adam's bias correction; default: true")},
       .scope = RuleDefinition::Scope::matrices,
       .numbers = numbers_of,
       .matrices = {
           .function = [](KernelSource const& kernels,
                          MatrixProblem const& problem) { return std::make_shared<EigenbasisAdam>(kernels, problem); },
           .cost = EigenbasisAdam::cost,
           .scratch_bytes = EigenbasisAdam::scratch_bytes,
           .state = EigenbasisAdam::state}});
}

}  // namespace heddle
