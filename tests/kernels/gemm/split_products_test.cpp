#include <cmath>
#include <heddle/core/operations/gemm.hpp>
#include <limits>

#include "kernel_fixture.hpp"

namespace heddle::testing_support {
namespace {

constexpr std::int64_t m = 33, n = 65, k = 97;

class SplitProductsTest : public BuiltInKernelsTest {
 protected:
  void SetUp() override {
    kernel_ = std::static_pointer_cast<Gemm>(registries_.of<Gemm>().find("amx_3xbf16"));
    if (kernel_ == nullptr) {
      GTEST_SKIP() << "amx_3xbf16 needs a processor with matrix registers (AMX)";
    }
  }

  /// c = a bᵀ by the implementation.
  Values product(Values const& a, Values const& b) {
    GemmCall const call{.a = tensor_of(a, DType::float32, {m, k}),
                        .b = tensor_of(b, DType::float32, {n, k}),
                        .c = Tensor::allocate(DType::float32, {m, n}),
                        .bias = {},
                        .transpose_b = true};
    kernel_->multiply(execution_, call);
    return values(call.c);
  }

  std::shared_ptr<Gemm> kernel_;
};

TEST_F(SplitProductsTest, AnErrorIsAtMostThreeTimesTheSquareOfARounding) {
  // 2⁻⁸ is the largest error of a rounding to bfloat16. Each factor loses its square, and so does the product, of which
  // the two second parts' is left out. A product of parts that were missing would be an error of 2⁻⁸ times an element.
  Values const a = values(tensor_of(random_values(m * k, 1), DType::float32, {m, k}));
  Values const b = values(tensor_of(random_values(n * k, 2), DType::float32, {n, k}));
  Values const c = product(a, b);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double exact = 0;
      double magnitude = 0;
      for (std::int64_t step = 0; step < k; ++step) {
        double const each = a[static_cast<std::size_t>(i * k + step)] * b[static_cast<std::size_t>(j * k + step)];
        exact += each;
        magnitude += std::abs(each);
      }
      double const of_sums = static_cast<double>(3 * k) * std::numeric_limits<float>::epsilon();
      ASSERT_LE(std::abs(c[static_cast<std::size_t>(i * n + j)] - exact),
                (3 * std::ldexp(1, -16) + of_sums) * magnitude);
    }
  }
}

TEST_F(SplitProductsTest, NumbersOfSixteenBitsAreMultipliedExactly) {
  // Each of the three products counts: 257 = 256 + 1 takes two parts.
  Values a(static_cast<std::size_t>(m * k));
  Values b(static_cast<std::size_t>(n * k));
  a[5] = 257;
  b[5] = 1;
  a[k + 6] = 1;
  b[k + 6] = 257;
  Values const c = product(a, b);
  EXPECT_EQ(c[0], 257);
  EXPECT_EQ(c[n + 1], 257);
  EXPECT_EQ(c[1], 0);
}

}  // namespace
}  // namespace heddle::testing_support
