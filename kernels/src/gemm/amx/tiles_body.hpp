#pragma once

#include <immintrin.h>

#include "tiles.hpp"

/// The products of a strip with a panel, for the files that are compiled for matrix registers. Everything is in an
/// unnamed namespace: the linker must not use this code in other files.
namespace heddle::amx {
namespace {

inline std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

/// `factor` from row (or column) `begin` on, and from element `k` on.
inline Factor part_of(Factor const& factor, std::int64_t begin, std::int64_t extent, std::int64_t k,
                      std::int64_t k_count) {
  std::int64_t const offset = factor.k_contiguous ? begin * factor.stride + k : k * factor.stride + begin;
  Factor part = factor;
  part.data = static_cast<char const*>(factor.data) + offset * (factor.float32 ? 4 : 2);
  part.extent = extent;
  part.k = k_count;
  return part;
}

inline Upcoming lines_of(Factor const& part) {
  std::int64_t const size = part.float32 ? 4 : 2;
  std::int64_t const rows = part.k_contiguous ? part.extent : part.k;
  std::int64_t const bytes = (part.k_contiguous ? part.k : part.extent) * size;
  return {static_cast<char const*>(part.data), part.stride * size, rows, ceil_div(bytes, 64)};
}

/// Reads the lines of a region into the second-level cache, or the first, a few at a time.
class RowsAhead {
 public:
  RowsAhead() = default;
  /// `uses`: calls of read() in which all lines are to be read.
  RowsAhead(Upcoming const& region, std::int64_t uses, bool near = false)
      : row_(region.data),
        stride_(region.stride),
        rows_left_(region.lines > 0 ? region.rows : 0),
        lines_(region.lines),
        at_once_(ceil_div(region.rows * region.lines, uses)),
        near_(near) {}

  void read() {
    for (std::int64_t left = at_once_; left > 0 && rows_left_ > 0;) {
      std::int64_t const count = smaller(left, lines_ - line_);
      for (std::int64_t i = 0; i < count; ++i) {
        char const* const line = row_ + (line_ + i) * 64;
        near_ ? _mm_prefetch(line, _MM_HINT_T0) : _mm_prefetch(line, _MM_HINT_T1);
      }
      left -= count;
      line_ += count;
      if (line_ == lines_) {
        line_ = 0;
        row_ += stride_;
        --rows_left_;
      }
    }
  }

 private:
  char const* row_ = nullptr;
  std::int64_t stride_ = 0, rows_left_ = 0, lines_ = 0, at_once_ = 0;
  std::int64_t line_ = 0;
  bool near_ = false;
};

/// Writes finished sums to c, a few rows at a time: between the operations of the next tiles, which take long enough
/// for it.
template <bool float32, bool accumulate>
class Writer {
 public:
  explicit Writer(Output const& output) : output_(output) {}

  /// The sums of a strip and a panel, which begin at (row, column) of c.
  void start(float const* sums, std::int64_t row, std::int64_t column) {
    sums_ = sums;
    left_ = smaller(panel, output_.rows - row);
    std::int64_t const columns = output_.columns - column;
    mask_ = columns >= panel ? ~0U : (1U << columns) - 1U;
    to_ = static_cast<char*>(output_.data) + (row * output_.stride + column) * size;
    __m512 const zero = _mm512_setzero_ps();
    bool const bias = output_.bias != nullptr;
    low_bias_ = bias ? _mm512_maskz_loadu_ps(low(mask_), output_.bias + column) : zero;
    high_bias_ = bias ? _mm512_maskz_loadu_ps(high(mask_), output_.bias + column + 16) : zero;
  }

  void write(std::int64_t rows) {
    // Members are copied to locals: the compiler has to assume that each store changes them.
    std::int64_t const count = smaller(rows, left_);
    std::int64_t const stride = output_.stride * size;
    float const* sums = sums_;
    char* to = to_;
    __m512 const low_bias = low_bias_;
    __m512 const high_bias = high_bias_;
    __mmask32 const mask = mask_;
    for (std::int64_t row = 0; row < count; ++row, sums += panel, to += stride) {
      __m512 const first = _mm512_add_ps(_mm512_load_ps(sums), low_bias);
      __m512 const second = _mm512_add_ps(_mm512_load_ps(sums + 16), high_bias);
      if constexpr (float32) {
        write_float32(reinterpret_cast<float*>(to), mask, first, second);
      } else {
        write_bfloat16(reinterpret_cast<std::uint16_t*>(to), mask, first, second);
      }
    }
    sums_ = sums;
    to_ = to;
    left_ -= count;
  }

  /// Names the place that start() will name later. Its lines are fetched early: in a training step no cache has them,
  /// and stores that wait for memory delay the loads of the next tiles.
  void expect(std::int64_t row, std::int64_t column) {
    expected_ = static_cast<char const*>(output_.data) + (row * output_.stride + column) * size;
    expected_rows_ = smaller(panel, output_.rows - row);
  }
  /// Fetches a few rows of that place: many at once would keep the tiles' loads waiting.
  void fetch(std::int64_t rows) {
    std::int64_t const count = smaller(rows, expected_rows_);
    char const* line = expected_;
    for (std::int64_t i = 0; i < count; ++i, line += output_.stride * size) {
      __builtin_prefetch(line, 1);
      if constexpr (float32) {
        __builtin_prefetch(line + 64, 1);
      }
    }
    expected_ = line;
    expected_rows_ -= count;
  }

 private:
  static constexpr std::int64_t size = float32 ? 4 : 2;

  static __mmask16 low(__mmask32 mask) { return static_cast<__mmask16>(mask); }
  static __mmask16 high(__mmask32 mask) { return static_cast<__mmask16>(mask >> 16U); }

  static void write_float32(float* to, __mmask32 mask, __m512 first, __m512 second) {
    if constexpr (accumulate) {
      first = _mm512_add_ps(first, _mm512_maskz_loadu_ps(low(mask), to));
      second = _mm512_add_ps(second, _mm512_maskz_loadu_ps(high(mask), to + 16));
    }
    _mm512_mask_storeu_ps(to, low(mask), first);
    _mm512_mask_storeu_ps(to + 16, high(mask), second);
  }

  static void write_bfloat16(std::uint16_t* to, __mmask32 mask, __m512 first, __m512 second) {
    if constexpr (accumulate) {
      __m512i const before = _mm512_maskz_loadu_epi16(mask, to);
      auto const widened = [](__m256i half) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
      };
      first = _mm512_add_ps(first, widened(_mm512_castsi512_si256(before)));
      second = _mm512_add_ps(second, widened(_mm512_extracti64x4_epi64(before, 1)));
    }
    _mm512_mask_storeu_epi16(to, mask, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
  }

  Output const& output_;
  float const* sums_ = nullptr;
  char* to_ = nullptr;
  std::int64_t left_ = 0;
  char const* expected_ = nullptr;
  std::int64_t expected_rows_ = 0;
  __mmask32 mask_ = 0;
  __m512 low_bias_ = _mm512_setzero_ps();
  __m512 high_bias_ = _mm512_setzero_ps();
};

inline constexpr std::int64_t row_bytes = panel * 4;

template <bool second>
void begin_sums(float const* before) {
  if (before == nullptr) {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (second) {
      _tile_zero(2);
      _tile_zero(3);
    }
    return;
  }
  _tile_loadd(0, before, row_bytes);
  _tile_loadd(1, before + tile_rows, row_bytes);
  if constexpr (second) {
    _tile_loadd(2, before + tile_rows * panel, row_bytes);
    _tile_loadd(3, before + tile_rows * panel + tile_rows, row_bytes);
  }
}

template <bool second>
void store_sums(float* sums) {
  _tile_stored(0, sums, row_bytes);
  _tile_stored(1, sums + tile_rows, row_bytes);
  if constexpr (second) {
    _tile_stored(2, sums + tile_rows * panel, row_bytes);
    _tile_stored(3, sums + tile_rows * panel + tile_rows, row_bytes);
  }
}

/// Where sums are before a block's products, null for zeros, and after them.
struct Sums {
  float const* before;
  float* after;
};

/// Stream loads leave the first-level cache to the strip of op(a), which the next panels need again.
inline void load_right(std::uint16_t const* right) {
  _tile_stream_loadd(6, right, 64);
  _tile_stream_loadd(7, right + step_elements / 2, 64);
}

/// Adds the products of a step of rows with the columns that load_right() has loaded.
template <bool second>
void add_products(Left const& rows, std::uint16_t const* left) {
  _tile_loadd(4, left, rows.row * 2);
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  if constexpr (second) {
    _tile_loadd(5, left + rows.below, rows.row * 2);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

/// sums.after = sums.before + the products of a strip with a panel. `second`: the strip has more than a tile's rows.
template <bool second, bool split, class Writer, class Ahead>
void multiply_tiles(Left const& rows, std::int64_t steps, std::uint16_t const* right, Sums sums, Writer& writer,
                    Ahead& ahead) {
  std::int64_t const rows_at_once = ceil_div(panel, steps);
  std::uint16_t const* left = rows.data;
  begin_sums<second>(sums.before);
  for (std::int64_t s = 0; s < steps; ++s) {
    load_right(right);
    add_products<second>(rows, left);
    if constexpr (split) {
      add_products<second>(rows, left + rows.step);
      load_right(right + step_elements);
      add_products<second>(rows, left);
    }
    writer.write(rows_at_once);
    writer.fetch(rows_at_once);
    ahead.read();
    left += rows.step * parts(split);
    right += step_elements * parts(split);
  }
  store_sums<second>(sums.after);
}

/// Computes `given`, a Product or a Block, with Blocks<float32, accumulate, split>.
template <template <bool, bool, bool> class Blocks, class Given>
void multiply_with(Given const& given, Output const& c, bool split) {
  auto const multiply = [&]<bool float32, bool of_split>() {
    c.accumulate ? Blocks<float32, true, of_split>(given).multiply()
                 : Blocks<float32, false, of_split>(given).multiply();
  };
  if (split) {
    multiply.template operator()<true, true>();  // the output of split factors is float32
  } else {
    c.float32 ? multiply.template operator()<true, false>() : multiply.template operator()<false, false>();
  }
}

}  // namespace
}  // namespace heddle::amx
