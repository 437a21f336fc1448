#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

#include "attention_position_kinds.hpp"

namespace heddle {

namespace {

/// A learned bias of the scores for each head and some columns, which stand for distances between a key and a query:
/// STACK.attention_bias.weight [heads, columns], shared by the layers of the stack. Heads are split over the tensor
/// group.
class LearnedBias : public AttentionPositions {
 public:
  LearnedBias(AttentionPositionsSpec const& spec, std::int64_t columns)
      : weight_(spec.stack.parameters.reserve({.name = spec.stack.name + ".attention_bias.weight",
                                               .shape = {spec.heads, columns},
                                               .initializer = Initializer::zeros(),
                                               .shard = {0},
                                               .stages = spec.stages})) {}

  void add_layer(LayerSpec const& spec, std::int64_t heads, std::int64_t /*head_dim*/) override {
    require_heads_of_stack(spec, heads, weight_.spec.shape[0]);
    spec.parameters.add_use(weight_);
  }

  bool has_bias() const override { return true; }

 protected:
  Parameter& weight() const { return weight_; }

 private:
  Parameter& weight_;
};

/// A column for each distance up to model.max_distance on either side (as in Raffel et al. 2020, without their
/// buckets).
class RelativePositions final : public LearnedBias {
 public:
  explicit RelativePositions(AttentionPositionsSpec const& spec)
      : LearnedBias(spec, 2 * spec.stack.model.max_distance + 1) {}

  Tensor bias(LayerContext& /*context*/) const override { return weight().value; }
  Tensor bias_gradient(LayerContext& /*context*/) const override { return weight().gradient; }
};

/// The bucket of a distance = key position - query position (Raffel et al. 2020, as in their code). Half of the buckets
/// are for single distances, the others for ranges that grow as a logarithm up to max_distance; larger distances are in
/// the last bucket. Both directions have half of the buckets each; in a causal stack the past has them all, and keys
/// after the query share the bucket of distance 0.
std::int32_t bucket_of(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance, bool causal) {
  std::int64_t const of_direction = causal ? buckets : buckets / 2;
  std::int64_t const first = !causal && distance > 0 ? of_direction : 0;
  std::int64_t const length = causal ? std::max<std::int64_t>(-distance, 0) : std::abs(distance);
  std::int64_t const single = of_direction / 2;
  if (length < single) {
    return static_cast<std::int32_t>(first + length);
  }
  // In float32, as published models were trained: the logarithms' rounding decides at the borders of some ranges.
  auto const share = static_cast<float>(std::log(static_cast<float>(length) / static_cast<float>(single))) /
                     static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(single)));
  auto const range = static_cast<std::int64_t>(share * static_cast<float>(of_direction - single));
  return static_cast<std::int32_t>(first + std::min(single + range, of_direction - 1));
}

/// A column for each of model.position_buckets buckets of distances (Raffel et al. 2020).
class BucketPositions final : public LearnedBias {
 public:
  explicit BucketPositions(AttentionPositionsSpec const& spec)
      : LearnedBias(spec, spec.stack.model.position_buckets),
        tensor_ops_(spec.stack.kernels.select<TensorOps>({statistics_dtype(spec.stack.dtype)})) {
    ModelConfig const& model = spec.stack.model;
    bool const causal = spec.stack.side == Side::target;
    std::int64_t const single = model.position_buckets / (causal ? 2 : 4);
    if (model.max_distance <= single) {
      throw ConfigError(fmt::format(
          "{} = {}: with model.position_buckets = {} the distances up to {} have a bucket each in the {}, and larger "
          "ones share the others; expected more than {}, or fewer model.position_buckets",
          model.place("max_distance"), model.max_distance, model.position_buckets, single, spec.stack.name, single));
    }
    std::vector<std::int32_t> buckets;
    for (std::int64_t distance = -model.max_distance; distance <= model.max_distance; ++distance) {
      buckets.push_back(bucket_of(distance, model.position_buckets, model.max_distance, causal));
    }
    bucket_ = from_host<std::int32_t>(buckets, {static_cast<std::int64_t>(buckets.size())});
  }

  Tensor bias(LayerContext& context) const override {
    Tensor const table = by_distance(context);
    tensor_ops_->gather_columns(context.execution, weight().value, bucket_, table);
    return table;
  }
  Tensor bias_gradient(LayerContext& context) const override {
    Tensor const gradient = by_distance(context);
    tensor_ops_->fill(context.execution, gradient, 0);
    return gradient;
  }
  void bias_gradient_done(LayerContext& context, Tensor const& gradient) const override {
    tensor_ops_->add_gathered_columns(context.execution, gradient, bucket_, weight().gradient);
  }

 private:
  Tensor by_distance(LayerContext& context) const {
    return context.arena.allocate(weight().value.dtype(), {weight().value.dim(0), bucket_.size()});
  }

  Tensor bucket_;  ///< int32 [2 * max_distance + 1], by distance
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace

std::shared_ptr<AttentionPositions> make_relative_positions(AttentionPositionsSpec const& spec) {
  return std::make_shared<RelativePositions>(spec);
}

std::shared_ptr<AttentionPositions> make_bucket_positions(AttentionPositionsSpec const& spec) {
  return std::make_shared<BucketPositions>(spec);
}

}  // namespace heddle
