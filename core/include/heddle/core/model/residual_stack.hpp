#pragma once

#include <heddle/core/base/index_range.hpp>
#include <heddle/core/layers/norm.hpp>
#include <heddle/core/layers/tensor_region.hpp>
#include <heddle/core/model/description.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/operations/work_observer.hpp>
#include <optional>
#include <vector>

namespace heddle {

/// The residual stream x through a row of sublayers f, as model.norm says:
///
///     post    x = norm(x + dropout(f(x)))                      Vaswani et al. 2017
///     pre     x = x + dropout(f(norm(x)))                      Xiong et al. 2020
///     both    x = x + dropout(output_norm(f(norm(x))))         Ding et al. 2021 (sandwich)
///     output  x = x + dropout(output_norm(f(x)))               Liu et al. 2022 (res-post-norm); OLMo 2
///
/// The last three end with the stack's own `NAME.norm`. Dropout, residual and the norm that follows are one kernel
/// call: in post-LN the norm of the same sublayer, otherwise that of the next one or the last. Sublayer j of layer i is
/// called NAME.layers.i.SUBLAYER, its norms NAME.layers.i.SUBLAYER.norm and .output_norm. Tied layers are one layer
/// that runs at several places (Lan et al. 2020): its parameters are declared once, and their gradients are sums.
///
/// Where a layer's key recompute is "attention", its attention sublayers keep nothing but their input, which the norm
/// before them keeps, too; where it is "layer", the layer keeps its input only (except in post-LN, also the norm of
/// it). Their backward pass begins with a second forward pass (Chen et al. 2016), whose masks and messages are those of
/// the first: gradients are bitwise those without it.
class ResidualStack {
 public:
  /// Builds the layers `range` of the stack described; the others are other stages'. Except in post-LN, the residual
  /// sum before any norm passes from stage to stage. `spec.name`, `spec.side` and `spec.encoder_side` are the
  /// description's.
  ResidualStack(LayerSpec const& spec, LayerRegistry const& registry, StackDescription const& description,
                IndexRange const& range);

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const;
  /// Adds to grad_output.encoder_output, as Layer::backward does. The result's `hidden` has the memory of
  /// grad_output.hidden.
  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const;
  /// forward without a backward pass: keeps no activations, so that each sublayer uses the same memory.
  HiddenStates encode(LayerContext& context, HiddenStates const& input) const;
  /// Decodes the step's new tokens, with memory as encode; `caches` has one entry per sublayer (`make_caches`).
  HiddenStates decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                      std::vector<DecodeCache>& caches) const;
  /// Notifies of each sublayer, forward and backward, with the norm after it; null: no observer.
  void observe(WorkObserver* observer) { observer_ = observer; }
  std::vector<DecodeCache> make_caches() const { return std::vector<DecodeCache>(sublayers_.size()); }
  /// Does what Layer::attend says for all layers, with units gathered as in the passes.
  void attend(LayerContext& context, Direction direction, Saved& saved) const;
  /// Adds the uses of the sublayers' units in a pass of forward or backward, in their order.
  void add_uses(Direction direction, std::vector<UnitUse>& uses) const;

 private:
  struct Sublayer {
    std::string registered;  ///< its name in the layer registry
    std::string name;        ///< its place
    std::string dropout_name;
    std::shared_ptr<Layer const> branch;  ///< tied layers have one
    Norm norm;
    std::optional<Norm> output_norm;     ///< of the branch's output
    std::vector<Parameter const*> used;  ///< by the branch
    ParameterUnit* unit = nullptr;       ///< of these
    double dropout = 0;                  ///< of the branch's output
    bool recomputed = false;             ///< the branch's activations, by itself
    bool repeated = false;               ///< an earlier layer's branch and norms, with dropout of its own
  };
  struct LayerRange {
    std::size_t begin = 0;  ///< of its sublayers
    std::size_t end = 0;
    bool recomputed = false;
  };
  /// The stream between two sublayers.
  struct Stream {
    Tensor residual;
    HiddenStates states;  ///< `hidden` is the residual or the norm of it, the next branch's input
  };
  struct SublayerActivations {
    HiddenStates input;             ///< of a branch that is recomputed
    Saved branch;                   ///< empty where the branch is recomputed
    Norm::Activations output_norm;  ///< of the branch's output, where there is such a norm
    Norm::Activations joint;        ///< the pass over the residual stream after the sublayer
  };
  struct LayerActivations {
    Stream input;  ///< of a layer that is recomputed, which has no others
    std::vector<SublayerActivations> sublayers;
  };
  struct Activations {
    Norm::Activations first;  ///< the norm before the first sublayer, except in post-LN
    std::vector<LayerActivations> layers;
  };
  /// The gradients that a backward pass hands from sublayer to sublayer.
  struct StreamGradients {
    Tensor residual;    ///< of the residual stream, in place
    Tensor branch;      ///< of a branch's output
    Tensor grad_input;  ///< of a branch's input, which outlives the branch's scope; not in post-LN
    Tensor normalized;  ///< of the joint's normalized output; empty: zero
    Tensor sum;         ///< of the joint's sum; empty: zero
    Tensor encoder_output;
  };
  void build_layer(LayerSpec const& spec, LayerRegistry const& registry, LayerDescription const& layer,
                   std::int64_t index, double dropout);
  /// Adds layer `index` of the stack, which is tied to an earlier one.
  void repeat_layer(LayerSpec const& spec, LayerRange owner, std::int64_t index);
  /// The context of a branch: where it is a repeated one, its random numbers are others than in the earlier layer.
  LayerContext context_of(LayerContext const& context, Sublayer const& sublayer) const;
  /// The stream before the first sublayer, with the encoder output inside the tensor region.
  Stream begin(LayerContext& context, HiddenStates const& input, Norm::Activations& first) const;
  /// Runs sublayer `index`; `branch` is its branch's output.
  Stream join(LayerContext& context, std::size_t index, Stream const& stream, HiddenStates branch,
              SublayerActivations& activations) const;
  void run_layer(LayerContext& context, LayerRange const& layer, Stream& stream, LayerActivations& activations) const;
  /// Runs a layer and keeps its input only.
  void forward_checkpointed(LayerContext& context, LayerRange const& layer, Stream& stream,
                            LayerActivations& activations) const;
  /// Runs all sublayers, whose branches `run(index, states, saved)` computes, and releases their memory.
  template <class RunBranch>
  HiddenStates infer(LayerContext& context, HiddenStates const& input, RunBranch const& run) const;
  HiddenStates run_branch(LayerContext& context, Sublayer const& sublayer, HiddenStates const& input,
                          SublayerActivations& activations) const;
  /// Calls `use(index, direction)` for each use of a sublayer in a pass, in their order.
  template <class Use>
  void for_each_use(Direction direction, Use const& use) const;
  /// The norm after the sum with sublayer `index`'s branch: its own (post-LN), or the next one's or the final one; none
  /// at the end of a stage that does not end the stack.
  Norm const& norm_after(std::size_t index) const;
  /// The norm before the first sublayer, except in post-LN.
  Norm const& first_norm() const { return sublayers_.empty() ? final_norm_ : sublayers_.front().norm; }
  void backward_layers(LayerContext& context, HiddenStates const& grad, Activations const& activations) const;
  void backward_layer(LayerContext& context, LayerRange const& layer, StreamGradients& grad,
                      LayerActivations const& activations) const;
  void backward_sublayer(LayerContext& context, std::size_t index, StreamGradients& grad,
                         SublayerActivations const& activations) const;

  Side side_;
  TensorRegion encoder_region_;
  bool pre_;     ///< the stream is not normalized: in all but post-LN
  bool before_;  ///< norms stand before the branches
  bool ends_stack_;
  std::vector<Sublayer> sublayers_;
  std::vector<LayerRange> layers_;
  Norm final_norm_;  ///< none in post-LN and where the stage does not end the stack
  std::shared_ptr<TensorOps> tensor_ops_;
  WorkObserver* observer_ = nullptr;
};

}  // namespace heddle
