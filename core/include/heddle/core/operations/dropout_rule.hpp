#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <heddle/core/base/random.hpp>
#include <heddle/core/operations/dropout.hpp>
#include <heddle/core/operations/elements.hpp>

// Stands before a loop whose iterations are independent of each other. The compiler then makes one vectorised loop for
// arrays that overlap and arrays that do not: two loops would round differently.
#if defined(__CUDACC__)
#define HEDDLE_INDEPENDENT_LOOP
#elif defined(__clang__)
#define HEDDLE_INDEPENDENT_LOOP _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define HEDDLE_INDEPENDENT_LOOP _Pragma("GCC ivdep")
#else
#define HEDDLE_INDEPENDENT_LOOP
#endif

/// Dropout for use inside kernels: one element at a time, or a chunk of a row at once.
namespace heddle::kernels {

/// Counters of one batch of random numbers.
constexpr int philox_lanes = 16;
/// The number of elements whose dropout one batch of counters decides.
constexpr int dropout_chunk = 8 * philox_lanes;

/// Calls `body(i)` for 0 ≤ i < count ≤ dropout_chunk. Each call uses element i of its arrays only, so arrays may be
/// the same memory and the compiler does not check for overlap; a whole chunk, the usual case, is a loop of known
/// length.
template <class Body>
KOKKOS_INLINE_FUNCTION void for_each_of_chunk(std::int64_t count, Body const& body) {
  if (count == dropout_chunk) {
    HEDDLE_INDEPENDENT_LOOP
    for (std::int64_t i = 0; i < dropout_chunk; ++i) {
      body(i);
    }
  } else {
    HEDDLE_INDEPENDENT_LOOP
    for (std::int64_t i = 0; i < count; ++i) {
      body(i);
    }
  }
}

/// Calls `body(i)` for 0 ≤ i < columns, chunk by chunk, as for_each_of_chunk.
template <class Body>
KOKKOS_INLINE_FUNCTION void for_each_column(std::int64_t columns, Body const& body) {
  for (std::int64_t begin = 0; begin < columns; begin += dropout_chunk) {
    for_each_of_chunk(columns - begin < dropout_chunk ? columns - begin : dropout_chunk,
                      [&](std::int64_t i) { body(begin + i); });
  }
}

/// Philox::words for `philox_lanes` counters at once; counter[i][lane] is word i. The words are the lower halves of
/// 64-bit lanes: in this form compilers use the widening multiplication of vectors.
KOKKOS_INLINE_FUNCTION void philox_words(std::uint64_t key, std::uint32_t (&counter)[4][philox_lanes]) {
  constexpr std::uint64_t lower_half = 0xffffffffU;
  auto const key_0 = static_cast<std::uint32_t>(key);
  auto const key_1 = static_cast<std::uint32_t>(key >> 32);
  for (int lane = 0; lane < philox_lanes; ++lane) {
    std::uint64_t word_0 = counter[0][lane];
    std::uint64_t word_1 = counter[1][lane];
    std::uint64_t word_2 = counter[2][lane];
    std::uint64_t word_3 = counter[3][lane];
    for (std::uint32_t round = 0; round < Philox::dropout_rounds; ++round) {
      std::uint64_t const product_0 = std::uint64_t{Philox::multiplier_0} * (word_0 & lower_half);
      std::uint64_t const product_1 = std::uint64_t{Philox::multiplier_1} * (word_2 & lower_half);
      word_0 = (product_1 >> 32) ^ word_1 ^ (key_0 + round * Philox::weyl_0);
      word_2 = (product_0 >> 32) ^ word_3 ^ (key_1 + round * Philox::weyl_1);
      word_1 = product_1;
      word_3 = product_0;
    }
    counter[0][lane] = static_cast<std::uint32_t>(word_0);
    counter[1][lane] = static_cast<std::uint32_t>(word_1);
    counter[2][lane] = static_cast<std::uint32_t>(word_2);
    counter[3][lane] = static_cast<std::uint32_t>(word_3);
  }
}

/// Replaces a batch of counters by the random bits of their elements: the 16 bits of lane i are out[8 i], …, out[8 i +
/// 7].
HEDDLE_ONE_COPY void random_halves(std::uint64_t key, std::uint32_t (&counter)[4][philox_lanes],
                                   std::uint16_t (&out)[dropout_chunk]) {
  philox_words(key, counter);
  for (int lane = 0; lane < philox_lanes; ++lane) {
    for (int word = 0; word < 4; ++word) {
      out[8 * lane + 2 * word] = static_cast<std::uint16_t>(counter[word][lane] & 0xffffU);
      out[8 * lane + 2 * word + 1] = static_cast<std::uint16_t>(counter[word][lane] >> 16);
    }
  }
}

/// A Dropout in the form that a kernel captures; dropout.hpp has the rule.
struct DropoutRule {
  bool active = false;
  std::uint32_t threshold = 65536;
  double scale = 1;
  std::uint64_t key = 0;
  std::uint32_t step = 0;
  std::int64_t first_column = 0;
  std::int32_t const* sample = nullptr;
  std::int32_t const* position = nullptr;

  explicit DropoutRule(Dropout const& dropout) : active(dropout.active()) {
    if (active) {
      threshold = Dropout::keep_threshold(dropout.rate);
      scale = threshold == 0 ? 0 : Dropout::keep_scale(dropout.rate);
      key = dropout.key;
      step = dropout.step;
      first_column = dropout.first_column;
      sample = dropout.sample.data<std::int32_t>();
      position = dropout.position.data<std::int32_t>();
    }
  }

  /// The random words of columns 8 group, …, 8 group + 7 of the whole matrix: 16 bits of each, two in a word, the lower
  /// half first.
  KOKKOS_INLINE_FUNCTION Philox::Counter words(std::int64_t row, std::int64_t group) const {
    return Philox::words(key,
                         {static_cast<std::uint32_t>(sample[row]), static_cast<std::uint32_t>(position[row]),
                          static_cast<std::uint32_t>(group), step},
                         Philox::dropout_rounds);
  }
  /// The factor of one element, exactly by the rule: `group` = column / 8 and `lane` = column % 8.
  KOKKOS_INLINE_FUNCTION double multiplier(std::int64_t row, std::int64_t group, std::int64_t lane) const {
    std::uint32_t const word = words(row, group)[static_cast<std::size_t>(lane / 2)];
    std::uint32_t const half = lane % 2 == 0 ? word & 0xffffU : word >> 16;
    return half < threshold ? scale : 0.0;
  }
  /// The factor for column `column` of this rank's part of the matrix; 1 where dropout is off.
  KOKKOS_INLINE_FUNCTION double multiplier(std::int64_t row, std::int64_t column) const {
    std::int64_t const global = first_column + column;
    return active ? multiplier(row, global / 8, global % 8) : 1.0;
  }

  /// The multipliers of a chunk of columns, from the 16 bits of each.
  template <class Real>
  struct Multipliers {
    std::uint16_t const* halves;
    std::uint32_t threshold;
    Real scale;

    KOKKOS_INLINE_FUNCTION Real operator[](std::int64_t i) const { return halves[i] < threshold ? scale : Real{0}; }
  };
  /// The multipliers where dropout is off: constants for the compiler.
  template <class Real>
  struct Ones {
    KOKKOS_INLINE_FUNCTION constexpr Real operator[](std::int64_t) const { return Real{1}; }
  };

  /// Calls `visit(begin, end, multipliers)` for consecutive chunks of the row's columns from `first` to `last`, each
  /// at most dropout_chunk long; multipliers[c - begin] is column c's.
  template <class Real, class Visit>
  KOKKOS_INLINE_FUNCTION void for_each_chunk(std::int64_t row, std::int64_t first, std::int64_t last,
                                             Visit const& visit) const {
    if (!active) {
      for (std::int64_t begin = first; begin < last; begin += dropout_chunk) {
        visit(begin, last - begin < dropout_chunk ? last : begin + dropout_chunk, Ones<Real>{});
      }
      return;
    }
    std::uint32_t counter[4][philox_lanes];
    std::uint16_t halves[dropout_chunk];
    auto group = static_cast<std::uint32_t>((first_column + first) / 8);
    std::int64_t skipped = (first_column + first) % 8;
    for (std::int64_t begin = first; begin < last;) {
      for (std::uint32_t lane = 0; lane < philox_lanes; ++lane) {
        counter[0][lane] = static_cast<std::uint32_t>(sample[row]);
        counter[1][lane] = static_cast<std::uint32_t>(position[row]);
        counter[2][lane] = group + lane;
        counter[3][lane] = step;
      }
      random_halves(key, counter, halves);
      std::int64_t const available = dropout_chunk - skipped;
      std::int64_t const end = last - begin < available ? last : begin + available;
      visit(begin, end, Multipliers<Real>{halves + skipped, threshold, static_cast<Real>(scale)});
      begin = end;
      group += philox_lanes;
      skipped = 0;
    }
  }
  /// Calls `visit(begin, end, multipliers)` for consecutive chunks of all `columns` columns of the row.
  template <class Real, class Visit>
  KOKKOS_INLINE_FUNCTION void for_each_chunk(std::int64_t row, std::int64_t columns, Visit const& visit) const {
    for_each_chunk<Real>(row, 0, columns, visit);
  }
};

}  // namespace heddle::kernels
