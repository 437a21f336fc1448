#pragma once

#include <functional>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/layers/norm.hpp>
#include <heddle/core/layers/tensor_region.hpp>
#include <heddle/core/model/stack_description.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <optional>
#include <vector>

namespace heddle {

/// The residual stream x through a row of sublayers f, as model.norm says:
///
///     post  x = norm(x + dropout(f(x)))                      Vaswani et al. 2017
///     pre   x = x + dropout(f(norm(x)))                      Xiong et al. 2020
///     both  x = x + dropout(output_norm(f(norm(x))))         Ding et al. 2021 (sandwich)
///
/// The last two end with the stack's own `NAME.norm`. Dropout, residual and the norm that follows are one kernel call:
/// in post-LN the norm of the same sublayer, otherwise that of the next one or the last. Sublayer j of layer i is
/// called NAME.layers.i.SUBLAYER, its norms NAME.layers.i.SUBLAYER.norm and .output_norm.
class ResidualStack {
 public:
  /// Builds the layers `range` of the stack described; the others are other stages'. Except in post-LN, the residual
  /// sum before any norm passes from stage to stage. `spec.name`, `spec.side` and `spec.memory_side` are the
  /// description's.
  ResidualStack(LayerSpec const& spec, LayerRegistry const& registry, StackDescription const& description,
                IndexRange const& range);

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const;
  /// Adds to grad_output.memory, as Layer::backward does. The result's `hidden` has the memory of
  /// grad_output.hidden.
  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const;
  /// Decodes one new token per row; `caches` has one entry per sublayer (`make_caches`).
  HiddenStates decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                      std::vector<DecodeCache>& caches) const;
  void reorder(LayerContext& context, Tensor const& parents, DecodeStep const& step,
               std::vector<DecodeCache>& caches) const;
  std::vector<DecodeCache> make_caches() const { return std::vector<DecodeCache>(sublayers_.size()); }

 private:
  struct Sublayer {
    std::string name;
    std::unique_ptr<Layer> branch;
    Norm norm;
    std::optional<Norm> output_norm;     ///< of the branch's output
    std::vector<Parameter const*> used;  ///< by the branch
    double dropout = 0;                  ///< of the branch's output
  };
  struct Activations {
    Norm::Activations first;                      ///< but in post-LN: the norm before the first sublayer
    std::vector<Saved> branches;                  ///< one per sublayer
    std::vector<Norm::Activations> output_norms;  ///< of each branch's output, where there are such norms
    std::vector<Norm::Activations> joints;        ///< the pass over the residual stream after each sublayer
  };
  using RunBranch = std::function<HiddenStates(std::size_t index, HiddenStates const& input)>;

  HiddenStates run(LayerContext& context, HiddenStates const& input, Activations& activations,
                   RunBranch const& run_branch) const;
  /// The norm after the sum with sublayer `index`'s branch: its own (post-LN), or the next one's or the final one; none
  /// at the end of a stage that does not end the stack.
  Norm const& norm_after(std::size_t index) const;
  /// The norm before the first sublayer, but in post-LN.
  Norm const& first_norm() const { return sublayers_.empty() ? final_norm_ : sublayers_.front().norm; }
  void backward_sublayers(LayerContext& context, HiddenStates const& grad, Activations const& activations) const;

  Side side_;
  TensorRegion memory_region_;
  bool pre_;  ///< norms stand before the branches
  bool ends_stack_;
  std::vector<Sublayer> sublayers_;
  Norm final_norm_;  ///< none in post-LN and where the stage does not end the stack
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
