#include <vector>

#include "blocks.hpp"
#include "gemm/packed_weights.hpp"
#include "gemm/parts.hpp"
#include "gemm/types.hpp"
#include "support/factories.hpp"

// How threads share a product of the avx512 GEMM, and its implementation.

namespace heddle::avx512 {

namespace {

/// 14 rows and 32 columns; times in those of a row's products with a panel.
constexpr kernels::GemmTiles gemm_tiles{
    .rows = tile_rows, .columns = tile_columns, .row_time = 0.25, .panel_time = 4, .min_multiplications = 1 << 18};

/// A product whose blocks are packed into `scratch`; `packed` is all of b, packed, or null.
Product product_in(Arena& scratch, GemmCall const& call, GemmProblem const& problem, Tiles const& tiles,
                   std::uint32_t* packed) {
  auto const words = [&](std::int64_t count) {
    return reinterpret_cast<std::uint32_t*>(scratch.allocate(DType::int32, Shape{count}).raw());
  };
  std::int64_t const steps = ceil_div(problem.k, tiles.elements_per_word);
  bool const weight = packed != nullptr;
  bool const rounds_sums = problem.output_dtype == DType::bfloat16 && steps > block_steps;
  std::int64_t const max_rows = weight ? std::min(block_rows, problem.m) : problem.m;
  std::int64_t const rows = rounds_sums ? std::min(max_rows, partial_rows(problem.n)) : max_rows;
  std::uint32_t* const right = weight ? packed : words(packed_right_words(problem.n, std::min(steps, block_steps)));
  float* const partial = rounds_sums ? reinterpret_cast<float*>(words(rows * problem.n)) : nullptr;
  return {call, problem, tiles, steps, right, weight, words(packed_left_words), rows, partial};
}

/// Computes a product in parts, one thread each.
void multiply_in_parts(Execution& execution, GemmCall const& call, Tiles const& tiles, kernels::GemmBlocks const& parts,
                       std::uint32_t* packed) {
  std::int64_t const steps = ceil_div(call.problem().k, tiles.elements_per_word);
  auto const count = static_cast<std::size_t>(parts.count());
  std::vector<kernels::GemmBlock> own(count);  // products refer to these and to the problems
  std::vector<GemmProblem> problems(count);
  std::vector<Product> products;
  products.reserve(count);
  for (std::size_t part = 0; part < count; ++part) {
    own[part] = kernels::gemm_block(call, gemm_tiles, parts, static_cast<std::int64_t>(part));
    problems[part] = own[part].call.problem();
    products.push_back(
        product_in(execution.scratch, own[part].call, problems[part], tiles,
                   packed != nullptr ? packed + own[part].first_panel * right_panel_stride(steps) : nullptr));
  }
  kernels::multiply_parts(execution, "avx512 gemm", products);
}

}  // namespace

}  // namespace heddle::avx512

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
    std::int64_t const steps = avx512::ceil_div(problem.k, tiles_for(problem.dtype, level_)->elements_per_word);
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
    kernels::GemmBlocks const parts =
        kernels::gemm_blocks_of(problem, avx512::gemm_tiles, execution.space.concurrency());
    if (parts.count() == 1) {
      avx512::multiply(avx512::product_in(execution.scratch, call, problem, tiles, packed));
    } else {
      avx512::multiply_in_parts(execution, call, tiles, parts, packed);
    }
  }

 private:
  /// All of op(b), packed.
  std::uint32_t* packed_weight(Execution& execution, GemmCall const& call, GemmProblem const& problem,
                               avx512::Tiles const& tiles) {
    auto const words = [](Tensor const& packed) { return reinterpret_cast<std::uint32_t*>(packed.raw()); };
    std::int64_t const steps = avx512::ceil_div(problem.k, tiles.elements_per_word);
    auto const make = [&] {
      return Tensor::allocate(DType::int32, Shape{avx512::packed_right_words(problem.n, steps)});
    };
    auto const fill = [&](Tensor const& packed) {
      kernels::Panels<std::uint32_t> const panels{words(packed), avx512::right_panel_stride(steps),
                                                  avx512::tile_columns};
      kernels::pack_panels(execution, "avx512 gemm weight", avx512::right_factor(call, problem, 0, problem.k), panels,
                           tiles.pack_right);
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
    int const speed = level >= CpuLevel::v4_amx ? priorities::simd : priorities::own;
    registry.add("avx512", speed, std::make_shared<Avx512Gemm>(level));
  }
}

}  // namespace heddle
