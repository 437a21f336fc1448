#include <fmt/format.h>

#include <heddle/core/base/error.hpp>

#include "attention_position_kinds.hpp"

namespace heddle {

namespace {

/// A learned bias of the scores for each head and each distance between a key and a query, up to model.max_distance on
/// either side: STACK.attention_bias.weight [heads, 2 * max_distance + 1], shared by the layers of the stack (as in
/// Raffel et al. 2020, without their buckets). Heads are split over the tensor group.
class RelativePositions final : public AttentionPositions {
 public:
  explicit RelativePositions(AttentionPositionsSpec const& spec)
      : weight_(spec.stack.parameters.reserve({.name = spec.stack.name + ".attention_bias.weight",
                                               .shape = {spec.heads, 2 * spec.stack.model.max_distance + 1},
                                               .initializer = Initializer::zeros(),
                                               .shard = {0},
                                               .stages = spec.stages})) {}

  void add_layer(LayerSpec const& spec, std::int64_t heads, std::int64_t /*head_dim*/) override {
    if (heads != weight_.spec.shape[0]) {
      throw ConfigError(fmt::format(
          "{} = {}: model.positions = \"relative\" is a bias for each head that all layers of a stack share, "
          "and {} has not as many heads as the stack's first layer with positions: {}",
          spec.model.place("heads"), heads, spec.name, weight_.spec.shape[0]));
    }
    spec.parameters.add_use(weight_);
  }

  bool has_bias() const override { return true; }
  Tensor bias(LayerContext& /*context*/) const override { return weight_.value; }
  Tensor bias_gradient(LayerContext& /*context*/) const override { return weight_.gradient; }

 private:
  Parameter& weight_;
};

}  // namespace

std::shared_ptr<AttentionPositions> make_relative_positions(AttentionPositionsSpec const& spec) {
  return std::make_shared<RelativePositions>(spec);
}

}  // namespace heddle
