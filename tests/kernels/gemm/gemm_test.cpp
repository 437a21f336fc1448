#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/gemm.hpp>

#include "golden_model.hpp"
#include "kernel_fixture.hpp"

namespace heddle {
namespace {

struct Sizes {
  std::int64_t m, n, k;
};

/// Sizes that no block size divides, single rows and columns, more than one chunk and block in each dimension.
std::vector<Sizes> const sizes{{1, 1, 1},     {1, 37, 19},  {37, 29, 1},  {65, 33, 47},
                               {579, 21, 35}, {9, 67, 301}, {19, 23, 643}};

struct Variant {
  bool transpose_a, transpose_b, accumulate, bias, strided;

  std::string name() const {
    return std::string(transpose_a ? " aᵀ" : " a") + (transpose_b ? " bᵀ" : " b") + (accumulate ? " +=" : " =") +
           (bias ? " bias" : "") + (strided ? " strided" : "");
  }
};

std::vector<Variant> all_variants() {
  std::vector<Variant> variants;
  for (int bits = 0; bits < 32; ++bits) {
    variants.push_back({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0});
  }
  return variants;
}

struct Types {
  DType a, b, c;

  std::string name() const {
    return " " + std::string(name_of(a)) + " by " + std::string(name_of(b)) + " to " + std::string(name_of(c));
  }
};

Types const float32_types{DType::float32, DType::float32, DType::float32};
std::vector<Types> const bfloat16_types{{DType::bfloat16, DType::bfloat16, DType::bfloat16},
                                        {DType::bfloat16, DType::bfloat16, DType::float32},
                                        {DType::bfloat16, DType::float32, DType::bfloat16},
                                        {DType::bfloat16, DType::float32, DType::float32},
                                        {DType::float32, DType::bfloat16, DType::float32}};

GemmCall make_call(Sizes const& size, Variant const& variant, Types const& types) {
  auto const matrix = [&](DType type, std::int64_t rows, std::int64_t columns, std::uint32_t seed,
                          std::int64_t padding) {
    return strided_tensor(random_values(rows * columns, seed), type, Shape{rows, columns},
                          variant.strided ? padding : 0);
  };
  GemmCall call;
  call.a = variant.transpose_a ? matrix(types.a, size.k, size.m, 1, 3) : matrix(types.a, size.m, size.k, 1, 3);
  call.b = variant.transpose_b ? matrix(types.b, size.n, size.k, 2, 5) : matrix(types.b, size.k, size.n, 2, 5);
  call.c = matrix(types.c, size.m, size.n, 3, 7);
  call.bias = variant.bias ? tensor_of(random_values(size.n, 4), statistics_dtype(types.c), Shape{size.n}) : Tensor();
  call.transpose_a = variant.transpose_a;
  call.transpose_b = variant.transpose_b;
  call.accumulate = variant.accumulate;
  return call;
}

GemmCall make_call(Sizes const& size, Variant const& variant, DType dtype) {
  return make_call(size, variant, {dtype, dtype, dtype});
}

/// The call with b as the first version of a weight; not a weight where the id is 0.
GemmCall as_weight(GemmCall call, std::uint64_t id) {
  call.b_weight = {id, 1};
  return call;
}

/// The same call in float64, with every tensor's rounded numbers.
GemmCall widened(GemmCall const& call) {
  auto const wide = [](Tensor const& tensor) {
    return tensor.empty() ? Tensor() : tensor_of(values(tensor), DType::float64, tensor.shape());
  };
  GemmCall oracle = call;
  oracle.a = wide(call.a);
  oracle.b = wide(call.b);
  oracle.c = wide(call.c);
  oracle.bias = wide(call.bias);
  return oracle;
}

class GemmTest : public BuiltInKernelsTest {
 protected:
  Gemm& reference() { return *registries_.of<Gemm>().select("reference", {}); }

  /// Quantised ones have a test of their own.
  static bool is_compared(KernelEntry<Gemm> const& entry, GemmProblem const& problem) {
    return entry.kernel->accuracy() != Accuracy::quantised && entry.kernel->supports(problem);
  }

  void check(KernelEntry<Gemm> const& entry, GemmCall const& call, std::string const& what) {
    if (is_compared(entry, call.problem())) {
      compare(entry, call, product(call), what);
    }
  }

  /// Checks every implementation with a call of its own: `make()` always makes the same one.
  template <class Make>
  void check_all(Make const& make, std::string const& what) {
    Values const expected = product(make());
    for (auto const& entry : registries_.of<Gemm>().entries()) {
      if (GemmCall const call = make(); is_compared(entry, call.problem())) {
        compare(entry, call, expected, what);
      }
    }
  }

  /// The result of the call, by the definition in float64.
  Values product(GemmCall const& call) {
    GemmCall const oracle = widened(call);
    reference().multiply(execution_, oracle);
    return values(oracle.c);
  }

  void compare(KernelEntry<Gemm> const& entry, GemmCall const& call, Values const& expected, std::string const& what) {
    entry.kernel->multiply(execution_, call);
    expect_values(call.c, expected, call.c.dtype(), entry.name + what);
    expect_padding_untouched(call.c, what);
    EXPECT_EQ(scratch_.mark(), 0U);
    ++checked;
  }

  int checked = 0;
};

TEST_F(GemmTest, EveryImplementationAgreesWithTheDefinition) {
  for (Sizes const& size : sizes) {
    for (Variant const& variant : all_variants()) {
      std::string const what =
          " " + std::to_string(size.m) + "x" + std::to_string(size.n) + "x" + std::to_string(size.k) + variant.name();
      for (DType const dtype : {DType::float32, DType::float64}) {
        check_all([&] { return make_call(size, variant, dtype); }, what + " " + std::string(name_of(dtype)));
      }
      check_all([&] { return as_weight(make_call(size, variant, DType::float32), 9); }, what + " weight");
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_GE(checked, 3 * 32 * 7);
}

TEST_F(GemmTest, BFloat16InEveryCombination) {
  for (Sizes const& size : {Sizes{1, 37, 19}, Sizes{67, 29, 41}, Sizes{3, 20, 643}, Sizes{37, 41, 96}}) {
    for (Variant const& variant : all_variants()) {
      for (Types const& types : bfloat16_types) {
        for (std::uint64_t const weight : {0U, 11U}) {
          check_all([&] { return as_weight(make_call(size, variant, types), weight); },
                    types.name() + variant.name() + (weight > 0 ? " weight" : ""));
          ASSERT_FALSE(HasFailure());
        }
      }
    }
  }
  // At least the reference and the kokkos implementation, on every machine.
  EXPECT_GE(checked, 2 * 3 * 32 * 5 * 2);
}

TEST_F(GemmTest, AFactorInBFloat16GivesTheProductOfItsNumbersInFloat32) {
  for (auto const& entry : registries_.of<Gemm>().entries()) {
    for (Variant const& variant : all_variants()) {
      GemmCall const call = make_call({67, 29, 641}, variant, {DType::float32, DType::bfloat16, DType::float32});
      GemmCall same = make_call({67, 29, 641}, variant, float32_types);
      same.b = tensor_of(values(call.b), DType::float32, call.b.shape());
      if (entry.kernel->supports(call.problem())) {
        entry.kernel->multiply(execution_, call);
        entry.kernel->multiply(execution_, as_weight(same, 17));
        // oneDNN multiplies by a copy in float32 without packing it, and then adds in another order.
        EXPECT_LE(relative_error(values(call.c), values(same.c)), entry.name == "onednn" ? 2e-6 : 0)
            << entry.name << variant.name();
      }
    }
  }
}

TEST_F(GemmTest, AFloat32FactorIsRoundedToBFloat16First) {
  // Each 1 + 2⁻⁹ becomes 1: the sum of 512 of them is 512, not 513.
  for (auto const& entry : registries_.of<Gemm>().entries()) {
    for (std::uint64_t const weight : {0U, 3U}) {
      GemmCall call;
      call.a = tensor_of(Values(512, 1.0), DType::bfloat16, Shape{1, 512});
      call.b = tensor_of(Values(512, 1.0 + 0x1p-9), DType::float32, Shape{512, 1});
      call.c = Tensor::allocate(DType::float32, Shape{1, 1});
      call.b_weight = {weight, 1};
      if (is_compared(entry, call.problem())) {
        entry.kernel->multiply(execution_, call);
        EXPECT_EQ(values(call.c), Values{512}) << entry.name;
      }
    }
  }
}

TEST_F(GemmTest, OnlyTheElementTypesOfTheContractAreSupported) {
  for (auto const& entry : registries_.of<Gemm>().entries()) {
    for (Types const& types :
         {Types{DType::float64, DType::bfloat16, DType::float64},
          Types{DType::float32, DType::float32, DType::bfloat16},
          Types{DType::bfloat16, DType::float64, DType::bfloat16},
          Types{DType::bfloat16, DType::bfloat16, DType::float64}, Types{DType::int32, DType::int32, DType::int32}}) {
      GemmProblem const problem{.dtype = types.a, .b_dtype = types.b, .output_dtype = types.c, .m = 4, .n = 4, .k = 4};
      EXPECT_FALSE(entry.kernel->supports(problem)) << entry.name << types.name();
    }
  }
}

TEST_F(GemmTest, TheDefinitionByHand) {
  GemmCall call;
  call.a = tensor_of({1, 2, 3, 4, 5, 6}, DType::float64, Shape{2, 3});
  call.b = tensor_of({1, 0, -1, 2, 1, 0}, DType::float64, Shape{2, 3});
  call.c = tensor_of({100, 200, 300, 400}, DType::float64, Shape{2, 2});
  call.bias = tensor_of({10, 20}, DType::float64, Shape{2});
  call.transpose_b = true;
  reference().multiply(execution_, call);
  EXPECT_EQ(values(call.c), (Values{8, 24, 8, 33}));
  call.accumulate = true;
  reference().multiply(execution_, call);
  EXPECT_EQ(values(call.c), (Values{16, 48, 16, 66}));
}

TEST_F(GemmTest, NothingToMultiply) {
  for (auto const& entry : registries_.of<Gemm>().entries()) {
    for (Variant const& variant : all_variants()) {
      for (Sizes const& size : {Sizes{0, 5, 3}, Sizes{5, 0, 3}, Sizes{5, 7, 0}, Sizes{0, 0, 0}}) {
        for (Types const& types : {float32_types, bfloat16_types[1], bfloat16_types[2]}) {
          Variant const plain{variant.transpose_a, variant.transpose_b, variant.accumulate, variant.bias, false};
          check(entry, make_call(size, plain, types), " empty" + types.name() + variant.name());
          ASSERT_FALSE(HasFailure());
        }
      }
    }
  }
}

TEST_F(GemmTest, ANewVersionOfAWeightIsSeen) {
  std::uint64_t id = 42;
  for (Types const& types : {float32_types, bfloat16_types[2], bfloat16_types[3]}) {
    for (auto const& entry : registries_.of<Gemm>().entries()) {
      GemmCall call = make_call({33, 20, 17}, {false, true, false, true, false}, types);
      call.b_weight = {++id, 1};
      check(entry, call, " first version");
      copy_from_host(call.b, to_host<float>(tensor_of(random_values(340, 77), DType::float32, Shape{20, 17})).data());
      call.b_weight.version = 2;
      check(entry, call, " second version");
      copy_from_host(call.b, to_host<float>(tensor_of(random_values(340, 78), DType::float32, Shape{20, 17})).data());
      call.b_weight.version = 1;
      check(entry, call, " back at a version seen before");
      GemmCall part = call;
      part.b = call.b.rows(5, 9);
      part.c = Tensor::allocate(types.c, Shape{33, 9});
      part.bias = call.bias.rows(5, 9);
      check(entry, part, " some rows of the same weight");
      GemmCall other = call;
      other.transpose_b = false;
      other.a = tensor_of(random_values(660, 79), types.a, Shape{33, 20});
      other.c = tensor_of(random_values(561, 80), types.c, Shape{33, 17});
      other.bias = Tensor();
      check(entry, other, " the same weight, not transposed");
    }
  }
}

TEST_F(GemmTest, TheSameCallGivesTheSameBits) {
  for (Types const& types : {float32_types, bfloat16_types[1], bfloat16_types[2]}) {
    for (auto const& entry : registries_.of<Gemm>().entries()) {
      for (Variant const& variant : all_variants()) {
        GemmCall call = make_call({91, 37, 53}, variant, types);
        if (!entry.kernel->supports(call.problem())) {
          continue;
        }
        call.b_weight = {5, 1};
        entry.kernel->multiply(execution_, call);
        Values const first = values(call.c);
        // Another instance, with other values in its cache.
        KernelRegistries fresh;
        register_built_in_kernels(fresh);
        Gemm& again = *fresh.of<Gemm>().select(entry.name, call.problem());
        again.multiply(execution_, make_call({64, 37, 53}, variant, types));
        call.c = make_call({91, 37, 53}, variant, types).c;
        again.multiply(execution_, call);
        ASSERT_EQ(values(call.c), first) << entry.name << variant.name();
      }
    }
  }
}

TEST_F(GemmTest, ARowOfTheResultDoesNotDependOnTheOthers) {
  // For all but oneDNN, which chooses its code by the number of rows.
  for (auto const& entry : registries_.of<Gemm>().entries()) {
    for (Types const& types : {float32_types, bfloat16_types[1], bfloat16_types[2]}) {
      for (std::int64_t const row : {0, 57, 299}) {
        // With whole steps of k, `amx` reads rows in place.
        GemmCall const all = make_call({300, 41, row == 57 ? 544 : 530}, {false, true, false, true, true}, types);
        if (entry.name == "onednn" || !entry.kernel->supports(all.problem())) {
          continue;
        }
        GemmCall one = all;
        one.a = all.a.rows(row, 1);
        one.c = Tensor::allocate(types.c, Shape{1, 41});
        entry.kernel->multiply(execution_, all);
        entry.kernel->multiply(execution_, one);
        Values const whole = values(all.c);
        ASSERT_EQ(values(one.c), Values(whole.begin() + row * 41, whole.begin() + row * 41 + 41)) << entry.name;
      }
    }
  }
}

TEST_F(GemmTest, MoreRowsAndSumsThanABlockHolds) {
  // More rows than avx512 packs at once, more of k than its block; rows that share cache sets; columns for several
  // threads.
  for (Types const& types : {float32_types, bfloat16_types[0], bfloat16_types[1], bfloat16_types[2]}) {
    for (Sizes const& size : {Sizes{281, 33, 517}, Sizes{29, 70, 1101}, Sizes{31, 64, 1024}, Sizes{20, 701, 300}}) {
      for (Variant const& variant : {Variant{false, true, false, true, false}, Variant{false, false, true, false, true},
                                     Variant{true, false, true, true, false}}) {
        for (std::uint64_t const weight : {0U, 8U}) {
          check_all([&] { return as_weight(make_call(size, variant, types), weight); },
                    " blocks" + types.name() + variant.name());
          ASSERT_FALSE(HasFailure());
        }
      }
    }
  }
}

TEST_F(GemmTest, MoreColumnsThanTheMatrixRegistersBlockHolds) {
  // Two blocks of columns and of k for `amx`, and a weight of which it reads each panel once.
  constexpr Variant forward{false, true, false, true, false};
  constexpr Variant input_gradient{false, false, true, false, false};
  constexpr Variant weight_gradient{true, false, true, false, false};
  for (Types const& types : {bfloat16_types[2], float32_types}) {
    check_all([&] { return as_weight(make_call({513, 970, 544}, forward, types), 8); }, " blocks of a weight");
    check_all([&] { return as_weight(make_call({35, 1700, 320}, input_gradient, types), 9); }, " panels");
  }
  for (Types const& types : {bfloat16_types[1], float32_types}) {
    check_all([&] { return make_call({75, 700, 800}, weight_gradient, types); }, " blocks of a gradient");
  }
}

TEST_F(GemmTest, UnfinishedSumsOfWideRowsDoNotMix) {
  // Wide enough that avx512 finishes a few rows before it begins others.
  for (std::uint64_t const weight : {0U, 8U}) {
    check_all(
        [&] {
          return as_weight(make_call({29, 3300, 514}, {false, true, false, true, false}, bfloat16_types[2]), weight);
        },
        " wide");
  }
}

TEST_F(GemmTest, MoreShapesThanAreCachedStayRight) {
  auto const& entries = registries_.of<Gemm>().entries();
  auto const onednn = std::ranges::find(entries, "onednn", &KernelEntry<Gemm>::name);
  if (kernel_memory_space() == MemorySpace::device) {
    GTEST_SKIP() << "onednn, which keeps code for each shape, computes on the host";
  }
  ASSERT_NE(onednn, entries.end());
  for (int visit = 0; visit < 2; ++visit) {
    for (std::int64_t n = 1; n <= 9; ++n) {
      for (std::int64_t m = 1; m < 64; ++m) {
        check(*onednn, make_call({m, n, 4}, {false, true, false, false, false}, DType::float32), "");
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

TEST_F(GemmTest, ShapesThatDoNotFitAreErrors) {
  GemmCall call = make_call({4, 5, 6}, {false, false, false, true, false}, DType::float32);
  call.b = tensor_of(random_values(35, 1), DType::float32, Shape{7, 5});
  EXPECT_THROW(call.problem(), Error);
  call.b = tensor_of(random_values(30, 1), DType::float32, Shape{6, 5});
  call.bias = tensor_of(random_values(4, 1), DType::float32, Shape{4});
  EXPECT_THROW(call.problem(), Error);
}

}  // namespace
}  // namespace heddle
