#pragma once

#include <heddle/core/layers/tensor_region.hpp>

namespace heddle {

/// y = x Wᵀ + b: the building block of layers. W is stored as `parts` matrices [outputs, inputs] one above the other
/// (the queries', keys' and values' projections are one multiplication), shape [outputs, inputs] where there is one
/// part.
class Linear {
 public:
  struct Extents {
    std::int64_t inputs = 0;
    std::int64_t outputs = 0;  ///< of one part
    std::int64_t parts = 1;
  };
  /// How the work is split over the tensor group: by outputs (columns of y; x is the stream's and enters the region),
  /// by inputs (y is a sum of parts and leaves the region, the bias added once), or by outputs with an x that is
  /// inside. `none`: every tensor rank does all of it, x and y are the stream's.
  enum class Split : std::uint8_t { none, outputs, inputs, outputs_inside };

  /// Throws ConfigError where what is split does not divide.
  Linear(LayerSpec const& spec, Extents const& extents, Split split);

  /// x [tokens, inputs] → [tokens, parts * outputs], from the arena. Collective over the tensor group.
  Tensor forward(LayerContext& context, Tensor const& x) const;
  /// Returns the gradient of x (=); weight and bias gradients +=. `x` is forward's. Collective over the tensor group.
  Tensor backward(LayerContext& context, Tensor const& grad_y, Tensor const& x) const;
  /// As backward, but adds the gradient of x into `grad_x` (+=).
  void backward_add(LayerContext& context, Tensor const& grad_y, Tensor const& x, Tensor const& grad_x) const;

  /// The global index, within its part, of this rank's first output: a dropout's first_column.
  std::int32_t first_output() const { return static_cast<std::int32_t>(bias_.shard_begin); }

 private:
  void add_parameter_gradients(LayerContext& context, Tensor const& grad_y, Tensor const& x) const;
  void grad_input(LayerContext& context, Tensor const& grad_y, Tensor const& grad_x, bool accumulate) const;
  Tensor matrix(Tensor const& weight) const;
  void multiply(LayerContext& context, Tensor const& x, Tensor const& y) const;

  Split split_;
  TensorRegion region_;
  Parameter& weight_;
  Parameter& bias_;
  std::shared_ptr<Gemm> gemm_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
