#include <algorithm>
#include <bit>
#include <cmath>
#include <heddle/core/attention/attention_positions.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <map>
#include <numbers>
#include <span>

namespace heddle {

namespace {

/// Throws ConfigError, naming the layer and the key, unless a layer has as many heads as its stack, to each of which
/// the stack's positions give a bias.
void require_heads_of_stack(LayerSpec const& layer, std::int64_t heads, std::int64_t of_stack) {
  if (heads != of_stack) {
    throw ConfigError(
        "{} = {}: model.positions = \"{}\" is a bias for each head that all layers of a stack share, so {} must have "
        "as many heads as the stack's first layer with positions: {}",
        layer.model.place("heads"), heads, name_of(layer.model.positions), layer.name, of_stack);
  }
}

/// The share of a pair's frequency that is divided by rotary_factor, in `yarn`: a ramp over the pairs' indices, from
/// the last whole index with at least rotary_high_turns in the original length to the first with rotary_low_turns at
/// most (Peng et al. 2024, as published code rounds it).
double yarn_share(ModelConfig const& model, std::int64_t head_dim, std::int64_t pair, double original) {
  auto const index_with = [&](double turns) {
    return static_cast<double>(head_dim) * std::log(original / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(model.rotary_base));
  };
  double const first = std::max(std::floor(index_with(model.rotary_high_turns)), 0.0);
  double last = std::min(std::ceil(index_with(model.rotary_low_turns)), static_cast<double>(head_dim - 1));
  last += last == first ? 0.001 : 0;
  return std::clamp((static_cast<double>(pair) - first) / (last - first), 0.0, 1.0);
}

/// The angle by which a pair turns per token: base^(-pair / pairs), lowered as model.rotary_scaling says.
double frequency_of(ModelConfig const& model, std::int64_t head_dim, std::int64_t pair) {
  double const plain = std::pow(model.rotary_base, -static_cast<double>(2 * pair) / static_cast<double>(head_dim));
  auto const original =
      static_cast<double>(model.rotary_original_length > 0 ? model.rotary_original_length : model.max_length);
  double scaled = 0;  // the share of the frequency that is divided
  if (model.rotary_scaling == RotaryScaling::linear) {
    scaled = 1;
  } else if (model.rotary_scaling == RotaryScaling::llama3) {
    double const turns = original * plain / (2 * std::numbers::pi);
    scaled =
        std::clamp((model.rotary_high_turns - turns) / (model.rotary_high_turns - model.rotary_low_turns), 0.0, 1.0);
  } else if (model.rotary_scaling == RotaryScaling::yarn) {
    scaled = yarn_share(model, head_dim, pair, original);
  }
  return plain * (1 - scaled) + plain / model.rotary_factor * scaled;
}

/// Cosines on even columns and sines on odd ones of position * frequency, as Rotation has them. In `yarn` both are
/// longer than 1: scores of longer texts are sharper.
Tensor angles(ModelConfig const& model, std::int64_t head_dim, DType dtype) {
  std::vector<double> host(static_cast<std::size_t>(model.max_length * head_dim));
  bool const longer = model.rotary_scaling == RotaryScaling::yarn;
  double const length = longer ? 1 + 0.1 * std::log(model.rotary_factor) : 1;
  for (std::int64_t column = 0; column < head_dim; column += 2) {
    double const frequency = frequency_of(model, head_dim, column / 2);
    for (std::int64_t position = 0; position < model.max_length; ++position) {
      double const angle = static_cast<double>(position) * frequency;
      auto const place = static_cast<std::size_t>(position * head_dim + column);
      host[place] = length * std::cos(angle);
      host[place + 1] = length * std::sin(angle);
    }
  }
  return from_doubles(host, dtype, {model.max_length, head_dim});
}

/// Pairs of columns of queries and keys turn with the position, so that their product depends only on the distance (Su
/// et al. 2021), with the pairs of model.position_layout. Layers may have heads of different sizes.
class RotaryPositions final : public AttentionPositions {
 public:
  explicit RotaryPositions(AttentionPositionsSpec const& spec)
      : layout_(spec.stack.model.position_layout),
        tensor_ops_(spec.stack.kernels.select<TensorOps>({spec.stack.dtype})) {
    ModelConfig const& model = spec.stack.model;
    bool const by_turns = model.rotary_scaling == RotaryScaling::llama3 || model.rotary_scaling == RotaryScaling::yarn;
    if (by_turns && model.rotary_high_turns <= model.rotary_low_turns) {
      throw ConfigError("{} = {}: expected more than model.rotary_low_turns = {}", model.place("rotary_high_turns"),
                        model.rotary_high_turns, model.rotary_low_turns);
    }
  }

  void add_layer(LayerSpec const& spec, std::int64_t /*heads*/, std::int64_t head_dim) override {
    if (head_dim % 2 != 0) {
      throw ConfigError(
          "{}: model.positions = \"rotary\" turns pairs of columns, and a head of {} has {}; expected an even head_dim",
          spec.options.has("head_dim") ? spec.options.place("head_dim") : spec.model.place("heads"), spec.name,
          head_dim);
    }
    Tensor& table = tables_[head_dim];
    if (table.empty()) {
      table = angles(spec.model, head_dim, statistics_dtype(spec.dtype));
    }
  }

  bool rotates() const override { return true; }
  void rotate(LayerContext& context, Tensor const& matrix, std::int64_t head_dim, Tensor const& position,
              bool back) const override {
    tensor_ops_->rotate(context.execution, matrix, {position, tables_.at(head_dim), layout_, back});
  }

 private:
  PairLayout layout_;
  std::shared_ptr<TensorOps> tensor_ops_;
  std::map<std::int64_t, Tensor> tables_;  ///< by head_dim
};

}  // namespace

Tensor kept_weight(LayerContext& context, TensorOps& tensor_ops, Tensor const& weight) {
  if (context.access == nullptr) {
    return weight;
  }
  Tensor const copy = context.arena.allocate(weight.dtype(), weight.shape());
  tensor_ops.copy(context.execution, weight, copy);
  return copy;
}

namespace {

/// A learned bias of the scores for each head and some columns, which stand for distances between a key and a query:
/// STACK.attention_bias.weight [heads, columns], shared by the layers of the stack, or LAYER.attention_bias.weight.
/// Heads are split over the tensor group.
class LearnedBias : public AttentionPositions {
 public:
  LearnedBias(AttentionPositionsSpec const& spec, std::int64_t columns)
      : weight_(spec.stack.parameters.reserve({.name = spec.stack.name + ".attention_bias.weight",
                                               .placement = {.global_shape = {spec.heads, columns},
                                                             .shards = Placement::sharded_along(0),
                                                             .stages = spec.stages},
                                               .initializer = Initializer::zeros()})) {}

  void add_layer(LayerSpec const& spec, std::int64_t heads, std::int64_t /*head_dim*/) override {
    require_heads_of_stack(spec, heads, weight_.global_shape()[0]);
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
      : LearnedBias(spec, 2 * spec.stack.model.max_distance + 1),
        tensor_ops_(spec.stack.kernels.select<TensorOps>({statistics_dtype(spec.stack.dtype)})) {}

  Tensor bias(LayerContext& context) const override { return kept_weight(context, *tensor_ops_, weight().value); }
  Tensor bias_gradient(LayerContext& context) const override { return context.gradient_of(weight()); }

 private:
  std::shared_ptr<TensorOps> tensor_ops_;
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
  // Published models were trained with this in float32: the logarithms' rounding decides at the borders of some ranges.
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
      throw ConfigError(
          "{} = {}: with model.position_buckets = {} the distances up to {} have a bucket each in the {}, and larger "
          "ones share the others; expected more than {}, or fewer model.position_buckets",
          model.place("max_distance"), model.max_distance, model.position_buckets, single, spec.stack.name, single);
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
    if (!weight().gradient.empty()) {
      tensor_ops_->add_gathered_columns(context.execution, gradient, bucket_, weight().gradient);
    }
  }

 private:
  Tensor by_distance(LayerContext& context) const {
    return context.arena.allocate(weight().value.dtype(), {weight().value.dim(0), bucket_.size()});
  }

  Tensor bucket_;  ///< int32 [2 * max_distance + 1], by distance
  std::shared_ptr<TensorOps> tensor_ops_;
};

/// The slope of each head, as in the paper's code: a geometric sequence that ends with 2^-8 for numbers of heads that
/// are powers of two; for others the slopes of the next lower power, then every other slope of the next higher one.
std::vector<double> slopes(std::int64_t heads) {
  auto const lower = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<double> result;
  for (std::int64_t head = 0; head < heads; ++head) {
    // Head `lower` + j has slope 2j of twice as many heads.
    double const place = head < lower ? static_cast<double>(head + 1) : static_cast<double>(head - lower) + 0.5;
    result.push_back(std::exp2(-8 * place / static_cast<double>(lower)));
  }
  return result;
}

Tensor slope_table(std::span<double const> slope, std::int64_t max_length, DType dtype) {
  std::int64_t const columns = 2 * max_length - 1;
  std::vector<double> host;
  for (double const each : slope) {
    for (std::int64_t column = 0; column < columns; ++column) {
      host.push_back(-each * static_cast<double>(std::abs(column - (max_length - 1))));
    }
  }
  return from_doubles(host, dtype, {std::ssize(slope), columns});
}

/// Scores fall with the distance of query and key, by a fixed slope for each head (Press et al. 2022). Keys on both
/// sides of a query that sees them fall alike.
class AlibiPositions final : public AttentionPositions {
 public:
  explicit AlibiPositions(AttentionPositionsSpec const& spec) : heads_(spec.heads) {
    std::vector<double> const all = slopes(heads_);
    // add_layer refuses heads that the tensor group's ranks do not share evenly.
    IndexRange const mine = share(heads_, spec.stack.parallel.tensor.rank(), spec.stack.parallel.tensor.size());
    std::span const own(all.begin() + mine.begin, all.begin() + mine.end);
    bias_ = slope_table(own, spec.stack.model.max_length, statistics_dtype(spec.stack.dtype));
  }

  void add_layer(LayerSpec const& spec, std::int64_t heads, std::int64_t /*head_dim*/) override {
    require_heads_of_stack(spec, heads, heads_);
  }

  bool has_bias() const override { return true; }
  Tensor bias(LayerContext& /*context*/) const override { return bias_; }

 private:
  std::int64_t heads_;
  Tensor bias_;  ///< [this rank's heads, 2 * max_length - 1]
};

template <class Kind>
std::shared_ptr<AttentionPositions> make(AttentionPositionsSpec const& spec) {
  return std::make_shared<Kind>(spec);
}

struct AttentionPositionKind {
  Positions name;
  std::shared_ptr<AttentionPositions> (*make)(AttentionPositionsSpec const& spec);
};

/// The kinds of positions that act in attention. A new one is a class above, a line here and a name in
/// model_config.hpp.
constexpr std::array attention_position_kinds{AttentionPositionKind{Positions::rotary, make<RotaryPositions>},
                                              AttentionPositionKind{Positions::relative, make<RelativePositions>},
                                              AttentionPositionKind{Positions::relative_buckets, make<BucketPositions>},
                                              AttentionPositionKind{Positions::alibi, make<AlibiPositions>}};

AttentionPositionKind const* find(Positions name) {
  auto const* const found = std::ranges::find(attention_position_kinds, name, &AttentionPositionKind::name);
  return found == attention_position_kinds.end() ? nullptr : found;
}

}  // namespace

bool act_in_attention(Positions kind) {
  return find(kind) != nullptr;
}

bool has_own_positions(LayerOptions const& options) {
  return options.has("rotary_base") || options.flag("own_positions", false);
}

std::shared_ptr<AttentionPositions> make_attention_positions(AttentionPositionsSpec const& spec) {
  AttentionPositionKind const* const kind = find(spec.stack.model.positions);
  return kind == nullptr ? nullptr : kind->make(spec);
}

}  // namespace heddle
