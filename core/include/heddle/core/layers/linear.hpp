#pragma once

#include <heddle/core/layer.hpp>

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
  /// Which side is split over the tensor group: the outputs (columns of y) or the inputs (y is then partial).
  enum class Split : std::uint8_t { none, outputs, inputs };

  Linear(LayerSpec const& spec, Extents const& extents, Split split);

  /// x [tokens, inputs] → [tokens, parts * outputs], from the arena.
  Tensor forward(Context& context, Tensor const& x) const;
  /// Returns the gradient of x (=); weight and bias gradients +=. `x` is forward's.
  Tensor backward(Context& context, Tensor const& grad_y, Tensor const& x) const;
  /// As backward, but adds the gradient of x into `grad_x` (+=).
  void backward_add(Context& context, Tensor const& grad_y, Tensor const& x, Tensor const& grad_x) const;

 private:
  void add_parameter_gradients(Context& context, Tensor const& grad_y, Tensor const& x) const;
  void grad_input(Context& context, Tensor const& grad_y, Tensor const& grad_x, bool accumulate) const;
  Tensor matrix(Tensor const& weight) const;

  Parameter& weight_;
  Parameter& bias_;
  std::shared_ptr<Gemm> gemm_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
