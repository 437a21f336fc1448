#include <heddle/core/operations/gemm.hpp>

#include "kernel_fixture.hpp"

namespace heddle {
namespace {

struct Int8Sizes {
  std::int64_t m, n, k;
};

/// Numbers in int8 with their scale, by the definition.
struct Quantised {
  std::vector<int> numbers;
  float scale = 0;

  explicit Quantised(std::vector<float> const& row) {
    float max = 0;
    for (float const number : row) {
      max = std::max(max, std::abs(number));
    }
    float const inverse = max > 0 ? 127 / max : 0;
    for (float const number : row) {
      numbers.push_back(static_cast<int>(std::nearbyint(number * inverse)));
    }
    scale = max / 127;
  }
};

class Int8GemmTest : public BuiltInKernelsTest {
 protected:
  void SetUp() override {
    if (kernel_memory_space() == MemorySpace::device) {
      GTEST_SKIP() << "int8 computes on the host";
    }
  }

  Gemm& int8() { return *registries_.of<Gemm>().select("int8", {.transpose_b = true}); }

  static GemmCall make_call(Int8Sizes const& size, DType a, DType b, DType c, int bits) {
    auto const& [m, n, k] = size;
    bool const strided = (bits & 8) != 0;
    GemmCall call;
    call.a = strided_tensor(random_values(m * k, 1), a, {m, k}, strided ? 3 : 0);
    call.b = strided_tensor(random_values(n * k, 2), b, {n, k}, strided ? 5 : 0);
    call.c = strided_tensor(random_values(m * n, 3), c, {m, n}, strided ? 7 : 0);
    call.bias = (bits & 4) != 0 ? tensor_of(random_values(n, 4), DType::float32, {n}) : Tensor();
    call.transpose_b = true;
    call.accumulate = (bits & 2) != 0;
    return call;
  }

  /// Integer sums by hand, then the same operations in float32 as the implementation: equal bits are expected.
  static Values by_hand(GemmCall const& call) {
    GemmProblem const problem = call.problem();
    Values const a = values(call.a);
    Values const b = values(call.b);
    Values c = values(call.c);
    Values const bias = call.bias.empty() ? Values(static_cast<std::size_t>(problem.n)) : values(call.bias);
    auto const row = [&](Values const& matrix, std::int64_t first) {
      std::vector<float> numbers;
      for (std::int64_t i = 0; i < problem.k; ++i) {
        numbers.push_back(static_cast<float>(matrix[static_cast<std::size_t>(first + i)]));
      }
      return Quantised(numbers);
    };
    std::vector<Quantised> columns;
    for (std::int64_t j = 0; j < problem.n; ++j) {
      columns.push_back(row(b, j * problem.k));
    }
    for (std::int64_t i = 0; i < problem.m; ++i) {
      Quantised const factors = row(a, i * problem.k);
      for (std::int64_t j = 0; j < problem.n; ++j) {
        auto const index = static_cast<std::size_t>(j);
        int sum = 0;
        for (std::size_t p = 0; p < factors.numbers.size(); ++p) {
          sum += factors.numbers[p] * columns[index].numbers[p];
        }
        float const volatile scale = factors.scale * columns[index].scale;  // no contraction
        float volatile number = static_cast<float>(sum) * scale;
        number = number + static_cast<float>(bias[index]);
        double& result = c[static_cast<std::size_t>(i * problem.n + j)];
        number = problem.accumulate ? number + static_cast<float>(result) : number;
        result = problem.output_dtype == DType::bfloat16 ? static_cast<float>(BFloat16(number)) : number;
      }
    }
    return c;
  }
};

TEST_F(Int8GemmTest, EveryInstructionSetGivesTheBitsOfTheDefinition) {
  // Rests of blocks in each dimension; one and two matrix registers of rows; more rows than a chunk.
  constexpr std::array sizes{Int8Sizes{1, 1, 1},     Int8Sizes{1, 37, 19},  Int8Sizes{33, 33, 65},
                             Int8Sizes{15, 67, 301}, Int8Sizes{70, 16, 64}, Int8Sizes{5, 9, 2048},
                             Int8Sizes{261, 2, 6}};
  constexpr std::array float32{DType::float32, DType::float32, DType::float32};
  constexpr std::array bfloat16{DType::bfloat16, DType::float32, DType::bfloat16};
  constexpr std::array mixed{DType::bfloat16, DType::bfloat16, DType::float32};
  std::array<KernelRegistries, cpu_levels.size()> registries;
  for (CpuLevel const level : cpu_levels) {
    register_built_in_kernels(registries[static_cast<std::size_t>(level)], std::min(level, usable_cpu_level()));
  }
  std::uint64_t weight = 0;
  for (Int8Sizes const& size : sizes) {
    for (auto const& [a, b, c] : {float32, bfloat16, mixed}) {
      for (int bits = 0; bits < 16; ++bits) {
        std::uint64_t const id = (bits & 1) != 0 ? ++weight : 0;
        Values const expected = by_hand(make_call(size, a, b, c, bits));
        for (CpuLevel const level : cpu_levels) {
          GemmCall call = make_call(size, a, b, c, bits);
          call.b_weight = {id, 1};
          registries[static_cast<std::size_t>(level)].of<Gemm>().select("int8", {})->multiply(execution_, call);
          ASSERT_EQ(values(call.c), expected) << name_of(level) << " " << size.m << "x" << size.n << "x" << size.k
                                              << " " << name_of(a) << " " << name_of(c) << " " << bits;
          expect_padding_untouched(call.c, "int8");
        }
      }
    }
  }
  EXPECT_EQ(scratch_.mark(), 0U);
}

TEST_F(Int8GemmTest, RowsThatAreNotFiniteStaySo) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (float const number : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    GemmCall call = make_call({3, 5, 40}, DType::float32, DType::float32, DType::float32, 1);
    std::vector<float> a = to_host<float>(call.a);
    a[45] = number;
    copy_from_host(call.a, a.data());
    int8().multiply(execution_, call);
    Values const c = values(call.c);
    for (std::size_t i = 0; i < c.size(); ++i) {
      EXPECT_EQ(std::isfinite(c[i]), i / 5 != 1) << i;
    }
  }
}

TEST_F(Int8GemmTest, RowsOfZerosAndTinyNumbersGiveTheBias) {
  GemmCall call = make_call({2, 5, 40}, DType::float32, DType::float32, DType::float32, 5);
  std::vector<float> a(80);
  std::fill(a.begin() + 40, a.end(), 1e-38F);
  copy_from_host(call.a, a.data());
  int8().multiply(execution_, call);
  Values expected = values(call.bias);
  expected.insert(expected.end(), expected.begin(), expected.end());
  EXPECT_EQ(values(call.c), expected);
}

TEST_F(Int8GemmTest, GradientsAreThoseWithoutIt) {
  for (bool const of_weight : {false, true}) {
    GemmCall call = make_call({4, 5, 6}, DType::float32, DType::float32, DType::float32, of_weight ? 2 : 0);
    call.b = tensor_of(random_values(30, 2), DType::float32, {6, 5});
    call.transpose_b = false;
    if (of_weight) {
      call.a = tensor_of(random_values(24, 1), DType::float32, {6, 4});
      call.transpose_a = true;
    }
    GemmCall plain = call;
    plain.c = tensor_of(values(call.c), DType::float32, {4, 5});
    ASSERT_TRUE(int8().supports(call.problem()));
    int8().multiply(execution_, call);
    registries_.of<Gemm>().select("auto", plain.problem())->multiply(execution_, plain);
    EXPECT_EQ(values(call.c), values(plain.c));
  }
}

}  // namespace
}  // namespace heddle
