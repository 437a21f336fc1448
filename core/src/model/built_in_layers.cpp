#include <heddle/core/attention/cross_attention.hpp>
#include <heddle/core/attention/self_attention.hpp>
#include <heddle/core/layers/feed_forward.hpp>
#include <heddle/core/model/built_in_layers.hpp>

namespace heddle {

void register_built_in_layers(LayerRegistry& registry) {
  registry.add(
      "self_attention", [](LayerSpec const& spec) { return std::make_unique<SelfAttention>(spec); },
      SelfAttention::traits());
  registry.add(
      "cross_attention", [](LayerSpec const& spec) { return std::make_unique<CrossAttention>(spec); },
      CrossAttention::traits());
  registry.add(
      "feed_forward", [](LayerSpec const& spec) { return std::make_unique<FeedForward>(spec); }, FeedForward::traits());
}

}  // namespace heddle
