#include <algorithm>
#include <cmath>
#include <heddle/core/operations/gemm.hpp>
#include <limits>

#include "kernel_fixture.hpp"

namespace heddle {
namespace {

/// A product's sizes and form. A layer's three products have b transposed, nothing transposed, and a transposed.
struct Form {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, weight;
};

/// Numbers of the 16 bits that two bfloat16 hold, and a few more.
Values fine_numbers(std::int64_t count, std::uint64_t seed) {
  Values numbers = random_values(count, seed);
  Values const rest = random_values(count, seed + 1);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(numbers[i] + std::ldexp(rest[i], -8));
  }
  return numbers;
}

class SplitProductsTest : public BuiltInKernelsTest {
 protected:
  void SetUp() override {
    kernel_ = std::static_pointer_cast<Gemm>(registries_.of<Gemm>().find("amx_3xbf16"));
    if (kernel_ == nullptr) {
      GTEST_SKIP() << "amx_3xbf16 needs a processor with matrix registers (AMX)";
    }
  }

  Values product(Gemm& gemm, Form const& form, DType dtype, Values const& a, Values const& b) {
    GemmCall const call{.a = tensor_of(a, dtype, form.transpose_a ? Shape{form.k, form.m} : Shape{form.m, form.k}),
                        .b = tensor_of(b, dtype, form.transpose_b ? Shape{form.n, form.k} : Shape{form.k, form.n}),
                        .c = Tensor::allocate(dtype, {form.m, form.n}),
                        .bias = {},
                        .transpose_a = form.transpose_a,
                        .transpose_b = form.transpose_b,
                        .b_weight = {form.weight ? static_cast<std::uint64_t>(form.n) : 0, 1}};
    gemm.multiply(execution_, call);
    return values(call.c);
  }

  std::shared_ptr<Gemm> kernel_;
};

TEST_F(SplitProductsTest, AnErrorIsAtMostThreeTimesTheSquareOfARounding) {
  // A rounding to bfloat16 errs by at most 2⁻⁸. Each factor loses its square, and so does the product, from which the
  // two second parts' is left out. A missing one of the other products would be an error of 2⁻⁸.
  Gemm& reference = *registries_.of<Gemm>().select("reference", {});
  for (Form const& form : {Form{33, 65, 97, false, true, false}, Form{9, 48, 33, false, true, true},
                           Form{150, 970, 544, false, true, true}, Form{35, 1700, 320, false, false, true},
                           Form{75, 700, 600, true, false, false}}) {
    Values const a = fine_numbers(form.m * form.k, 1);
    Values const b = fine_numbers(form.k * form.n, 3);
    auto const magnitudes = [](Values numbers) {
      std::ranges::transform(numbers, numbers.begin(), [](double number) { return std::abs(number); });
      return numbers;
    };
    Values const c = product(*kernel_, form, DType::float32, a, b);
    Values const exact = product(reference, form, DType::float64, a, b);
    Values const magnitude = product(reference, form, DType::float64, magnitudes(a), magnitudes(b));
    double const of_sums = std::sqrt(static_cast<double>(form.k)) * std::numeric_limits<float>::epsilon();
    double largest = 0;  // of the errors, in units of the bound
    for (std::size_t i = 0; i < c.size(); ++i) {
      largest = std::max(largest, std::abs(c[i] - exact[i]) / ((3 * std::ldexp(1, -16) + of_sums) * magnitude[i]));
    }
    EXPECT_LE(largest, 1) << form.m << " x " << form.n << " x " << form.k;
    EXPECT_GT(largest, 1e-3) << "computed otherwise than said";
  }
}

TEST_F(SplitProductsTest, NumbersOfSixteenBitsAreMultipliedExactly) {
  // 257 = 256 + 1 takes two parts.
  Form const form{33, 65, 97, false, true, false};
  Values a(static_cast<std::size_t>(form.m * form.k));
  Values b(static_cast<std::size_t>(form.n * form.k));
  a[5] = 257;
  b[5] = 1;
  a[97 + 6] = 1;
  b[97 + 6] = 257;
  Values const c = product(*kernel_, form, DType::float32, a, b);
  EXPECT_EQ(c[0], 257);
  EXPECT_EQ(c[65 + 1], 257);
  EXPECT_EQ(c[1], 0);
}

}  // namespace
}  // namespace heddle
