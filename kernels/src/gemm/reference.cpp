#include "support/factories.hpp"
#include "types.hpp"

namespace heddle {

namespace {

template <class A, class B, class C>
void multiply_as(Execution& execution, GemmCall const& call, GemmProblem const& problem) {
  auto const a = kernels::rows_of<A>(call.a);
  auto const b = kernels::rows_of<B>(call.b);
  auto const c = kernels::rows_of<C>(call.c);
  using Real = kernels::ArithmeticType<C>;
  Real const* const bias = problem.bias ? call.bias.data<Real>() : nullptr;
  kernels::for_each(
      execution, "heddle::reference_gemm", problem.m, KOKKOS_LAMBDA(std::int64_t i) {
        for (std::int64_t j = 0; j < problem.n; ++j) {
          double sum = problem.accumulate ? static_cast<double>(static_cast<Real>(c[i][j])) : 0.0;
          sum += bias != nullptr ? static_cast<double>(bias[j]) : 0.0;
          for (std::int64_t p = 0; p < problem.k; ++p) {
            double const left = kernels::factor<A>(problem.transpose_a ? a[p][i] : a[i][p]);
            double const right = kernels::factor<A>(problem.transpose_b ? b[j][p] : b[p][j]);
            sum += left * right;
          }
          c[i][j] = static_cast<C>(static_cast<Real>(sum));
        }
      });
}

/// The definition, summed in float64.
class ReferenceGemm final : public Gemm {
 public:
  bool supports(GemmProblem const& problem) const override { return kernels::has_gemm_types(problem); }
  Accuracy accuracy() const override { return Accuracy::exact; }

  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    kernels::with_gemm_types(
        problem, [&]<class A, class B, class C>(A, B, C) { multiply_as<A, B, C>(execution, call, problem); });
  }
};

}  // namespace

void add_gemm_kernels(KernelRegistries& registries) {
  registries.of<Gemm>().add("reference", priorities::reference, std::make_shared<ReferenceGemm>());
}

}  // namespace heddle
