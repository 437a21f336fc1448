#pragma once

#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/layer.hpp>

namespace heddle {

/// The embedding front end of a stack, computed from the token ids that packs have for the stack's side. It does not
/// change except for its parameters, which are declared under the stack's name. Calls are collective over the tensor
/// group where an input divides its work.
class StackInput {
 public:
  virtual ~StackInput() = default;

  /// [stream rows, d_model] from the arena, for the rows of the side in context.pack.
  virtual Tensor forward(LayerContext& context, Saved& saved) const = 0;
  /// `grad_output`, the gradient of forward's result, is overwritten. Parameter gradients +=; the model part reports
  /// when they are done.
  virtual void backward(LayerContext& context, Tensor const& grad_output, Saved const& saved) const = 0;
  /// [rows.tokens, d_model] from the arena, for new tokens in generation; a stack that generates has an input which
  /// overrides this. The others declare that they do not decode.
  virtual Tensor decode(LayerContext& /*context*/, TokenIds const& /*tokens*/, TokenRows const& /*rows*/) const {
    throw Error("the input of this stack does not decode");
  }
};

}  // namespace heddle
