#include "avx512_blocks.hpp"
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
/// instructions. The order in which an element's products are summed depends on k alone. Used by one thread at a time.
class Avx512Gemm final : public Gemm {
 public:
  explicit Avx512Gemm(CpuLevel level) : level_(level) {}

  bool supports(GemmProblem const& problem) const override {
    return kernels::runs_on_one_host_thread() && kernels::is_plain_gemm(problem) &&
           tiles_for(problem.dtype, level_) != nullptr;
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
    // This code runs on the calling thread, so earlier kernels must have finished.
    execution.space.fence();
    ArenaScope const scope(execution.scratch);
    auto const words = [&](std::int64_t count) {
      return reinterpret_cast<std::uint32_t*>(execution.scratch.allocate(DType::int32, Shape{count}).raw());
    };
    avx512::Tiles const& tiles = *tiles_for(problem.dtype, level_);
    std::int64_t const steps = avx512::quotient_up(problem.k, tiles.elements_per_word);
    bool const weight = call.b_weight.id != 0;
    bool const rounds_sums = problem.output_dtype == DType::bfloat16 && steps > avx512::block_steps;
    std::int64_t const most_rows = weight ? std::min(avx512::block_rows, problem.m) : problem.m;
    std::int64_t const rows = rounds_sums ? std::min(most_rows, avx512::partial_rows(problem.n)) : most_rows;
    std::uint32_t* const right =
        weight ? packed_weight(call, problem, tiles, steps)
               : words(avx512::packed_right_words(problem.n, std::min(steps, avx512::block_steps)));
    float* const partial = rounds_sums ? reinterpret_cast<float*>(words(rows * problem.n)) : nullptr;
    avx512::multiply({call, problem, tiles, steps, right, weight, words(avx512::packed_left_words), rows, partial});
  }

 private:
  /// Packs all of op(b).
  std::uint32_t* packed_weight(GemmCall const& call, GemmProblem const& problem, avx512::Tiles const& tiles,
                               std::int64_t steps) {
    auto const words = [](Tensor const& packed) { return reinterpret_cast<std::uint32_t*>(packed.raw()); };
    auto const make = [&] {
      return Tensor::allocate(DType::int32, Shape{avx512::packed_right_words(problem.n, steps)});
    };
    auto const fill = [&](Tensor const& packed) {
      tiles.pack_right(avx512::right_factor(call, problem, 0, problem.k), words(packed));
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
