#include <heddle/core/operations/activation.hpp>
#include <heddle/core/plugins/entry.hpp>

#include "gated_feed_forward.hpp"
#include "product.hpp"
#include "swish.hpp"

namespace {

void register_all(heddle::Registries& registries) {
  constexpr int speed = 10;  // `auto` selects the highest: reference is 0, kokkos 10, vendor libraries 20
  registries.kernels.of<heddle::Activation>().add("swish", speed, swish::make_swish());
  registries.kernels.of<swish::Product>().add("portable", speed, swish::make_product());
  // The cost that the pipeline cut uses: three products with a parameter of [d_ff, d_model].
  auto const cost = [](heddle::ModelConfig const& keys, heddle::LayerOptions const&, heddle::LayerLoad const& load) {
    return 2 * heddle::linear_cost(load, keys.d_model, keys.d_ff) + heddle::linear_cost(load, keys.d_ff, keys.d_model);
  };
  auto const refusal = [](heddle::ModelConfig const& keys, heddle::LayerOptions const&, heddle::LayerUse const& use) {
    return heddle::uneven_over_tensor("model.d_ff", keys.d_ff, use);
  };
  registries.layers.add("gated_feed_forward",
                        [](heddle::LayerSpec const& spec) { return std::make_unique<swish::GatedFeedForward>(spec); },
                        {.cost = cost, .refusal = refusal});
}

}  // namespace

HEDDLE_PLUGIN(register_all)
