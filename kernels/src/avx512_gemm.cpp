#include <algorithm>

#include "avx512_gemm_tiles.hpp"
#include "factories.hpp"
#include "gemm_types.hpp"
#include "lru_cache.hpp"

namespace heddle {

namespace {

using avx512::Tiles;

/// Rows of a that are packed at once: some 290 KiB, which stay in the L2 cache while b passes by.
constexpr std::int64_t block_rows = 19 * avx512::tile_rows;
constexpr std::int64_t packed_left_words =
    std::max(block_rows * avx512::left_row_stride,
             block_rows / avx512::tile_rows * avx512::left_panel_stride(avx512::block_steps));
constexpr std::int64_t cache_line = 64;
constexpr std::size_t most_packed_weights = 1024;

std::int64_t quotient_up(std::int64_t count, std::int64_t divisor) {
  return (count + divisor - 1) / divisor;
}

std::int64_t packed_right_words(std::int64_t n, std::int64_t steps) {
  return quotient_up(n, avx512::tile_columns) * avx512::right_panel_stride(steps);
}

/// Whose packed copy it is. A view of some of a parameter's rows has its own.
struct WeightKey {
  std::uint64_t id;
  void const* data;
  std::int64_t n, k, stride;
  bool transposed;
  DType dtype, b_dtype;

  auto operator<=>(WeightKey const&) const = default;
};

struct PackedWeight {
  std::uint64_t version = 0;
  bool filled = false;
  Tensor words;
};

/// One call: what all its blocks have in common.
struct Product {
  GemmCall const& call;
  GemmProblem const problem;
  Tiles const& tiles;
  std::int64_t steps;    ///< the words of a row
  std::uint32_t* right;  ///< packed b, or, where it is no weight, one block of k of it
  std::uint32_t* left;   ///< one packed block of a
  float* partial;        ///< [m, n], where c can not hold sums that are not complete; or null
};

/// A block of k.
struct Steps {
  std::int64_t begin, count;  ///< in words
  std::int64_t k_begin, k_count;
  bool first, last;
};

Steps steps_from(Product const& product, std::int64_t begin) {
  std::int64_t const width = product.tiles.elements_per_word;
  std::int64_t const count = std::min(avx512::block_steps, product.steps - begin);
  return {begin,         count,
          begin * width, std::min(count * width, product.problem.k - begin * width),
          begin == 0,    begin + count == product.steps};
}

/// Elements from (row, column) on.
void* address(Tensor const& tensor, std::int64_t row, std::int64_t column) {
  return static_cast<std::byte*>(tensor.raw()) +
         (row * tensor.row_stride() + column) * static_cast<std::int64_t>(size_of(tensor.dtype()));
}

/// Columns of op(b), elements [k_begin, k_begin + k_count) of each.
avx512::Factor right_factor(GemmCall const& call, GemmProblem const& problem, std::int64_t k_begin,
                            std::int64_t k_count) {
  return {problem.transpose_b ? address(call.b, 0, k_begin) : address(call.b, k_begin, 0),
          call.b.row_stride(),
          problem.n,
          k_count,
          problem.transpose_b,
          problem.b_dtype == DType::float32};
}

/// Where a block's sums go, from row `row` of c on: c, or `partial` as long as blocks of k are still to come.
avx512::Destination destination(Product const& product, std::int64_t row, Steps const& steps) {
  GemmProblem const& problem = product.problem;
  float* const partial = product.partial != nullptr ? product.partial + row * problem.n : nullptr;
  if (partial != nullptr && !steps.last) {
    return {partial, problem.n, false, !steps.first, nullptr, nullptr, 0};
  }
  bool const in_place = partial == nullptr;
  return {address(product.call.c, row, 0),
          product.call.c.row_stride(),
          problem.output_dtype == DType::bfloat16,
          problem.accumulate || (in_place && !steps.first),
          problem.bias && (steps.first || !in_place) ? product.call.bias.data<float>() : nullptr,
          partial,
          problem.n};
}

/// The destination `rows` rows and `columns` columns further on.
avx512::Destination moved(avx512::Destination to, std::int64_t rows, std::int64_t columns) {
  std::int64_t const size = to.bfloat16 ? 2 : 4;
  to.data = static_cast<std::byte*>(to.data) + (rows * to.stride + columns) * size;
  to.bias += to.bias != nullptr ? columns : 0;
  to.partial += to.partial != nullptr ? rows * to.partial_stride + columns : 0;
  return to;
}

/// A block of a as the tiles read it.
struct Left {
  std::byte const* data;
  std::int64_t row_bytes;    ///< 0 where it is in panels
  std::int64_t panel_bytes;  ///< panel_rows rows further on
  int panel_rows;            ///< what a tile takes
};

/// Rows of a are read where they lie if k is contiguous, unless a word would reach beyond the row or their distance
/// makes them share a few sets of the L1 cache.
Left left_block(Product const& product, std::int64_t row, std::int64_t rows, Steps const& steps) {
  // As even as can be: a tile of one or two rows would wait for its own sums.
  auto const panel_rows = static_cast<int>(quotient_up(rows, quotient_up(rows, avx512::tile_rows)));
  Tensor const& a = product.call.a;
  bool const transposed = product.problem.transpose_a;
  void* const data = transposed ? address(a, steps.k_begin, row) : address(a, row, steps.k_begin);
  std::int64_t const row_bytes = a.row_stride() * static_cast<std::int64_t>(size_of(a.dtype()));
  constexpr std::int64_t conflicting_bytes = 2048;
  bool const whole_words = steps.k_count == steps.count * product.tiles.elements_per_word;
  if (!transposed && whole_words && row_bytes % conflicting_bytes != 0) {
    return {static_cast<std::byte const*>(data), row_bytes, panel_rows * row_bytes, panel_rows};
  }
  product.tiles.pack_left({data, a.row_stride(), rows, steps.k_count, !transposed, a.dtype() == DType::float32},
                          panel_rows, product.left);
  auto const* const packed = reinterpret_cast<std::byte const*>(product.left);
  if (transposed) {
    return {packed, 0, avx512::left_panel_stride(steps.count) * 4, panel_rows};
  }
  return {packed, avx512::left_row_stride * 4, panel_rows * avx512::left_row_stride * 4, panel_rows};
}

/// A block of a matrix as stored that will be packed next. Tiles fetch it into the L2 cache while they multiply, a
/// strip each: a cache line of every row or, since a step takes two rows of bfloat16, of every other row.
struct Upcoming {
  std::byte const* data = nullptr;
  std::int64_t row_bytes = 0;
  std::int64_t strips = 0;
};

Upcoming upcoming(Tensor const& matrix, std::int64_t row, std::int64_t column, std::int64_t columns) {
  auto const size = static_cast<std::int64_t>(size_of(matrix.dtype()));
  std::int64_t const lines = quotient_up(columns * size, cache_line);
  return {static_cast<std::byte const*>(address(matrix, row, column)), matrix.row_stride() * size,
          size == 2 ? 2 * lines : lines};
}

/// Which strip the next tile fetches; none after the last.
class Ahead {
 public:
  Ahead(Tiles const& tiles, Upcoming const& left, Upcoming const& right)
      : rows_(tiles.elements_per_word), blocks_{left, right} {}

  void next_strip(avx512::Tile& tile) {
    for (Upcoming& block : blocks_) {
      if (block.strips > 0) {
        --block.strips;
        tile.ahead = block.data + block.strips / rows_ * cache_line + block.strips % rows_ * block.row_bytes;
        tile.ahead_bytes = rows_ * block.row_bytes;
        return;
      }
    }
    tile.ahead = tile.right;
    tile.ahead_bytes = 0;
  }

 private:
  std::int64_t rows_;
  Upcoming blocks_[2];
};

/// Rows [row, row + rows) of c from a block of k, whose first panel of packed b is `right`.
void multiply_block(Product const& product, std::int64_t row, std::int64_t rows, Steps const& steps,
                    std::uint32_t const* right, std::int64_t right_stride, Ahead ahead) {
  Left const left = left_block(product, row, rows, steps);
  avx512::Destination const to = destination(product, row, steps);
  for (std::int64_t column = 0; column < product.problem.n; column += avx512::tile_columns, right += right_stride) {
    std::byte const* panel = left.data;
    auto const columns = static_cast<int>(std::min<std::int64_t>(avx512::tile_columns, product.problem.n - column));
    for (std::int64_t i = 0; i < rows; i += left.panel_rows, panel += left.panel_bytes) {
      auto const tile_rows = static_cast<int>(std::min<std::int64_t>(left.panel_rows, rows - i));
      avx512::Tile tile{panel,   left.row_bytes, right, steps.count,         tile_rows,
                        columns, nullptr,        0,     moved(to, i, column)};
      ahead.next_strip(tile);
      product.tiles.multiply(tile);
    }
  }
}

// Without a reduction dimension (k = 0) there is still one block of it, for the bias.

/// b is packed: blocks of rows, and for each the blocks of k.
void multiply_by_weight(Product const& product) {
  std::int64_t const right_stride = avx512::right_panel_stride(product.steps);
  for (std::int64_t row = 0; row < product.problem.m; row += block_rows) {
    Steps steps{};
    do {
      steps = steps_from(product, steps.begin + steps.count);
      multiply_block(product, row, std::min(block_rows, product.problem.m - row), steps,
                     product.right + steps.begin * avx512::tile_columns, right_stride, Ahead(product.tiles, {}, {}));
    } while (!steps.last);
  }
}

/// b is packed here: blocks of k, and for each the blocks of rows, so that packed b is read while it is in the cache.
void multiply_once(Product const& product) {
  GemmCall const& call = product.call;
  std::int64_t const m = product.problem.m;
  Steps steps{};
  do {
    steps = steps_from(product, steps.begin + steps.count);
    product.tiles.pack_right(right_factor(call, product.problem, steps.k_begin, steps.k_count), product.right);
    for (std::int64_t row = 0; row < m; row += block_rows) {
      bool const last_rows = row + block_rows >= m;
      std::int64_t const next_row = last_rows ? 0 : row + block_rows;
      std::int64_t const next_k = last_rows ? steps.k_begin + steps.k_count : steps.k_begin;
      Upcoming left;
      Upcoming right;
      if (product.problem.transpose_a && next_k < product.problem.k) {
        left = upcoming(call.a, next_k, next_row, std::min(block_rows, m - next_row));
      }
      if (!product.problem.transpose_b && last_rows && !steps.last) {
        right = upcoming(call.b, next_k, 0, product.problem.n);
      }
      multiply_block(product, row, std::min(block_rows, m - row), steps, product.right,
                     avx512::right_panel_stride(steps.count), Ahead(product.tiles, left, right));
    }
  } while (!steps.last);
}

/// Packed panels of both factors and tiles of c in registers (Goto, van de Geijn 2008), with AVX-512 and its bfloat16
/// instructions. The order in which an element's products are summed depends on k alone. Used by one thread at a time.
class Avx512Gemm final : public Gemm {
 public:
  bool supports(GemmProblem const& problem) const override {
    using Space = Kokkos::DefaultExecutionSpace::memory_space;
    return Kokkos::SpaceAccessibility<Kokkos::HostSpace, Space>::accessible && parts::has_gemm_types(problem) &&
           tiles_for(problem.dtype) != nullptr;
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
    Tiles const& tiles = *tiles_for(problem.dtype);
    std::int64_t const steps = quotient_up(problem.k, tiles.elements_per_word);
    bool const weight = call.b_weight.id != 0;
    std::uint32_t* const right = weight ? packed_weight(call, problem, tiles, steps)
                                        : words(packed_right_words(problem.n, std::min(steps, avx512::block_steps)));
    bool const rounds_sums = problem.output_dtype == DType::bfloat16 && steps > avx512::block_steps;
    float* const partial = rounds_sums ? reinterpret_cast<float*>(words(problem.m * problem.n)) : nullptr;
    Product const product{call, problem, tiles, steps, right, words(packed_left_words), partial};
    weight ? multiply_by_weight(product) : multiply_once(product);
  }

 private:
  Tiles const* tiles_for(DType dtype) const {
    return dtype == DType::bfloat16 ? bfloat16_ : (dtype == DType::float32 ? float32_ : nullptr);
  }

  /// All of op(b), packed anew where the version is another one.
  std::uint32_t* packed_weight(GemmCall const& call, GemmProblem const& problem, Tiles const& tiles,
                               std::int64_t steps) {
    WeightKey const key{call.b_weight.id,    call.b.raw(),        problem.n,     problem.k,
                        call.b.row_stride(), problem.transpose_b, problem.dtype, problem.b_dtype};
    PackedWeight& weight = weights_.find_or_make(key, [&] {
      return PackedWeight{0, false, Tensor::allocate(DType::int32, Shape{packed_right_words(problem.n, steps)})};
    });
    auto* const packed = reinterpret_cast<std::uint32_t*>(weight.words.raw());
    if (!weight.filled || weight.version != call.b_weight.version) {
      tiles.pack_right(right_factor(call, problem, 0, problem.k), packed);
      weight.version = call.b_weight.version;
      weight.filled = true;
    }
    return packed;
  }

  Tiles const* float32_ = avx512::float32_tiles();
  Tiles const* bfloat16_ = avx512::bfloat16_tiles();
  LruCache<WeightKey, PackedWeight> weights_{most_packed_weights};
};

}  // namespace

std::shared_ptr<Gemm> make_avx512_gemm() {
  return std::make_shared<Avx512Gemm>();
}

}  // namespace heddle
