#include <heddle/core/base/index_range.hpp>
#include <vector>

#include "avx512_blocks.hpp"
#include "packed_weights.hpp"
#include "support/factories.hpp"
#include "support/shares.hpp"
#include "types.hpp"

// How threads share a product of the avx512 GEMM, and its implementation.

namespace heddle::avx512 {

namespace {

/// The parts into which c is cut. A thread computes each as a product of its own, with its own room for packed blocks.
/// Each element's products are summed in the same order in any part that has it: results do not depend on the parts.
struct Parts {
  std::int64_t of_rows = 1, of_columns = 1;

  std::int64_t count() const { return of_rows * of_columns; }
};

/// A thread's share is at least this many multiplications, or elements to pack: a few times as long as it takes to
/// start and to wait for the threads.
constexpr std::int64_t min_multiplications = 1 << 18;
constexpr std::int64_t min_packed = 1 << 14;

/// The columns of op(b) from `begin` on.
Factor columns_of(Factor factor, std::int64_t begin, std::int64_t count) {
  std::int64_t const size = factor.float32 ? 4 : 2;
  factor.data = static_cast<std::byte const*>(factor.data) + begin * (factor.k_contiguous ? factor.stride : 1) * size;
  factor.extent = count;
  return factor;
}

/// A part of c and the rows and columns of the factors that it needs.
GemmCall part_of(GemmCall const& call, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
  GemmCall part = call;
  part.a = call.transpose_a ? call.a.columns(row, rows) : call.a.rows(row, rows);
  part.b = call.transpose_b ? call.b.rows(column, columns) : call.b.columns(column, columns);
  part.c = call.c.rows(row, rows).columns(column, columns);
  if (!call.bias.empty()) {
    part.bias = call.bias.rows(column, columns);
  }
  return part;
}

/// At most `threads` parts, and only one if the product is too small to share.
Parts parts_of(GemmProblem const& problem, std::int64_t threads) {
  if (threads == 1) {
    return {};
  }
  std::int64_t const max = kernels::shares(problem.m * problem.n * problem.k, min_multiplications, threads);
  std::int64_t const panels = quotient_up(problem.n, tile_columns);
  std::int64_t const max_of_rows = std::min(max, quotient_up(problem.m, tile_rows));
  Parts best;
  std::int64_t min_time = 0;
  for (std::int64_t of_rows = 1; of_rows <= max_of_rows; ++of_rows) {
    Parts const parts{of_rows, std::min(max / of_rows, panels)};
    std::int64_t const rows = quotient_up(problem.m, of_rows);
    std::int64_t const columns = quotient_up(panels, parts.of_columns);
    // The time of the products, and of reading or packing the rows of a and the panels of b, in quarters of a tile's
    // row.
    std::int64_t const time = 4 * rows * columns + rows + 16 * columns;
    if (of_rows == 1 || time < min_time) {
      best = parts;
      min_time = time;
    }
  }
  return best;
}

/// A product whose blocks are packed into `scratch`; `packed` is all of b, packed, or null.
Product product_in(Arena& scratch, GemmCall const& call, GemmProblem const& problem, Tiles const& tiles,
                   std::uint32_t* packed) {
  auto const words = [&](std::int64_t count) {
    return reinterpret_cast<std::uint32_t*>(scratch.allocate(DType::int32, Shape{count}).raw());
  };
  std::int64_t const steps = quotient_up(problem.k, tiles.elements_per_word);
  bool const weight = packed != nullptr;
  bool const rounds_sums = problem.output_dtype == DType::bfloat16 && steps > block_steps;
  std::int64_t const max_rows = weight ? std::min(block_rows, problem.m) : problem.m;
  std::int64_t const rows = rounds_sums ? std::min(max_rows, partial_rows(problem.n)) : max_rows;
  std::uint32_t* const right = weight ? packed : words(packed_right_words(problem.n, std::min(steps, block_steps)));
  float* const partial = rounds_sums ? reinterpret_cast<float*>(words(rows * problem.n)) : nullptr;
  return {call, problem, tiles, steps, right, weight, words(packed_left_words), rows, partial};
}

/// Computes a product in parts, one thread each.
void multiply_parts(Execution& execution, GemmCall const& call, Tiles const& tiles, Parts const& parts,
                    std::uint32_t* packed) {
  GemmProblem const whole = call.problem();
  std::int64_t const panels = quotient_up(whole.n, tile_columns);
  std::int64_t const panel_words = right_panel_stride(quotient_up(whole.k, tiles.elements_per_word));
  auto const count = static_cast<std::size_t>(parts.count());
  std::vector<GemmCall> calls(count);  // products refer to these and to the problems
  std::vector<GemmProblem> problems(count);
  std::vector<Product> products;
  products.reserve(count);
  for (std::size_t part = 0; part < count; ++part) {
    std::int64_t const i = static_cast<std::int64_t>(part) / parts.of_columns;
    std::int64_t const j = static_cast<std::int64_t>(part) % parts.of_columns;
    IndexRange const rows = share(whole.m, i, parts.of_rows);
    IndexRange const own = share(panels, j, parts.of_columns);
    std::int64_t const column = own.begin * tile_columns;
    std::int64_t const column_end = std::min(whole.n, tile_columns * own.end);
    calls[part] = part_of(call, rows.begin, rows.count(), column, column_end - column);
    problems[part] = calls[part].problem();
    products.push_back(product_in(execution.scratch, calls[part], problems[part], tiles,
                                  packed != nullptr ? packed + own.begin * panel_words : nullptr));
  }
  Product const* const of_threads = products.data();
  kernels::for_each(execution, "avx512 gemm", parts.count(), [=](std::int64_t part) { multiply(of_threads[part]); });
  execution.space.fence();
}

/// Packs all of op(b) with all threads.
void pack_weight(Execution& execution, GemmCall const& call, GemmProblem const& problem, Tiles const& tiles,
                 std::uint32_t* packed) {
  Factor const whole = right_factor(call, problem, 0, problem.k);
  std::int64_t const panels = quotient_up(problem.n, tile_columns);
  std::int64_t const panel_words = right_panel_stride(quotient_up(problem.k, tiles.elements_per_word));
  std::int64_t const threads = execution.space.concurrency();
  std::int64_t const parts = std::min(panels, kernels::shares(problem.n * problem.k, min_packed, threads));
  if (parts == 1) {
    tiles.pack_right(whole, packed);
    return;
  }
  auto const pack = tiles.pack_right;
  kernels::for_each(execution, "avx512 gemm weight", parts, [=](std::int64_t part) {
    IndexRange const own = share(panels, part, parts);
    std::int64_t const begin = own.begin * tile_columns;
    std::int64_t const end = std::min(whole.extent, tile_columns * own.end);
    pack(columns_of(whole, begin, end - begin), packed + own.begin * panel_words);
  });
  execution.space.fence();
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
