#include <immintrin.h>

#include "tiles.hpp"

namespace heddle::amx {

namespace {

constexpr std::int64_t lanes = 16;

/// The first `count` of 32 lanes; none if it is negative.
__mmask32 first(std::int64_t count) {
  return count >= step ? ~0U : count <= 0 ? 0U : (1U << count) - 1U;
}

/// Selects the part of a factor's elements that is packed.
enum class Taken {
  as_they_are,  ///< of bfloat16
  rounded,      ///< of float32
  rest,         ///< of float32: what is left when the rounded element is taken away, rounded
};

/// The float32 of half of 32 bfloat16.
__m512 widened(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/// 32 elements of a stored row from (row, column) on; those that `mask` leaves out are zeros.
template <Taken taken>
__m512i elements_at(Factor const& factor, std::int64_t row, std::int64_t column, __mmask32 mask) {
  std::int64_t const place = row * factor.stride + column;
  if constexpr (taken == Taken::as_they_are) {
    return _mm512_maskz_loadu_epi16(mask, static_cast<std::uint16_t const*>(factor.data) + place);
  }
  float const* const from = static_cast<float const*>(factor.data) + place;
  __m512 const low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from);
  __m512 const high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16U), from + lanes);
  auto const rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  if constexpr (taken == Taken::rounded) {
    return rounded;
  }
  __m512 const low_rest = _mm512_sub_ps(low, widened(_mm512_castsi512_si256(rounded)));
  __m512 const high_rest = _mm512_sub_ps(high, widened(_mm512_extracti64x4_epi64(rounded, 1)));
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high_rest, low_rest));
}

/// 32 stored rows of 32 elements, in lines of their own: rows of a large matrix may share a few sets of the cache.
struct alignas(64) Square {
  std::uint16_t elements[panel][step];
};

/// Reads `rows` and `columns` of the stored matrix from (row, column) on; others are zeros.
template <Taken taken>
void read(Factor const& factor, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
          Square& square) {
  __mmask32 const mask = first(columns);
  for (std::int64_t i = 0; i < panel; ++i) {
    __m512i const elements = i < rows ? elements_at<taken>(factor, row + i, column, mask) : _mm512_setzero_si512();
    _mm512_store_si512(square.elements[i], elements);
  }
}

/// Pieces of 16 bytes of four rows of a square, `distance` rows apart.
__m512i four_pieces(std::uint16_t const* from, std::int64_t distance) {
  auto const piece = [&](std::int64_t i) {
    return _mm_load_si128(reinterpret_cast<__m128i const*>(from + i * distance * step));
  };
  __m512i const first = _mm512_inserti32x4(_mm512_castsi128_si512(piece(0)), piece(1), 1);
  return _mm512_inserti32x4(_mm512_inserti32x4(first, piece(2), 2), piece(3), 3);
}

/// Columns of a square as rows of two tiles: packed[column][row].
void transpose(Square const& square, std::uint16_t* packed) {
  for (std::int64_t column = 0; column < step; column += 8) {
    // Lane i of vector r has row 8 i + r, so that the transposed lanes are consecutive.
    __m512i v[8];
    __m512i w[8];
    for (std::int64_t r = 0; r < 8; ++r) {
      v[r] = four_pieces(&square.elements[r][column], 8);
    }
    for (std::int64_t i = 0; i < 4; ++i) {
      w[i] = _mm512_unpacklo_epi16(v[2 * i], v[2 * i + 1]);      // columns 0 to 3 of rows 2 i, 2 i + 1
      w[i + 4] = _mm512_unpackhi_epi16(v[2 * i], v[2 * i + 1]);  // columns 4 to 7
    }
    for (int i = 0; i < 8; i += 4) {
      v[i] = _mm512_unpacklo_epi32(w[i], w[i + 1]);  // columns 0, 1 (or 4, 5) of rows 0 to 3
      v[i + 1] = _mm512_unpackhi_epi32(w[i], w[i + 1]);
      v[i + 2] = _mm512_unpacklo_epi32(w[i + 2], w[i + 3]);  // rows 4 to 7
      v[i + 3] = _mm512_unpackhi_epi32(w[i + 2], w[i + 3]);
    }
    std::uint16_t* const to = packed + column * step;
    for (std::int64_t i = 0; i < 8; i += 4) {
      _mm512_store_si512(to + i * step, _mm512_unpacklo_epi64(v[i], v[i + 2]));
      _mm512_store_si512(to + (i + 1) * step, _mm512_unpackhi_epi64(v[i], v[i + 2]));
      _mm512_store_si512(to + (i + 2) * step, _mm512_unpacklo_epi64(v[i + 1], v[i + 3]));
      _mm512_store_si512(to + (i + 3) * step, _mm512_unpackhi_epi64(v[i + 1], v[i + 3]));
    }
  }
}

/// Rows of a square, which are columns of op(b), as two tiles: pairs of elements of k, 16 columns each.
void transpose_pairs(Square const& square, std::uint16_t* packed) {
  for (std::int64_t tile = 0; tile < 2; ++tile, packed += step_elements / 2) {
    for (std::int64_t pair = 0; pair < lanes; pair += 4) {
      __m512i v[4];
      for (std::int64_t r = 0; r < 4; ++r) {
        v[r] = four_pieces(&square.elements[tile * lanes + r][2 * pair], 4);
      }
      __m512i const low = _mm512_unpacklo_epi32(v[0], v[1]);
      __m512i const high = _mm512_unpackhi_epi32(v[0], v[1]);
      __m512i const low_after = _mm512_unpacklo_epi32(v[2], v[3]);
      __m512i const high_after = _mm512_unpackhi_epi32(v[2], v[3]);
      std::uint16_t* const to = packed + pair * step;
      _mm512_store_si512(to, _mm512_unpacklo_epi64(low, low_after));
      _mm512_store_si512(to + step, _mm512_unpackhi_epi64(low, low_after));
      _mm512_store_si512(to + 2 * step, _mm512_unpacklo_epi64(high, high_after));
      _mm512_store_si512(to + 3 * step, _mm512_unpackhi_epi64(high, high_after));
    }
  }
}

/// The positions of two rows' elements when they are interleaved, from column `begin` on.
__m512i interleaving(int begin) {
  alignas(64) std::uint16_t places[32];
  for (int i = 0; i < 32; ++i) {
    places[i] = static_cast<std::uint16_t>(begin + i / 2);
  }
  return _mm512_load_si512(places);
}

/// Interleaves rows of 32 columns, which are elements of k, in pairs: pair(0) to pair(15), as two tiles. `streamed`:
/// they are written past the caches.
template <bool streamed, class Pair>
void interleave_pairs(Pair const& pair, std::uint16_t* packed) {
  __m512i const low = interleaving(0);
  __m512i const high = interleaving(16);
  constexpr __mmask32 odd = 0xaaaaaaaaU;
  for (std::int64_t i = 0; i < step / 2; ++i, packed += step) {
    auto const [even_row, odd_row] = pair(i);
    auto const both = [even = even_row, odd_one = odd_row](__m512i places) {
      return _mm512_mask_permutexvar_epi16(_mm512_permutexvar_epi16(places, even), odd, places, odd_one);
    };
    auto const write = [](std::uint16_t* to, __m512i elements) {
      streamed ? _mm512_stream_si512(reinterpret_cast<__m512i*>(to), elements) : _mm512_store_si512(to, elements);
    };
    write(packed, both(low));
    write(packed + step_elements / 2, both(high));
  }
}

struct RowPair {
  __m512i even, odd;
};

/// 32 elements of k of 32 columns, whose rows as stored are elements of k, as two tiles.
template <Taken taken>
void interleave(Factor const& b, std::int64_t k, std::int64_t column, std::uint16_t* packed) {
  __mmask32 const mask = first(b.extent - column);
  auto const row_at = [&](std::int64_t row) {
    return row < b.k ? elements_at<taken>(b, row, column, mask) : _mm512_setzero_si512();
  };
  interleave_pairs<false>([&](std::int64_t i) { return RowPair{row_at(k + 2 * i), row_at(k + 2 * i + 1)}; }, packed);
}

/// Rows of a whose k is contiguous. A second tile without rows is not read.
template <Taken taken>
void copy_rows(Factor const& a, std::uint16_t* packed) {
  std::int64_t const steps = ceil_div(a.k, step);
  std::int64_t const apart = parts(a.split) * packed_step(a);
  __mmask32 const of_last = first(a.k - (steps - 1) * step);
  for (std::int64_t row = 0; row < ceil_div(a.extent, tile_rows) * tile_rows; ++row) {
    std::uint16_t* const to = packed + row / panel * steps * apart + row % panel * step;
    for (std::int64_t s = 0; s < steps; ++s) {
      __mmask32 const mask = s + 1 < steps ? ~0U : of_last;
      __m512i const elements = row < a.extent ? elements_at<taken>(a, row, s * step, mask) : _mm512_setzero_si512();
      _mm512_store_si512(to + s * apart, elements);
    }
  }
}

template <Taken taken>
void pack_rows_of(Factor const& a, std::uint16_t* packed) {
  if (a.k_contiguous) {
    copy_rows<taken>(a, packed);
    return;
  }
  std::int64_t const steps = ceil_div(a.k, step);
  std::int64_t const apart = parts(a.split) * step_elements;
  Square square;
  for (std::int64_t s = 0; s < steps; ++s) {
    for (std::int64_t row = 0; row < a.extent; row += panel) {
      read<taken>(a, s * step, a.k - s * step, row, a.extent - row, square);
      transpose(square, packed + (row / panel * steps + s) * apart);
    }
  }
}

template <Taken taken>
void pack_columns_of(Factor const& b, std::uint16_t* packed) {
  std::int64_t const steps = ceil_div(b.k, step);
  std::int64_t const apart = parts(b.split) * step_elements;
  if (b.k_contiguous) {
    Square square;
    for (std::int64_t column = 0; column < b.extent; column += panel) {
      for (std::int64_t s = 0; s < steps; ++s, packed += apart) {
        read<taken>(b, column, b.extent - column, s * step, b.k - s * step, square);
        transpose_pairs(square, packed);
      }
    }
    return;
  }
  // All columns of a step follow each other, because the processor reads ahead along rows.
  for (std::int64_t s = 0; s < steps; ++s) {
    for (std::int64_t column = 0; column < b.extent; column += panel) {
      interleave<taken>(b, s * step, column, packed + (column / panel * steps + s) * apart);
    }
  }
}

}  // namespace

void pack_rows(Factor const& a, std::uint16_t* packed) {
  if (a.split) {
    pack_rows_of<Taken::rounded>(a, packed);
    pack_rows_of<Taken::rest>(a, packed + packed_step(a));
  } else {
    pack_rows_of<Taken::as_they_are>(a, packed);
  }
}

void pack_weight(Factor const& b, std::uint16_t* packed, std::uint16_t* transposed, std::int64_t panel_of_transposed) {
  std::int64_t const steps = ceil_div(b.k, step);
  Square square;
  for (std::int64_t column = 0; column < b.extent; column += panel, transposed += step_elements) {
    for (std::int64_t s = 0; s < steps; ++s, packed += step_elements) {
      read<Taken::rounded>(b, column, b.extent - column, s * step, b.k - s * step, square);
      transpose_pairs(square, packed);
      auto const row = [&](std::int64_t i) { return _mm512_load_si512(square.elements[i]); };
      interleave_pairs<true>(
          [&](std::int64_t i) {
            return RowPair{row(2 * i), row(2 * i + 1)};
          },
          transposed + s * panel_of_transposed);
    }
  }
  _mm_sfence();  // before other threads are told that it is there
}

void pack_columns(Factor const& b, std::uint16_t* packed) {
  if (b.split) {
    pack_columns_of<Taken::rounded>(b, packed);
    pack_columns_of<Taken::rest>(b, packed + step_elements);
  } else {
    b.float32 ? pack_columns_of<Taken::rounded>(b, packed) : pack_columns_of<Taken::as_they_are>(b, packed);
  }
}

}  // namespace heddle::amx
