#pragma once

#include <heddle/core/base/random.hpp>
#include <heddle/core/tensor/tensor.hpp>

namespace heddle {

/// Dropout of a [rows, columns] matrix whose rows are tokens. Which elements are kept depends only on the key, the
/// step, the token's sample and position and the element's global column, never on how the work was split:
///
///   words = Philox::words(key, {sample[row], position[row], column / 8, step}, Philox::dropout_rounds)
///   half  = 16 bits of words: lane = column % 8; word = words[lane / 2]; low half for even lanes, else high half
///   kept  = half < keep_threshold(rate), scaled by 65536 / keep_threshold(rate)
///
/// An element of attention is a (query token, key position) pair of a head: column / 8 is replaced by
/// (global head << 20) + key_position / 8, with lane = key_position % 8; key_position counts from the start of the
/// whole sequence, even if its keys are split.
struct Dropout {
  float rate = 0;  ///< 0: everything is kept, and nothing below is read
  std::uint64_t key = 0;
  std::uint32_t step = 0;
  std::int32_t first_column = 0;  ///< the global column of column 0 (the global head of head 0 in attention)
  Tensor sample;                  ///< int32 [rows]
  Tensor position;                ///< int32 [rows]

  bool active() const { return rate > 0; }
  /// An element is kept if a uniform 16-bit number is below this threshold.
  static constexpr std::uint32_t keep_threshold(float rate) {
    return static_cast<std::uint32_t>((1.0 - static_cast<double>(rate)) * 65536.0 + 0.5);
  }
  /// The factor of a kept element, which preserves the mean.
  static constexpr double keep_scale(float rate) { return 65536.0 / keep_threshold(rate); }
};

}  // namespace heddle
