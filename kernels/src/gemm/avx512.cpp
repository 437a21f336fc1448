#include "avx512_parts.hpp"
#include "packed_weights.hpp"
#include "support/factories.hpp"
#include "types.hpp"

namespace heddle {

namespace {

/// The inner loops for an element type, or null if `level` lacks their instructions.
avx512::Tiles const* tiles_for(DType dtype, CpuLevel level) {
  if (dtype == DType::float32 && level >= CpuLevel::v4) {
    return &avx512::float32_tiles;
  }
  if (dtype == DType::bfloat16 && level >= CpuLevel::v4_bf16) {
    return &avx512::bfloat16_tiles;
  }
  return nullptr;
}

/// Packed panels of both factors and tiles of c in registers (Goto, van de Geijn 2008), with AVX-512 and its bfloat16
/// instructions. The order in which an element's products are summed depends only on k, so that any number of threads
/// gives the same bits. Called by one thread at a time, computes with all threads of the execution space.
class Avx512Gemm final : public Gemm {
 public:
  explicit Avx512Gemm(CpuLevel level) : level_(level) {}

  bool supports(GemmProblem const& problem) const override {
    return kernels::has_gemm_types(problem) && tiles_for(problem.dtype, level_) != nullptr;
  }

  std::size_t packed_bytes(GemmProblem const& problem) const override {
    std::int64_t const steps = avx512::quotient_up(problem.k, tiles_for(problem.dtype, level_)->elements_per_word);
    return sizeof(std::uint32_t) * static_cast<std::size_t>(avx512::packed_right_words(problem.n, steps));
  }
  std::size_t kept_bytes() const override {
    return weights_.bytes([](Tensor const& packed) { return packed.bytes(); });
  }

  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    if (problem.m == 0 || problem.n == 0) {
      return;
    }
    // This code does not run in the order of the execution space, so earlier kernels must have finished.
    execution.space.fence();
    ArenaScope const scope(execution.scratch);
    avx512::Tiles const& tiles = *tiles_for(problem.dtype, level_);
    std::uint32_t* const packed = call.b_weight.id != 0 ? packed_weight(execution, call, problem, tiles) : nullptr;
    avx512::Parts const parts = avx512::parts_of(problem, execution.space.concurrency());
    if (parts.count() == 1) {
      avx512::multiply(avx512::product_in(execution.scratch, call, problem, tiles, packed));
    } else {
      avx512::multiply_parts(execution, call, tiles, parts, packed);
    }
  }

 private:
  /// All of op(b), packed.
  std::uint32_t* packed_weight(Execution& execution, GemmCall const& call, GemmProblem const& problem,
                               avx512::Tiles const& tiles) {
    auto const words = [](Tensor const& packed) { return reinterpret_cast<std::uint32_t*>(packed.raw()); };
    auto const make = [&] {
      std::int64_t const steps = avx512::quotient_up(problem.k, tiles.elements_per_word);
      return Tensor::allocate(DType::int32, Shape{avx512::packed_right_words(problem.n, steps)});
    };
    auto const fill = [&](Tensor const& packed) {
      avx512::pack_weight(execution, call, problem, tiles, words(packed));
    };
    return words(weights_.current(call, problem, make, fill));
  }

  CpuLevel level_;
  PackedWeights<Tensor> weights_;
};

}  // namespace

void add_avx512_gemm(KernelRegistry<Gemm>& registry, CpuLevel level) {
  if (level >= CpuLevel::v4) {
    // With matrix registers (AMX), which this code does not use, the vendor's implementation is faster.
    int const speed = level >= CpuLevel::v4_amx ? speeds::simd : speeds::own;
    registry.add("avx512", speed, std::make_shared<Avx512Gemm>(level));
  }
}

}  // namespace heddle
