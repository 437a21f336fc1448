#include "avx512_amx_tiles.hpp"

#include <immintrin.h>

#include "support/tile_configuration.hpp"

namespace heddle::amx {

namespace {

/// The cache lines of a step of a panel.
constexpr std::int64_t step_lines = step_elements * 2 / 64;

/// Reads the lines of a region ahead, a few at a time.
class RowsAhead {
 public:
  /// `uses`: calls of read() in which all lines are to be read.
  RowsAhead(Upcoming const& region, std::int64_t uses)
      : row_(region.data),
        stride_(region.stride),
        rows_left_(region.lines > 0 ? region.rows : 0),
        lines_(region.lines),
        at_once_(quotient_up(region.rows * region.lines, uses)) {}

  void read() {
    for (std::int64_t left = at_once_; left > 0 && rows_left_ > 0;) {
      std::int64_t const count = left < lines_ - line_ ? left : lines_ - line_;
      for (std::int64_t i = 0; i < count; ++i) {
        _mm_prefetch(row_ + (line_ + i) * 64, _MM_HINT_T1);
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
  char const* row_;
  std::int64_t stride_, rows_left_, lines_, at_once_;
  std::int64_t line_ = 0;
};

/// Reads a panel ahead, which is one piece of memory.
class PanelAhead {
 public:
  PanelAhead(void const* panel, std::int64_t steps, std::int64_t uses)
      : next_(static_cast<char const*>(panel)), at_once_(quotient_up(steps * step_lines, uses)) {}

  void read() {
    for (std::int64_t i = 0; i < at_once_; ++i, next_ += 64) {
      _mm_prefetch(next_, _MM_HINT_T1);
    }
  }

 private:
  char const* next_;
  std::int64_t at_once_;
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
    std::int64_t const rows = output_.rows - row;
    left_ = rows < panel ? rows : panel;
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
    std::int64_t const count = rows < left_ ? rows : left_;
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

  /// Has the lines of c brought to the first-level cache that start() will name later.
  void read_ahead(std::int64_t row, std::int64_t column) const {
    char const* line = static_cast<char const*>(output_.data) + (row * output_.stride + column) * size;
    for (std::int64_t i = row; i < row + panel && i < output_.rows; ++i, line += output_.stride * size) {
      __builtin_prefetch(line, 1);
      if constexpr (float32) {
        __builtin_prefetch(line + 64, 1);
      }
    }
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
  __mmask32 mask_ = 0;
  __m512 low_bias_ = _mm512_setzero_ps();
  __m512 high_bias_ = _mm512_setzero_ps();
};

constexpr std::int64_t row_bytes = panel * 4;

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

inline void load_right(std::uint16_t const* right) {
  _tile_loadd(6, right, 64);
  _tile_loadd(7, right + step_elements / 2, 64);
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
void multiply_tiles(Block const& block, std::uint16_t const* left, std::uint16_t const* right, Sums sums,
                    Writer& writer, Ahead& ahead) {
  std::int64_t const rows_at_once = quotient_up(panel, block.steps);
  begin_sums<second>(sums.before);
  for (std::int64_t s = 0; s < block.steps; ++s) {
    load_right(right);
    add_products<second>(block.left, left);
    if constexpr (split) {
      add_products<second>(block.left, left + block.left.step);
      load_right(right + step_elements);
      add_products<second>(block.left, left);
    }
    writer.write(rows_at_once);
    ahead.read();
    left += block.left.step * parts(split);
    right += step_elements * parts(split);
  }
  store_sums<second>(sums.after);
}

/// All products of one block, in the order of by_panels.
template <bool float32, bool accumulate, bool split>
class Blocks {
 public:
  explicit Blocks(Block const& block) : block_(block), writer_(block.output) {}

  void multiply() {
    if (block_.by_panels) {
      for (std::int64_t column = 0; column < panels_; ++column) {
        PanelAhead ahead(block_.right + (column + 1) * block_.right_panel, block_.steps * parts(split),
                         strips_ * block_.steps);
        for (std::int64_t strip = 0; strip < strips_; ++strip) {
          multiply(strip, column, ahead);
        }
      }
    } else {
      RowsAhead ahead(block_.upcoming, strips_ * panels_ * block_.steps);
      for (std::int64_t strip = 0; strip < strips_; ++strip) {
        for (std::int64_t column = 0; column < panels_; ++column) {
          multiply(strip, column, ahead);
        }
      }
    }
    writer_.write(panel);
  }

 private:
  template <class Ahead>
  void multiply(std::int64_t strip, std::int64_t column, Ahead& ahead) {
    float* const partial =
        block_.partial != nullptr ? block_.partial + (strip * panels_ + column) * sums_elements : nullptr;
    float* const sums = block_.last ? rooms_[room_] : partial;
    float const* const before = block_.first ? nullptr : partial;
    std::uint16_t const* const left = block_.left.data + strip * block_.left.strip;
    std::uint16_t const* const right = block_.right + column * block_.right_panel;
    // The lines of c are fetched early: in a training step no cache has them, and stores that wait for memory delay the
    // loads of the next tiles.
    if (block_.last) {
      writer_.read_ahead(strip * panel, column * panel);
    }
    if (block_.output.rows - strip * panel > tile_rows) {
      multiply_tiles<true, split>(block_, left, right, {before, sums}, writer_, ahead);
    } else {
      multiply_tiles<false, split>(block_, left, right, {before, sums}, writer_, ahead);
    }
    if (block_.last) {
      writer_.start(sums, strip * panel, column * panel);
      room_ ^= 1;
    }
  }

  Block const& block_;
  std::int64_t strips_ = quotient_up(block_.output.rows, panel);
  std::int64_t panels_ = quotient_up(block_.output.columns, panel);
  Writer<float32, accumulate> writer_;
  alignas(64) float rooms_[2][sums_elements];
  int room_ = 0;
};

template <bool float32, bool split>
void multiply_to(Block const& block) {
  block.output.accumulate ? Blocks<float32, true, split>(block).multiply()
                          : Blocks<float32, false, split>(block).multiply();
}

}  // namespace

void configure() {
  static constexpr TileConfiguration configuration;
  _tile_loadconfig(&configuration);
}

void release() {
  _tile_release();
}

void multiply(Block const& block) {
  if (block.split) {
    multiply_to<true, true>(block);  // the output of split factors is float32
  } else {
    block.output.float32 ? multiply_to<true, false>(block) : multiply_to<false, false>(block);
  }
}

}  // namespace heddle::amx
