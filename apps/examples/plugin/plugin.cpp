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
  // Three products with a parameter of [d_ff, d_model]: the cost that the pipeline cut uses.
  auto const multiplications = [](heddle::ModelConfig const& keys, heddle::LayerOptions const&) {
    return 3 * keys.d_model * keys.d_ff;
  };
  registries.layers.add("gated_feed_forward",
                        [](heddle::LayerSpec const& spec) { return std::make_unique<swish::GatedFeedForward>(spec); },
                        {.multiplications = multiplications});
}

}  // namespace

HEDDLE_PLUGIN(register_all)
