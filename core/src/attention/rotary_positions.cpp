#include <fmt/format.h>

#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <map>

#include "attention_position_kinds.hpp"

namespace heddle {

namespace {

/// Cosines on even columns and sines on odd ones of position * base^(-column / head_dim), as Rotation has them.
template <class Element>
Tensor angles(std::int64_t length, std::int64_t head_dim, double base) {
  std::vector<Element> host(static_cast<std::size_t>(length * head_dim));
  for (std::int64_t position = 0; position < length; ++position) {
    for (std::int64_t column = 0; column < head_dim; column += 2) {
      double const frequency = std::pow(base, -static_cast<double>(column) / static_cast<double>(head_dim));
      double const angle = static_cast<double>(position) * frequency;
      auto const place = static_cast<std::size_t>(position * head_dim + column);
      host[place] = static_cast<Element>(std::cos(angle));
      host[place + 1] = static_cast<Element>(std::sin(angle));
    }
  }
  return from_host<Element>(host, {length, head_dim});
}

/// Pairs of columns of queries and keys turn with the position, so that their product depends only on the distance (Su
/// et al. 2021), with the pairs of model.position_layout. Layers may have heads of different sizes.
class RotaryPositions final : public AttentionPositions {
 public:
  explicit RotaryPositions(AttentionPositionsSpec const& spec)
      : layout_(spec.stack.model.position_layout),
        tensor_ops_(spec.stack.kernels.select<TensorOps>({spec.stack.dtype})) {}

  void add_layer(LayerSpec const& spec, std::int64_t /*heads*/, std::int64_t head_dim) override {
    if (head_dim % 2 != 0) {
      throw ConfigError(fmt::format(
          "{}: model.positions = \"rotary\" turns pairs of columns, and a head of {} has {}; an even head_dim "
          "would do",
          spec.options.has("head_dim") ? spec.options.place("head_dim") : spec.model.place("heads"), spec.name,
          head_dim));
    }
    Tensor& table = tables_[head_dim];
    if (table.empty()) {
      table = spec.dtype == DType::float64 ? angles<double>(spec.model.max_length, head_dim, spec.model.rotary_base)
                                           : angles<float>(spec.model.max_length, head_dim, spec.model.rotary_base);
    }
  }

  bool rotates() const override { return true; }
  void rotate(LayerContext& context, Tensor const& matrix, std::int64_t head_dim,
              Tensor const& position) const override {
    tensor_ops_->rotate(context.execution, matrix, {position, tables_.at(head_dim), layout_, false});
  }
  void rotate_back(LayerContext& context, Tensor const& gradient, std::int64_t head_dim,
                   Tensor const& position) const override {
    tensor_ops_->rotate(context.execution, gradient, {position, tables_.at(head_dim), layout_, true});
  }

 private:
  PairLayout layout_;
  std::shared_ptr<TensorOps> tensor_ops_;
  std::map<std::int64_t, Tensor> tables_;  ///< by head_dim
};

}  // namespace

std::shared_ptr<AttentionPositions> make_rotary_positions(AttentionPositionsSpec const& spec) {
  return std::make_shared<RotaryPositions>(spec);
}

}  // namespace heddle
