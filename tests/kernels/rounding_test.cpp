#include <bit>
#include <cmath>
#include <heddle/core/operations/elements.hpp>
#include <heddle/core/operations/embedding.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/residual_norm.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

#include "kernel_fixture.hpp"

namespace heddle {
namespace {

/// NaN of every kind: quiet and signalling, of both signs, with all, some or only the lowest bits of the payload set.
constexpr std::uint32_t nan_bits[] = {0x7fc00000U, 0xffc00000U, 0x7fffffffU, 0xffffffffU, 0x7f800001U, 0xff800001U,
                                      0x7f80ffffU, 0xff80ffffU, 0x7fff8000U, 0xffff8000U, 0x7fbfffffU, 0xffbfffffU};

/// `count` times this NaN in float32.
Tensor nan_tensor(std::uint32_t bits, Shape const& shape) {
  std::vector<float> const elements(static_cast<std::size_t>(shape.size()), std::bit_cast<float>(bits));
  return from_host<float>(elements, shape);
}

void expect_all_nan(Tensor const& tensor, std::string const& what) {
  Values const all = values(tensor);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(std::isnan(all[i])) << what << ": element " << i << " is " << all[i];
  }
}

TEST(Rounding, KeepsEveryNanAndItsSign) {
  for (std::uint32_t const bits : nan_bits) {
    auto const rounded = kernels::narrow<BFloat16>(std::bit_cast<float>(bits));
    EXPECT_TRUE(std::isnan(static_cast<float>(rounded))) << std::hex << bits;
    EXPECT_EQ(rounded.bits >> 15, bits >> 31) << std::hex << bits;
  }
}

TEST(Rounding, IsThatOfBFloat16ForEveryUpperHalf) {
  for (std::uint32_t upper = 0; upper <= 0xffffU; ++upper) {
    for (std::uint32_t const lower : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      auto const number = std::bit_cast<float>((upper << 16) | lower);
      ASSERT_EQ(kernels::narrow<BFloat16>(number).bits, BFloat16(number).bits) << std::hex << upper << ' ' << lower;
    }
  }
}

/// Poison reaches a step's check of its numbers only if no kernel rounds it to a number before.
class PoisonTest : public BuiltInKernelsTest, public testing::WithParamInterface<std::uint32_t> {
 protected:
  template <class Interface, class Problem, class Check>
  void for_each_kernel(KernelRegistry<Interface> const& registry, Problem const& problem, Check const& check) {
    for (auto const& entry : registry.entries()) {
      if (entry.kernel->supports(problem)) {
        check(*entry.kernel, entry.name);
      }
    }
  }
};

TEST_P(PoisonTest, StaysNanInCopiesAndFillings) {
  Shape const shape{3, 77};
  for_each_kernel(registries_.of<TensorOps>(), TensorOpsProblem{DType::bfloat16},
                  [&](TensorOps& ops, auto const& name) {
                    Tensor const copy = Tensor::allocate(DType::bfloat16, shape);
                    ops.copy(execution_, nan_tensor(GetParam(), shape), copy);
                    expect_all_nan(copy, name + " copy");
                    Tensor const filled = Tensor::allocate(DType::bfloat16, shape);
                    ops.fill(execution_, filled, static_cast<double>(std::bit_cast<float>(GetParam())));
                    expect_all_nan(filled, name + " fill");
                  });
}

TEST_P(PoisonTest, StaysNanInNorms) {
  for (std::int64_t const columns : {67, 96}) {
    ResidualNormCall call;
    call.residual = random_tensor(DType::bfloat16, {5, columns}, 1);
    call.weight = random_tensor(DType::float32, {columns}, 2);
    call.bias = nan_tensor(GetParam(), {columns});
    for_each_kernel(registries_.of<ResidualNorm>(), call.problem(), [&](ResidualNorm& kernel, auto const& name) {
      ResidualNormOutput output;
      output.normalized = Tensor::allocate(DType::bfloat16, {5, columns});
      output.mean = Tensor::allocate(DType::float32, {5});
      output.reciprocal_deviation = Tensor::allocate(DType::float32, {5});
      kernel.forward(execution_, call, output);
      expect_all_nan(output.normalized, name);
    });
  }
}

TEST_P(PoisonTest, StaysNanInProducts) {
  for (bool const in_bias : {false, true}) {
    GemmCall call;
    call.a = random_tensor(DType::bfloat16, {9, 35}, 1, 0.5, 1);
    call.b = in_bias ? random_tensor(DType::float32, {35, 21}, 2) : nan_tensor(GetParam(), {35, 21});
    call.bias = in_bias ? nan_tensor(GetParam(), {21}) : Tensor{};
    call.c = Tensor::allocate(DType::bfloat16, {9, 21});
    for_each_kernel(registries_.of<Gemm>(), call.problem(), [&](Gemm& kernel, auto const& name) {
      kernel.multiply(execution_, call);
      expect_all_nan(call.c, name);
    });
  }
}

TEST_P(PoisonTest, StaysNanInEmbeddings) {
  EmbeddingCall call;
  call.table = nan_tensor(GetParam(), {11, 40});
  call.rows = token_rows({4, 3});
  call.tokens.id = int_tensor({0, 1, 2, 3, 4, 5, 6});
  for_each_kernel(registries_.of<Embedding>(), call.problem(DType::bfloat16), [&](Embedding& kernel, auto const& name) {
    Tensor const output = Tensor::allocate(DType::bfloat16, {7, 40});
    kernel.forward(execution_, call, output);
    expect_all_nan(output, name);
  });
}

INSTANTIATE_TEST_SUITE_P(Nan, PoisonTest, testing::ValuesIn(nan_bits));

}  // namespace
}  // namespace heddle
