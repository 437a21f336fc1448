#include <heddle/core/attention/attention_core.hpp>
#include <heddle/core/model/built_in_layers.hpp>

namespace heddle {

void register_built_in_layers(LayerRegistry& registry) {
  register_attention_layers(registry);
  register_recurrent_layers(registry);
  register_feed_forward(registry);
  register_mixture_of_experts(registry);
  register_token_embedding(registry);
}

}  // namespace heddle
