#pragma once

#include <functional>
#include <heddle/core/layers/low_rank.hpp>
#include <heddle/core/layers/tensor_region.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

namespace heddle {

/// Computes y = x Wᵀ + b, without b where the layer's key `biases` is false. W is one parameter NAME.weight [outputs,
/// inputs], or several that are adjacent in memory and computed by one multiplication (the projections to queries, keys
/// and values). Parts that model.adapter.targets names have adapters beside them: see LowRank.
class Linear {
 public:
  struct Extents {
    std::int64_t inputs = 0;
    std::int64_t outputs = 0;
  };
  /// One of several matrices: its parameters are NAME.PART.weight and NAME.PART.bias.
  struct Part {
    std::string name;
    std::int64_t outputs = 0;
  };
  /// The split of the work over the tensor group: by outputs (columns of y; x is the stream's and enters the region),
  /// by inputs (y is a sum of parts and leaves the region, the bias added once), or by outputs with an x that is
  /// inside. `none`: every tensor rank does all of it, x and y are the stream's.
  enum class Split : std::uint8_t { none, outputs, inputs, outputs_inside };

  /// Throws ConfigError where the axis that is split does not divide.
  Linear(LayerSpec const& spec, Extents const& extents, Split split)
      : Linear(spec, extents.inputs, {{"", extents.outputs}}, split) {}
  /// Several matrices with the same inputs, whose rows are of spec.side. Their initial values are those of the parts of
  /// one matrix that has their joined names ("qkv"), each with the bound of Glorot & Bengio 2010.
  Linear(LayerSpec const& spec, std::int64_t inputs, std::vector<Part> const& parts, Split split);

  /// x [tokens, inputs] → [tokens, this rank's outputs of all parts, side by side], from the arena. Collective over the
  /// tensor group.
  Tensor forward(LayerContext& context, Tensor const& x) const;
  /// Returns the gradient of x (=); weight and bias gradients += at once, or later with context.deferred. `x` is
  /// forward's, and keeps its content until the micro-batch's gradients are complete. Collective over the tensor group.
  Tensor backward(LayerContext& context, Tensor const& grad_y, Tensor const& x) const;
  /// Adds the gradient of x into `grad_x` (+=); otherwise the same as backward.
  void backward_add(LayerContext& context, Tensor const& grad_y, Tensor const& x, Tensor const& grad_x) const;

  /// The second part of a backward pass with context.deferred: weight and bias gradients +=.
  void add_parameter_gradients(LayerContext& context, Tensor const& grad_y, Tensor const& x) const;

  /// The global index, within its part, of this rank's first output: the first_column of a dropout.
  std::int32_t first_output() const;

 private:
  void grad_input(LayerContext& context, Tensor const& grad_y, Tensor const& grad_x, bool accumulate) const;
  /// All gradients, inside the region.
  void gradients(LayerContext& context, Tensor const& grad_y, Tensor const& x, Tensor const& grad_x,
                 bool accumulate) const;
  Tensor matrix(Tensor const& weights) const { return weights.reshaped({outputs_, inputs_}); }
  void multiply(LayerContext& context, Tensor const& x, Tensor const& y) const;
  /// The one for products with the weights as they are now.
  Gemm& weight_gemm() const {
    return gathered_gemm_ != nullptr && weight_.value.dtype() == DType::bfloat16 ? *gathered_gemm_ : *gemm_;
  }

  Split split_;
  TensorRegion region_;
  ParameterBlock& weight_;
  ParameterBlock* bias_;  ///< null: there is none
  std::int64_t inputs_;   ///< inputs of this rank
  std::int64_t outputs_;  ///< outputs of this rank, of all parts
  std::optional<LowRank> adapters_;
  std::shared_ptr<Gemm> gemm_;
  std::shared_ptr<Gemm> gathered_gemm_;  ///< of weights that are gathered in bfloat16; null: they cannot be
  std::shared_ptr<TensorOps> tensor_ops_;
};

/// Splits a backward pass, so that the gradients of its inputs, for which other stages of a pipeline wait, come before
/// those of its weights (Qi et al. 2023, "Zero Bubble Pipeline Parallelism"). Keeps, in the order of the backward pass,
/// the operands of the products of `Linear`, and which parameters' gradients are complete after them. Gradients outside
/// of `Linear`, those of adapters, norms and embeddings, are computed at once.
class DeferredGradients {
 public:
  /// `arena` has the activations of the forward pass, `input` its input. Both must keep their content until `compute`;
  /// operands that are in neither are copied to `arena`.
  DeferredGradients(Arena& arena, Arena const& input, std::shared_ptr<TensorOps> tensor_ops)
      : arena_(arena), input_(input), tensor_ops_(std::move(tensor_ops)) {}

  /// Takes the place of `linear.add_parameter_gradients`.
  void add(LayerContext const& context, Linear const& linear, Tensor const& grad_y, Tensor const& x);
  /// Takes the place of LayerContext::uses_done.
  void uses_done(std::span<Parameter const* const> parameters);
  /// Computes all of it: gradients +=. `between` is called between products. To be called once; every rank of a tensor
  /// group calls it at the same place.
  void compute(LayerContext& context, std::function<void()> const& between);

 private:
  struct Entry {
    Linear const* linear = nullptr;  ///< null: only `done`
    Tensor grad_y, x;
    std::vector<Parameter const*> done;
  };

  Tensor copied(LayerContext const& context, Tensor const& tensor) const;

  Arena& arena_;
  Arena const& input_;
  std::shared_ptr<TensorOps> tensor_ops_;
  std::vector<Entry> entries_;
};

}  // namespace heddle
