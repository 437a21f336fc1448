#include <cmath>
#include <heddle/core/operations/dropout.hpp>
#include <heddle/core/operations/residual_norm.hpp>

#include "kernel_fixture.hpp"

namespace heddle {
namespace {

// The known-answer vectors of Random123's philox4x32-10 and philox4x32-7.
TEST(Philox, GivesTheKnownAnswers) {
  using Counter = Philox::Counter;
  Counter const ones{~0U, ~0U, ~0U, ~0U};
  Counter const pi{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
  constexpr std::uint64_t pi_key = 0x299f31d0a4093822ULL;
  EXPECT_EQ(Philox::words(0, {0, 0, 0, 0}), (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox::words(~0ULL, ones), (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox::words(pi_key, pi), (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(Philox::words(0, {0, 0, 0, 0}, 7), (Counter{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
  EXPECT_EQ(Philox::words(~0ULL, ones, 7), (Counter{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
  EXPECT_EQ(Philox::words(pi_key, pi, 7), (Counter{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}));
}

TEST(Philox, KeysDifferByNameAndSeed) {
  EXPECT_NE(random_key(1, "a"), random_key(1, "b"));
  EXPECT_NE(random_key(1, "a"), random_key(2, "a"));
  EXPECT_EQ(random_key(1, "a"), random_key(1, "a"));
}

TEST(DropoutRule, KeepsTheMean) {
  for (float const rate : {0.1F, 0.3F, 0.5F, 0.9F}) {
    EXPECT_NEAR(Dropout::keep_threshold(rate) / 65536.0, 1 - static_cast<double>(rate), 1e-5);
    EXPECT_NEAR(Dropout::keep_scale(rate) * Dropout::keep_threshold(rate), 65536.0, 1e-9);
  }
}

/// Dropout of ones, as the sum of a residual of zeros and a branch of ones.
class DropoutKernelTest : public BuiltInKernelsTest {
 protected:
  Tensor dropped_ones(ResidualNorm& kernel, Dropout const& dropout, std::int64_t rows, std::int64_t columns) {
    ResidualNormCall call;
    call.residual = Tensor::allocate(DType::float32, {rows, columns});
    call.branch =
        tensor_of(std::vector<double>(static_cast<std::size_t>(rows * columns), 1.0), DType::float32, {rows, columns});
    call.dropout = dropout;
    ResidualNormOutput output;
    output.sum = Tensor::allocate(DType::float32, {rows, columns});
    kernel.forward(execution_, call, output);
    return output.sum;
  }
};

TEST_F(DropoutKernelTest, FollowsTheRuleElementByElement) {
  constexpr std::int64_t rows = 15;
  constexpr std::int64_t columns = 301;
  Dropout dropout = dropout_of(0.3F, rows);
  dropout.first_column = 13;
  auto const samples = to_host<std::int32_t>(dropout.sample);
  auto const positions = to_host<std::int32_t>(dropout.position);
  std::vector<double> expected;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::uint32_t column = 13; column < 13 + columns; ++column) {
      auto const words = Philox::words(
          dropout.key,
          {static_cast<std::uint32_t>(samples[row]), static_cast<std::uint32_t>(positions[row]), column / 8, 3},
          Philox::dropout_rounds);
      std::uint32_t const word = words[column % 8 / 2];
      std::uint32_t const half = column % 2 == 0 ? word & 0xffffU : word >> 16;
      expected.push_back(half < Dropout::keep_threshold(0.3F) ? Dropout::keep_scale(0.3F) : 0.0);
    }
  }
  Tensor const wanted = tensor_of(expected, DType::float32, {rows, columns});
  for (auto const& entry : registries_.of<ResidualNorm>().entries()) {
    if (!entry.kernel->supports({DType::float32, columns, dropout.rate})) {
      continue;  // compared with the reference in its own tests
    }
    expect_same_bits(dropped_ones(*entry.kernel, dropout, rows, columns), wanted, entry.name.c_str());
  }
}

TEST_F(DropoutKernelTest, DropsTheRateOnAverage) {
  constexpr std::int64_t rows = 200;
  constexpr std::int64_t columns = 500;
  auto const kernel = registries_.of<ResidualNorm>().select("kokkos", {});
  double kept = 0;
  for (double const value : values(dropped_ones(*kernel, dropout_of(0.3F, rows), rows, columns))) {
    kept += value > 0 ? 1 : 0;
  }
  EXPECT_NEAR(kept / (rows * columns), 0.7, 4 * std::sqrt(0.21 / (rows * columns)));
}

}  // namespace
}  // namespace heddle
