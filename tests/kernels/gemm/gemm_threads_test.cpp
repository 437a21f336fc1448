#include <heddle/core/operations/gemm.hpp>

#include "gemm/parts.hpp"
#include "kernel_fixture.hpp"

namespace heddle {
namespace {

/// A layer's product: forward with a bias, or a gradient that is added to.
struct Shared {
  char const* name;
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
};

/// Sizes that no tile divides, with several blocks of k, which are large enough for several threads.
constexpr std::array shared_products{Shared{"forward", 133, 293, 517, false, true, false},
                                     Shared{"forward, rows in place", 163, 290, 544, false, true, false},
                                     Shared{"forward, few rows", 37, 354, 2080, false, true, false},
                                     Shared{"input gradient", 501, 101, 333, false, false, true},
                                     Shared{"weight gradient", 75, 235, 1101, true, false, true}};

GemmCall call_of(Shared const& product, DType a, DType b, DType c) {
  auto const& [name, m, n, k, transpose_a, transpose_b, accumulate] = product;
  auto const matrix = [](DType dtype, std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
    return random_tensor(dtype, Shape{rows, columns}, seed);
  };
  return {.a = transpose_a ? matrix(a, k, m, 1) : matrix(a, m, k, 1),
          .b = transpose_b ? matrix(b, n, k, 2) : matrix(b, k, n, 2),
          .c = matrix(c, m, n, 3),
          .bias = accumulate ? Tensor() : random_tensor(parameter_dtype(c), Shape{n}, 4),
          .transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .accumulate = accumulate};
}

class GemmThreadsTest : public BuiltInKernelsTest {
 protected:
  /// Compares a product, which the process's threads share if Kokkos has several (the preset openmp), with the same
  /// product computed part by part, down to parts of which a thread computes many. Each part has at least 32 columns,
  /// with which `amx` computes it itself.
  void compare_with_parts(Gemm& gemm, GemmCall const& call, std::string const& what) {
    constexpr kernels::GemmTiles tiles{
        .rows = 32, .columns = 64, .row_time = 4, .panel_time = 128, .min_multiplications = 1};
    GemmCall whole = call;
    whole.c = converted(call.c, call.c.dtype());
    gemm.multiply(execution_, whole);
    for (int const count : {2, 3, 6, 1000}) {
      GemmCall cut = call;
      cut.c = converted(call.c, call.c.dtype());
      kernels::GemmBlocks const parts = kernels::gemm_blocks_of(call.problem(), tiles, count);
      ASSERT_GT(parts.count(), 1) << what;
      ASSERT_LE(parts.count(), count) << what;
      for (std::int64_t index = 0; index < parts.count(); ++index) {
        gemm.multiply(execution_, kernels::gemm_block(cut, tiles, parts, index).call);
      }
      expect_same_bits(cut.c, whole.c, (what + " in " + std::to_string(parts.count()) + " parts").c_str());
      EXPECT_EQ(scratch_.mark(), 0U);
    }
  }
};

TEST_F(GemmThreadsTest, PartsHaveTheBitsOfTheWhole) {
  constexpr DType bf16 = DType::bfloat16;
  constexpr DType fp32 = DType::float32;
  std::uint64_t weight = 0;
  for (Shared const& product : shared_products) {
    for (auto const& [a, b, c] :
         {std::array{bf16, bf16, bf16}, std::array{bf16, fp32, fp32}, std::array{fp32, fp32, fp32}}) {
      GemmCall call = call_of(product, a, b, c);
      for (auto const& entry : registries_.of<Gemm>().entries()) {
        bool const promised = entry.name == "avx512" || entry.name == "amx" || entry.name == "amx_3xbf16";
        if (promised && entry.kernel->supports(call.problem())) {
          call.b_weight = {product.transpose_a ? 0 : ++weight, 1};
          compare_with_parts(*entry.kernel, call, entry.name + ", " + product.name + ", " + std::string(name_of(c)));
        }
      }
    }
  }
}

TEST(GemmBlocksTest, TheLongerSideIsCutAndASmallProductIsNot) {
  constexpr kernels::GemmTiles tiles{
      .rows = 32, .columns = 32, .row_time = 4, .panel_time = 128, .min_multiplications = 1 << 20};
  auto const parts = [&](std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t threads) {
    kernels::GemmBlocks const of =
        kernels::gemm_blocks_of({.dtype = DType::bfloat16, .m = m, .n = n, .k = k}, tiles, threads);
    return std::pair(of.of_rows, of.of_columns);
  };
  EXPECT_EQ(parts(2000, 128, 128, 2), std::pair(2L, 1L));
  EXPECT_EQ(parts(64, 1000, 512, 2), std::pair(1L, 2L));
  EXPECT_EQ(parts(2000, 2000, 512, 4), std::pair(2L, 2L));
  EXPECT_EQ(parts(2000, 2000, 512, 1), std::pair(1L, 1L));
  EXPECT_EQ(parts(5, 64, 64, 4), std::pair(1L, 1L));
  EXPECT_EQ(parts(5, 33, 100'000, 4), std::pair(1L, 2L)) << "no more parts than panels";
}

}  // namespace
}  // namespace heddle
