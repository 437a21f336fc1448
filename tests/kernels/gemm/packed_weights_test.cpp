#include <heddle/core/operations/gemm.hpp>

#include "kernel_fixture.hpp"

namespace heddle::testing_support {
namespace {

/// More matrices than a small cache would hold: a rank of a deep model has them.
constexpr int weights = 1500;
/// At least as many columns as any implementation packs itself.
constexpr std::int64_t size = 32;

class PackedWeightsTest : public BuiltInKernelsTest {
 protected:
  /// y = x wᵀ by weight `index` of a model; x is the unit matrix.
  Values multiply(Gemm& gemm, int index, std::uint64_t first_id) {
    Values unit(size * size);
    for (std::int64_t i = 0; i < size; ++i) {
      unit[static_cast<std::size_t>(i * size + i)] = 1;
    }
    GemmCall const call{.a = tensor_of(unit, DType::float32, {size, size}),
                        .b = memory_.rows(index * size, size),
                        .c = Tensor::allocate(DType::float32, {size, size}),
                        .bias = {},
                        .transpose_b = true,
                        .b_weight = {first_id + static_cast<std::uint64_t>(index), 1}};
    gemm.multiply(execution_, call);
    return values(call.c);
  }

  GemmProblem problem() const { return {.m = size, .n = size, .k = size, .transpose_b = true}; }

  Tensor memory_ = tensor_of(random_values(weights * size * size, 3), DType::float32, {weights * size, size});
};

TEST_F(PackedWeightsTest, AsManyCopiesAreKeptAsTheModelHasWeights) {
  for (auto const& entry : registries_.of<Gemm>().entries()) {
    if (!entry.kernel->supports(problem()) || entry.kernel->packed_bytes(problem()) == 0) {
      continue;  // packs nothing
    }
    Tensor const kept = converted(memory_, DType::float32);
    std::vector<Values> first;
    for (int index = 0; index < weights; ++index) {
      first.push_back(multiply(*entry.kernel, index, 1));
    }
    EXPECT_EQ(entry.kernel->kept_bytes(), weights * entry.kernel->packed_bytes(problem())) << entry.name;
    // Only an earlier copy gives the same result after the weights changed without a new version.
    copy_from_host(memory_, std::vector<float>(static_cast<std::size_t>(memory_.size())).data());
    for (int index = 0; index < weights; ++index) {
      ASSERT_EQ(multiply(*entry.kernel, index, 1), first[static_cast<std::size_t>(index)]) << entry.name << index;
    }
    copy_from_host(memory_, to_host<float>(kept).data());
  }
}

TEST_F(PackedWeightsTest, CopiesOfWeightsThatAreGoneGoToo) {
  Gemm& gemm = *registries_.of<Gemm>().select("kokkos", problem());
  for (int index = 0; index < weights; ++index) {
    multiply(gemm, index, 1);
  }
  std::size_t const before = gemm.kept_bytes();
  for (int call = 0; call < 64 * weights + 10; ++call) {
    multiply(gemm, call % 10, 1000000);
  }
  EXPECT_LT(gemm.kept_bytes(), before);
  EXPECT_EQ(registries_.kept_bytes(), gemm.kept_bytes()) << "nobody else keeps anything";
}

/// oneDNN 2.6.3 has only its reference loops for a packed weight and rows with gaps.
TEST_F(PackedWeightsTest, OneDnnPacksOnlyForMatricesWithoutGaps) {
  auto const gemm = std::static_pointer_cast<Gemm>(registries_.of<Gemm>().find("onednn"));
  if (gemm == nullptr || !gemm->supports(problem())) {
    GTEST_SKIP() << "this build has no oneDNN that computes in the kernels' memory";
  }
  Tensor const part = Tensor::allocate(DType::float32, {size, 2 * size}).columns(size, size);
  Tensor const dense = Tensor::allocate(DType::float32, {size, size});
  auto const kept_for = [&](Tensor const& a, Tensor const& c) {
    std::size_t const before = gemm->kept_bytes();
    gemm->multiply(execution_,
                   {.a = a, .b = memory_.rows(0, size), .c = c, .bias = {}, .transpose_b = true, .b_weight = {1, 1}});
    return gemm->kept_bytes() - before;
  };
  EXPECT_EQ(kept_for(part, dense), 0);
  EXPECT_EQ(kept_for(dense, part), 0);
  EXPECT_EQ(kept_for(dense, dense), gemm->packed_bytes(problem()));
}

}  // namespace
}  // namespace heddle::testing_support
