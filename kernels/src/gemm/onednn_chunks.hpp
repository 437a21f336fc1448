#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

/// How the `onednn` GEMM splits a product, so that oneDNN gets few shapes, and none for which its results are wrong.
namespace heddle::onednn {

/// Rows [begin, begin + count) of a as stored: the part of a product that one primitive computes.
struct Chunk {
  std::int64_t begin, count;
};

/// Chunks of 512 rows run at the speed of the whole. Threads divide a chunk, so each adds 512 rows to the largest.
constexpr std::int64_t largest_chunk = 512;
constexpr std::int64_t small_chunk = 64;
/// The rows of a tile of matrix registers: an operation with fewer takes as long.
constexpr std::int64_t tile = 16;

/// The chunk of `rows` rows that begins at row `begin`. Token counts differ from step to step, and each new shape costs
/// 0.2 to 0.3 ms of code generation and up to megabytes of address space. So chunks have 64 times a power of two rows,
/// then 48, 32 or 16, and the last fewer than 16: 22 sizes with one thread.
constexpr Chunk next_chunk(std::int64_t begin, std::int64_t rows, std::int64_t threads) {
  std::int64_t const left = rows - begin;
  if (left >= small_chunk) {
    std::int64_t const max = std::min(left / small_chunk, largest_chunk / small_chunk * threads);
    return {begin, small_chunk * static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(max)))};
  }
  return {begin, left >= tile ? left / tile * tile : left};
}

/// True for a reduction over this many elements that oneDNN must not be given. With matrix registers oneDNN 2.6.3
/// generates code for 63 elements of bfloat16 that ends with SIGILL or adds wrong sums: it rounds the last 31 elements
/// up to a whole block of 32. Longer ones with such a rest were not seen to fail, and are avoided, too, for all types
/// and levels: no chunk has them, and hardly a layer.
constexpr bool is_unsafe_reduction(std::int64_t k) {
  return k > 32 && k % 32 == 31;
}

}  // namespace heddle::onednn
