#include <heddle/core/operations/timings.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <memory>

#include "avx512_amx_blocks.hpp"
#include "packed_weights.hpp"
#include "support/factories.hpp"
#include "support/matrix_registers.hpp"

namespace heddle {

namespace {

/// Products in matrix registers, by one thread. The vendor's implementation computes those with few columns and, where
/// the process has several threads, all but forward products of few rows.
///
/// Products of float32 are three of bfloat16 each (Henry, Tang, Heinecke 2019): an element is the sum of two bfloat16
/// and of an error of at most 2⁻¹⁶ of it, and products of two second parts, which are as small, are left out. Sums are
/// float32. An element from 3.39e38 on becomes NaN.
class AmxGemm final : public Gemm {
 public:
  /// `dtype`: the type of op(a), float32 or bfloat16.
  AmxGemm(DType dtype, std::shared_ptr<Gemm> vendor) : split_(dtype == DType::float32), vendor_(std::move(vendor)) {}

  bool supports(GemmProblem const& problem) const override {
    return problem.dtype == (split_ ? DType::float32 : DType::bfloat16) && vendor_->supports(problem);
  }
  bool only_by_name() const override { return split_; }
  std::size_t packed_bytes(GemmProblem const& problem) const override {
    return is_own(problem) ? sizeof(std::uint16_t) * static_cast<std::size_t>(packed_elements(problem))
                           : vendor_->packed_bytes(problem);
  }
  /// Its own copies; the vendor's implementation is registered, too, and counts its own.
  std::size_t kept_bytes() const override {
    return weights_.bytes([](Tensor const& packed) { return packed.bytes(); });
  }

  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    if (!is_own(problem)) {
      vendor_->multiply(execution, call);
      return;
    }
    if (problem.m == 0 || problem.n == 0) {
      return;
    }
    execution.space.fence();  // this code does not run in the order of the execution space
    ArenaScope const scope(execution.scratch);
    bool const weight = call.b_weight.id != 0;
    amx::Blocking const blocking = amx::blocking_of({problem.m, problem.n, problem.k}, weight, split_);
    auto const room = [&](DType dtype, std::int64_t elements) {
      return execution.scratch.allocate(dtype, Shape{elements}).raw();
    };
    auto const words = [&](std::int64_t elements) {
      return elements > 0 ? static_cast<std::uint16_t*>(room(DType::bfloat16, elements)) : nullptr;
    };
    std::int64_t const partial = blocking.partial_elements(problem.k);
    amx::multiply(
        blocking,
        {.a = {call.a.raw(), call.a.row_stride(), problem.m, problem.k, !call.transpose_a, split_, split_},
         .b = right_factor(call, problem),
         .packed = weight ? static_cast<std::uint16_t const*>(packed_weight(call, problem).raw()) : nullptr,
         .c = {call.c.raw(), call.c.row_stride(), problem.m, problem.n, problem.output_dtype == DType::float32,
               problem.accumulate, problem.bias ? call.bias.data<float>() : nullptr},
         .left = words(blocking.left_elements()),
         .right = words(blocking.right_elements()),
         .partial = partial > 0 ? static_cast<float*>(room(DType::float32, partial)) : nullptr});
  }

 private:
  /// Fewer columns than a panel has would be packed, and multiplied, with zeros. This code has one thread: where there
  /// are more, it computes few rows only.
  bool is_own(GemmProblem const& problem) const {
    constexpr std::int64_t few_rows = 640;
    bool const forward = problem.transpose_b && !problem.transpose_a && !problem.accumulate;
    bool const whole = !split_ || problem.b_dtype == DType::float32;
    return whole && problem.n >= amx::panel && problem.k > 0 && (one_thread_ || (forward && problem.m <= few_rows));
  }
  std::int64_t packed_elements(GemmProblem const& problem) const {
    return amx::parts(split_) * amx::packed_elements(problem.n, problem.k);
  }

  amx::Factor right_factor(GemmCall const& call, GemmProblem const& problem) const {
    bool const float32 = problem.b_dtype == DType::float32;
    return {call.b.raw(), call.b.row_stride(), problem.n, problem.k, call.transpose_b, float32, split_};
  }

  Tensor const& packed_weight(GemmCall const& call, GemmProblem const& problem) {
    auto const make = [&] { return Tensor::allocate_on_host(DType::bfloat16, {packed_elements(problem)}); };
    auto const fill = [&](Tensor const& packed) {
      amx::pack_columns(right_factor(call, problem), static_cast<std::uint16_t*>(packed.raw()));
    };
    return weights_.current(call, problem, make, fill);
  }

  bool split_;  ///< op(a) is float32
  std::shared_ptr<Gemm> vendor_;
  bool one_thread_ = compute_threads() == 1;
  PackedWeights<Tensor> weights_;
};

}  // namespace

void add_amx_gemm(KernelRegistry<Gemm>& registry, CpuLevel level) {
  GemmProblem const problem{.dtype = DType::bfloat16, .m = 1, .n = 1, .k = 1};
  if (level >= CpuLevel::v4_amx && request_matrix_registers()) {
    auto const vendor = registry.select("onednn", problem);
    registry.add("amx", speeds::own, std::make_shared<AmxGemm>(DType::bfloat16, vendor));
    registry.add("amx_3xbf16", speeds::own, std::make_shared<AmxGemm>(DType::float32, vendor));
  }
}

}  // namespace heddle
