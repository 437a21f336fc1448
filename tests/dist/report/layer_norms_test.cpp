#include <heddle/dist/report/layer_norms.hpp>

#include "dist_fixture.hpp"
#include "synthetic_model.hpp"

namespace heddle {
namespace {

TEST(LayerOfTest, IsTheSublayer) {
  EXPECT_EQ(layer_of("encoder.layers.0.self_attention.q.weight"), "encoder.layers.0.self_attention");
  EXPECT_EQ(layer_of("decoder.layers.11.feed_forward.norm.bias"), "decoder.layers.11.feed_forward");
  EXPECT_EQ(layer_of("decoder.layers.11.weight"), "decoder.layers.11.weight");
  EXPECT_EQ(layer_of("embedding.weight"), "embedding.weight");
}

using LayerNormsTest = DistTest;

double norm_of(std::vector<double> const& parts) {
  return std::sqrt(std::inner_product(parts.begin(), parts.end(), parts.begin(), 0.0));
}

TEST_F(LayerNormsTest, TogetherTheyAreTheNormsOfTheWholeModel) {
  for (auto const& sizes : layouts_of(world_.size())) {
    for (bool const sharded : {false, true}) {
      SyntheticModel model(state_of(sizes), {.shard = sharded});
      double const gradient = model.step(0, 4);
      LayerNorms const norms =
          layer_norms(model.parallel, model.model, model.parameters, model.optimizer,
                      *model.registries.of<TensorOps>().select("auto", {DType::float32}), model.execution);
      SCOPED_TRACE(model.parallel.mesh.to_string() + (sharded ? ", sharded" : ""));
      EXPECT_NEAR(norm_of(norms.gradients), gradient, 1e-6 * gradient);
      std::map<std::string, double> squares;
      for (WholeTensor const& tensor : model.gathered()) {  // on rank 0
        std::vector<float> const& value = tensor.arrays.at(value_key);
        squares[layer_of(tensor.name)] += std::inner_product(value.begin(), value.end(), value.begin(), 0.0);
      }
      for (std::size_t layer = 0; layer < norms.layers.size() && world_.rank() == 0; ++layer) {
        EXPECT_NEAR(norms.parameters[layer], std::sqrt(squares.at(norms.layers[layer])), 1e-5) << norms.layers[layer];
      }
    }
  }
}

}  // namespace
}  // namespace heddle
