#pragma once

#include <heddle/core/layers/linear.hpp>
#include <memory>
#include <span>

namespace heddle {

/// Computes y = x Wₑᵀ + bₑ for the rows of each expert e: the rows of x are in groups, counts[g] of them in group g, of
/// expert g modulo this rank's experts: those from one rank follow those from the rank before. The experts' matrices
/// are one parameter NAME.weight [experts, outputs, inputs], their biases NAME.bias [experts, outputs] where the
/// layer's key `biases` is true. Each starts as a matrix of its own with the bound of Glorot & Bengio 2010. Over the
/// tensor group outputs or inputs are split; x and y are inside the region.
class ExpertLinear {
 public:
  using Counts = std::span<std::int32_t const>;

  /// Throws ConfigError where model.adapter.targets names the matrices: they have no adapters.
  ExpertLinear(LayerSpec const& spec, std::int64_t experts, Linear::Extents const& extents, Linear::Split split);

  /// y [rows, this rank's outputs] = the products. A bias is added by one rank where the inputs are split.
  void forward(LayerContext& context, Tensor const& x, Counts counts, Tensor const& y) const;
  /// grad_x = or, with `accumulate`, += the gradient of x; the parameters' gradients +=.
  void backward(LayerContext& context, Tensor const& grad_y, Tensor const& x, Counts counts, Tensor const& grad_x,
                bool accumulate) const;

  std::int64_t outputs() const { return weight_.global_shape()[1]; }
  std::int64_t local_outputs() const { return weight_.local_shape[1]; }
  /// The global index of this rank's first output.
  std::int32_t first_output() const { return static_cast<std::int32_t>(weight_.global_offset(1)); }

 private:
  Tensor bias_of(std::int64_t expert) const;

  bool adds_bias_;
  Parameter& weight_;
  Parameter* bias_;  ///< null: there is none
  std::shared_ptr<Gemm> gemm_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
