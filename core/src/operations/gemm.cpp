#include <fmt/format.h>

#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/observation.hpp>

namespace heddle {

namespace {

class ObservedGemm final : public ObservedKernel<Gemm> {
 public:
  using ObservedKernel::ObservedKernel;

  void multiply(Execution& execution, GemmCall const& call) override {
    pass<&Gemm::multiply>(
        execution, [&] { return description(call, call.problem()); }, call);
  }

 private:
  CallDescription description(GemmCall const& call, GemmProblem const& problem) const {
    return {.direction = problem.transpose_a   ? "weight gradient"
                         : problem.transpose_b ? "forward"
                                               : "input gradient",
            .variant = problem.accumulate && !problem.transpose_a ? "added" : "",
            .extents = fmt::format("{} x {} x {}", problem.m, problem.n, problem.k),
            .dtype = problem.dtype,
            .cost = cost(problem),
            .kept = kept(call, problem)};
  }

  /// A view of some of a parameter's rows has its own copy, and so does the transposed matrix.
  KeptMemory kept(GemmCall const& call, GemmProblem const& problem) const {
    if (selected() == nullptr || call.b_weight.id == 0) {
      return {};
    }
    return {.name = fmt::format("{} weight {} at {}, {} x {}{}", operation, call.b_weight.id, call.b.raw(), problem.n,
                                problem.k, problem.transpose_b ? " transposed" : ""),
            .bytes = selected()->packed_bytes(problem)};
  }
};

}  // namespace

GemmProblem GemmCall::problem() const {
  GemmProblem problem;
  problem.dtype = a.dtype();
  problem.b_dtype = b.dtype();
  problem.output_dtype = c.dtype();
  problem.m = c.dim(0);
  problem.n = c.dim(1);
  problem.k = transpose_a ? a.dim(0) : a.dim(1);
  problem.transpose_a = transpose_a;
  problem.transpose_b = transpose_b;
  problem.accumulate = accumulate;
  problem.bias = !bias.empty();
  problem.gaps = a.row_stride() != a.dim(1) || c.row_stride() != c.dim(1);
  auto const oriented = [](bool transposed, std::int64_t rows, std::int64_t columns) {
    return transposed ? Shape{columns, rows} : Shape{rows, columns};
  };
  a.require(problem.dtype, oriented(transpose_a, problem.m, problem.k), "a GEMM's a");
  auto const fits = [](DType dtype) { return dtype == DType::bfloat16 || dtype == DType::float32; };
  bool const converted = fits(problem.dtype) && fits(problem.b_dtype);
  b.require(converted ? problem.b_dtype : problem.dtype, oriented(transpose_b, problem.k, problem.n), "a GEMM's b");
  if (problem.bias) {
    bias.require(parameter_dtype(problem.output_dtype), Shape{problem.n}, "a GEMM's bias");
  }
  return problem;
}

std::string describe(GemmProblem const& problem) {
  return fmt::format("a multiplication of {} by {} to {} with m = {}, n = {}, k = {}{}{}{}{}", name_of(problem.dtype),
                     name_of(problem.b_dtype), name_of(problem.output_dtype), problem.m, problem.n, problem.k,
                     problem.transpose_a ? ", a transposed" : "", problem.transpose_b ? ", b transposed" : "",
                     problem.accumulate ? ", accumulated" : "", problem.bias ? ", with bias" : "");
}

// One choice serves all of a layer's calls, so the key leaves out the number of rows and which of a Linear's three
// products it is.
std::string timing_key(GemmProblem const& problem) {
  return fmt::format("{} by {} to {}, {} columns of {}", name_of(problem.dtype), name_of(problem.b_dtype),
                     name_of(problem.output_dtype), problem.n, problem.k);
}

Cost cost(GemmProblem const& problem) {
  auto const m = static_cast<double>(problem.m);
  auto const n = static_cast<double>(problem.n);
  auto const k = static_cast<double>(problem.k);
  double const read = static_cast<double>(size_of(problem.dtype)) * (m * k + k * n);
  double const written = static_cast<double>(size_of(problem.output_dtype)) * m * n;
  return {2 * m * n * k, read + written * (problem.accumulate ? 2 : 1)};
}

std::shared_ptr<Gemm> Gemm::observed(ObservedSelection<Gemm> selection) {
  return std::make_shared<ObservedGemm>(std::move(selection));
}

}  // namespace heddle
