#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <heddle/core/base/dtype.hpp>
#include <heddle/io/formats/float16.hpp>

#include "test.hpp"

namespace heddle {
namespace {

/// The value of a number of 16 bits by IEEE 754's definition, in float64; its exponent has `exponent_bits`.
double value_of_bits(std::uint16_t bits, int exponent_bits) {
  int const mantissa_bits = 15 - exponent_bits;
  int const bias = (1 << (exponent_bits - 1)) - 1;
  int const exponent = (bits & 0x7fff) >> mantissa_bits;
  int const mantissa = bits & ((1 << mantissa_bits) - 1);
  double const sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return exponent == 0 ? sign * std::ldexp(mantissa, 1 - bias - mantissa_bits)
                       : sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

/// Keeps denormal numbers, which main() lets the processor take as 0, while it lives.
class WithDenormals {
 public:
#if defined(__SSE__)
  WithDenormals() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ & ~0x8040U);
  }
  ~WithDenormals() {
    _mm_setcsr(before_);
  }

 private:
  unsigned before_;
#else
  WithDenormals() {}
#endif
};

struct Format {
  std::uint16_t max;  ///< the bits of the largest finite number
  int exponent_bits;
};

/// The conversions of a type of 16 bits against its definition: each of its values, and between each two neighbours the
/// half-way point and the float32s beside it.
template <class Half>
void check_conversions(Format format) {
  WithDenormals const denormals;
  float const infinity = std::numeric_limits<float>::infinity();
  for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
    Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    auto const value = static_cast<float>(half);
    double const expected = value_of_bits(half.bits, format.exponent_bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value) && std::isnan(static_cast<float>(Half(value)))) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(value), expected) << bits;
      ASSERT_EQ(Half(value).bits, bits);
    }
  }
  for (std::uint16_t below = 0; below <= format.max; ++below) {
    auto const above = static_cast<std::uint16_t>(below + 1);
    double const low = value_of_bits(below, format.exponent_bits);
    // Rounding continues above the largest number as if there were a next one.
    double const step = low - value_of_bits(static_cast<std::uint16_t>(below - 1), format.exponent_bits);
    double const high = below == format.max ? low + step : value_of_bits(above, format.exponent_bits);
    auto const middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
    for (int const sign : {0x0000, 0x8000}) {
      float const signed_middle = sign == 0 ? middle : -middle;
      ASSERT_EQ(Half(signed_middle).bits, sign | ((below & 1) == 0 ? below : above)) << below;
      ASSERT_EQ(Half(std::nextafterf(signed_middle, 0)).bits, sign | below) << below;
      ASSERT_EQ(Half(std::nextafterf(signed_middle, std::copysign(infinity, signed_middle))).bits, sign | above)
          << below;
    }
  }
  ASSERT_EQ(Half(infinity).bits, format.max + 1);
  ASSERT_EQ(Half(-std::numeric_limits<float>::max()).bits, 0x8000 | (format.max + 1));
  ASSERT_EQ(Half(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TEST(Float16Test, ConvertsEachValueAndRoundsToNearestEven) {
  check_conversions<Float16>({0x7bff, 5});
}

TEST(Float16Test, SoDoesBFloat16) {
  check_conversions<BFloat16>({0x7f7f, 8});
}

}  // namespace
}  // namespace heddle
