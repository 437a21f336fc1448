#include <heddle/core/operations/gemm.hpp>

#include "kernel_fixture.hpp"

namespace heddle {
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
    first.reserve(weights);
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

/// A step's forward product may fill the copy for the input's gradient, too: that copy is of the new weights, and holds
/// the same elements as one that is packed alone. Sizes that are not multiples of a panel, and several panels.
TEST_F(PackedWeightsTest, CopiesForBothPassesAreOfTheSameVersion) {
  constexpr std::int64_t rows = 5;
  constexpr std::int64_t outputs = 77;
  constexpr std::int64_t inputs = 131;
  Tensor const w = Tensor::allocate(DType::float32, {outputs, inputs});
  auto const fill = [&](std::uint64_t seed) {
    Tensor const drawn = tensor_of(random_values(outputs * inputs, seed), DType::float32, {outputs, inputs});
    copy_from_host(w, to_host<float>(drawn).data());
  };
  auto const product = [&](Gemm& gemm, bool forward, std::uint64_t id, std::uint64_t version) {
    std::int64_t const k = forward ? inputs : outputs;
    std::int64_t const n = forward ? outputs : inputs;
    GemmCall const call{.a = tensor_of(random_values(rows * k, 7), DType::bfloat16, {rows, k}),
                        .b = w,
                        .c = Tensor::allocate(DType::bfloat16, {rows, n}),
                        .bias = {},
                        .transpose_b = forward,
                        .b_weight = {id, version}};
    gemm.multiply(execution_, call);
    return values(call.c);
  };
  GemmProblem const problem{
      .dtype = DType::bfloat16, .output_dtype = DType::bfloat16, .m = rows, .n = outputs, .k = inputs};
  for (auto const& entry : registries_.of<Gemm>().entries()) {
    Gemm& gemm = *entry.kernel;
    if (!gemm.supports(problem) || gemm.packed_bytes(problem) == 0) {
      continue;  // packs nothing
    }
    fill(3);
    product(gemm, true, 1, 1);
    Values const old_gradient = product(gemm, false, 1, 1);
    fill(11);
    Values const output = product(gemm, true, 1, 2);
    Values const gradient = product(gemm, false, 1, 2);
    EXPECT_NE(gradient, old_gradient) << entry.name;
    EXPECT_EQ(output, product(gemm, true, 2, 1)) << entry.name;
    EXPECT_EQ(gradient, product(gemm, false, 3, 1)) << entry.name;
  }
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
}  // namespace heddle
