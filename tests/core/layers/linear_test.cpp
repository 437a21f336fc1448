#include <heddle/core/layers/linear.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

class CountedProgress final : public GradientProgress {
 public:
  void use_done(Parameter const& /*parameter*/) override {}
  void progress() override { ++calls; }

  int calls = 0;
};

Tensor numbered(std::string const& name, Shape const& shape) {
  return random_tensor(DType::float32, shape, random_key(0, name));
}

/// The gradients of the input and of the weights of a large Linear.
std::vector<double> gradients(GradientProgress* progress) {
  constexpr std::int64_t tokens = 1200;
  constexpr std::int64_t width = 1024;
  TestBench bench(ModelConfig(), DType::float32, KernelChoices());
  Linear const linear(bench.spec("linear", Side::target), {width, width}, Linear::Split::none);
  bench.allocate();
  bench.zero_gradients();
  Pack const pack = make_pack(std::vector<Sample>{{0, {}, {}}}, test_ids);
  LayerContext context = bench.context(pack, true);
  context.gradients = progress;
  Tensor const x = numbered("x", {tokens, width});
  auto result = values(linear.backward(context, numbered("grad_y", {tokens, width}), x));
  auto const of_parameters = values(bench.parameters().gradients());
  result.insert(result.end(), of_parameters.begin(), of_parameters.end());
  return result;
}

TEST(Linear, LargeProductsLetCommunicationProgressInBetween) {
  CountedProgress progress;
  auto const in_parts = gradients(&progress);
  // A device does not keep the host waiting, so that there the input gradient is one part.
  int const parts = kernel_memory_space() == MemorySpace::host ? 2 : 1;
  EXPECT_GE(progress.calls, 1 + parts) << "after the weight gradient, and after the parts of the input gradient";
  EXPECT_THAT(in_parts, Pointwise(DoubleNear(1e-3), gradients(nullptr)));
}

}  // namespace
}  // namespace heddle
