#include "bfloat16_sums.hpp"

namespace heddle {

namespace {

/// Two neighbours: vectors of words need neither wider nor narrower copies of the elements.
using Word = std::uint32_t;
constexpr Word upper = 0xffff0000U;

Word word_at(BFloat16Bits const* elements) {
  Word word;
  __builtin_memcpy(&word, elements, sizeof word);
  return word;
}

float lower_number(Word word) {
  return __builtin_bit_cast(float, word << 16U);
}

float upper_number(Word word) {
  Word const bits = word & upper;
  return __builtin_bit_cast(float, bits);
}

/// To the nearest, ties to even, in the upper half; the lower half has no meaning. A NaN stays one.
Word rounded(float value) {
  auto const word = __builtin_bit_cast(Word, value);
  Word const number = word + 0x7fffU + ((word >> 16U) & 1U);
  return value != value ? word | 0x400000U : number;
}

Word rounded(float lower, float higher) {
  return (rounded(lower) >> 16U) | (rounded(higher) & upper);
}

void store(Word word, BFloat16Bits* elements) {
  __builtin_memcpy(elements, &word, sizeof word);
}

/// Adds two lists of an even number of elements in one pass, so that sums stay in registers.
void add_two(BFloat16Bits const* one, BFloat16Bits const* other, BFloat16Bits* result, std::int64_t count) {
  for (std::int64_t index = 0; index < count; index += 2) {
    Word const left = word_at(one + index);
    Word const right = word_at(other + index);
    store(rounded(lower_number(left) + lower_number(right), upper_number(left) + upper_number(right)), result + index);
  }
}

/// Adds lists of an even number of elements, a block of them at a time.
void add_many(BFloat16Bits const* const* lists, std::size_t ranks, BFloat16Bits* result, std::int64_t count) {
  constexpr std::int64_t block = 1024;  // words
  float lower[block];
  float higher[block];
  for (std::int64_t begin = 0; begin < count; begin += 2 * block) {
    std::int64_t const words = (count - begin) / 2 < block ? (count - begin) / 2 : block;
    for (std::int64_t index = 0; index < words; ++index) {
      Word const word = word_at(lists[0] + begin + 2 * index);
      lower[index] = lower_number(word);
      higher[index] = upper_number(word);
    }
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      for (std::int64_t index = 0; index < words; ++index) {
        Word const word = word_at(lists[rank] + begin + 2 * index);
        lower[index] += lower_number(word);
        higher[index] += upper_number(word);
      }
    }
    for (std::int64_t index = 0; index < words; ++index) {
      store(rounded(lower[index], higher[index]), result + begin + 2 * index);
    }
  }
}

}  // namespace

void add_bfloat16_with_v4(BFloat16Bits const* const* lists, std::size_t ranks, BFloat16Bits* result,
                          std::int64_t count) {
  std::int64_t const even = count / 2 * 2;
  if (ranks == 2) {
    add_two(lists[0], lists[1], result, even);
  } else {
    add_many(lists, ranks, result, even);
  }
  if (even < count) {
    float last = lower_number(lists[0][even]);
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      last += lower_number(lists[rank][even]);
    }
    result[even] = static_cast<BFloat16Bits>(rounded(last) >> 16U);
  }
}

}  // namespace heddle
