#include "factories.hpp"
#include "kernel_parts.hpp"

namespace heddle {

namespace {

template <class Real>
void multiply_as(Execution& execution, GemmCall const& call, GemmProblem const& problem) {
  auto const a = parts::rows_of<Real>(call.a);
  auto const b = parts::rows_of<Real>(call.b);
  auto const c = parts::rows_of<Real>(call.c);
  Real const* const bias = problem.bias ? call.bias.data<Real>() : nullptr;
  parts::for_each(
      execution, "heddle::reference_gemm", problem.m, KOKKOS_LAMBDA(std::int64_t i) {
        for (std::int64_t j = 0; j < problem.n; ++j) {
          double sum = problem.accumulate ? static_cast<double>(c[i][j]) : 0.0;
          sum += bias != nullptr ? static_cast<double>(bias[j]) : 0.0;
          for (std::int64_t p = 0; p < problem.k; ++p) {
            double const left = problem.transpose_a ? a[p][i] : a[i][p];
            double const right = problem.transpose_b ? b[j][p] : b[p][j];
            sum += left * right;
          }
          c[i][j] = static_cast<Real>(sum);
        }
      });
}

/// The definition, summed in float64.
class ReferenceGemm final : public Gemm {
 public:
  bool supports(GemmProblem const& problem) const override {
    return problem.dtype == problem.output_dtype &&
           (problem.dtype == DType::float32 || problem.dtype == DType::float64);
  }

  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    parts::with_real(problem.dtype, [&]<class Real>(Real) { multiply_as<Real>(execution, call, problem); });
  }
};

}  // namespace

std::shared_ptr<Gemm> make_reference_gemm() {
  return std::make_shared<ReferenceGemm>();
}

}  // namespace heddle
