#include "avx512_gemm_blocks.hpp"
#include "factories.hpp"
#include "gemm_types.hpp"
#include "packed_weights.hpp"

namespace heddle {

namespace {

/// Packed panels of both factors and tiles of c in registers (Goto, van de Geijn 2008), with AVX-512 and its bfloat16
/// instructions. The order in which an element's products are summed depends on k alone. Used by one thread at a time.
class Avx512Gemm final : public Gemm {
 public:
  bool supports(GemmProblem const& problem) const override {
    return parts::runs_on_one_host_thread() && parts::has_gemm_types(problem) && tiles_for(problem.dtype) != nullptr;
  }

  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    if (problem.m == 0 || problem.n == 0) {
      return;
    }
    // This runs on the calling thread; what was launched before must have ended.
    execution.space.fence();
    ArenaScope const scope(execution.scratch);
    auto const words = [&](std::int64_t count) {
      return reinterpret_cast<std::uint32_t*>(execution.scratch.allocate(DType::int32, Shape{count}).raw());
    };
    avx512::Tiles const& tiles = *tiles_for(problem.dtype);
    std::int64_t const steps = avx512::quotient_up(problem.k, tiles.elements_per_word);
    bool const weight = call.b_weight.id != 0;
    std::uint32_t* const right =
        weight ? packed_weight(call, problem, tiles, steps)
               : words(avx512::packed_right_words(problem.n, std::min(steps, avx512::block_steps)));
    bool const rounds_sums = problem.output_dtype == DType::bfloat16 && steps > avx512::block_steps;
    float* const partial = rounds_sums ? reinterpret_cast<float*>(words(problem.m * problem.n)) : nullptr;
    avx512::Product const product{call, problem, tiles, steps, right, words(avx512::packed_left_words), partial};
    weight ? avx512::multiply_by_weight(product) : avx512::multiply_once(product);
  }

 private:
  avx512::Tiles const* tiles_for(DType dtype) const {
    return dtype == DType::bfloat16 ? bfloat16_ : (dtype == DType::float32 ? float32_ : nullptr);
  }

  /// All of op(b).
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

  avx512::Tiles const* float32_ = avx512::float32_tiles();
  avx512::Tiles const* bfloat16_ = avx512::bfloat16_tiles();
  PackedWeights<Tensor> weights_;
};

}  // namespace

std::shared_ptr<Gemm> make_avx512_gemm() {
  return std::make_shared<Avx512Gemm>();
}

}  // namespace heddle
