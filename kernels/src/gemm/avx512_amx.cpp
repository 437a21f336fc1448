#include <memory>

#include "avx512_amx_tiles.hpp"
#include "packed_weights.hpp"
#include "support/factories.hpp"
#include "support/matrix_registers.hpp"

namespace heddle {

namespace {

/// Products of few rows of bfloat16 with a weight, as generation has them, in matrix registers: any number of rows is
/// one pass over the weight, without code to generate. The vendor's implementation computes all others.
class AmxGemm final : public Gemm {
 public:
  explicit AmxGemm(std::shared_ptr<Gemm> vendor) : vendor_(std::move(vendor)) {}

  bool supports(GemmProblem const& problem) const override {
    return problem.dtype == DType::bfloat16 && vendor_->supports(problem);
  }
  std::size_t packed_bytes(GemmProblem const& problem) const override {
    return is_own(problem)
               ? sizeof(std::uint16_t) * static_cast<std::size_t>(amx::packed_elements(problem.n, problem.k))
               : vendor_->packed_bytes(problem);
  }
  /// Its own copies; the vendor's implementation is registered, too, and counts its own.
  std::size_t kept_bytes() const override {
    return weights_.bytes([](Tensor const& packed) { return packed.bytes(); });
  }

  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    if (call.b_weight.id == 0 || !is_own(problem) || execution.space.concurrency() > 1) {
      vendor_->multiply(execution, call);
      return;
    }
    if (problem.m == 0 || problem.n == 0) {
      return;
    }
    execution.space.fence();  // this code does not run in the order of the execution space
    ArenaScope const scope(execution.scratch);
    auto const elements = [](Tensor const& tensor) { return static_cast<std::uint16_t*>(tensor.raw()); };
    Tensor const spare = execution.scratch.allocate(DType::bfloat16, {amx::tile_rows, problem.k});
    amx::multiply({elements(call.a), call.a.row_stride(), elements(packed_weight(call, problem)), call.c.raw(),
                   call.c.row_stride(), problem.output_dtype == DType::float32,
                   problem.bias ? call.bias.data<float>() : nullptr, elements(spare), problem.m, problem.n, problem.k});
  }

 private:
  /// With more rows the vendor is as fast, and its copies of weights serve training, too.
  static constexpr std::int64_t max_rows = 640;

  /// Fewer columns than a panel has would be packed, and multiplied, with zeros.
  static bool is_own(GemmProblem const& problem) {
    return problem.m <= max_rows && problem.n >= amx::panel && problem.transpose_b && !problem.transpose_a &&
           !problem.accumulate && problem.k > 0 && problem.k % amx::step == 0;
  }

  Tensor const& packed_weight(GemmCall const& call, GemmProblem const& problem) {
    auto const make = [&] {
      return Tensor::allocate_on_host(DType::bfloat16, {amx::packed_elements(problem.n, problem.k)});
    };
    auto const fill = [&](Tensor const& packed) {
      amx::pack({call.b.raw(), call.b.row_stride(), problem.n, problem.k, problem.b_dtype == DType::float32},
                static_cast<std::uint16_t*>(packed.raw()));
    };
    return weights_.current(call, problem, make, fill);
  }

  std::shared_ptr<Gemm> vendor_;
  PackedWeights<Tensor> weights_;
};

}  // namespace

void add_amx_gemm(KernelRegistry<Gemm>& registry, CpuLevel level) {
  GemmProblem const problem{.dtype = DType::bfloat16, .m = 1, .n = 1, .k = 1};
  if (level >= CpuLevel::v4_amx && request_matrix_registers()) {
    registry.add("amx", speeds::own, std::make_shared<AmxGemm>(registry.select("onednn", problem)));
  }
}

}  // namespace heddle
