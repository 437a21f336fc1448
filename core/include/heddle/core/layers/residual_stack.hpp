#pragma once

#include <functional>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/layers/description.hpp>
#include <heddle/core/layers/tensor_region.hpp>
#include <heddle/core/operations/residual_norm.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <vector>

namespace heddle {

/// The residual stream through a row of sublayers, post-LN or pre-LN. Dropout, residual and the norm that follows are
/// one kernel call: in post-LN the norm of the same sublayer, in pre-LN that of the next one (Xiong et al. 2020), the
/// last being the stack's own `NAME.norm`. Sublayer j of layer i is called NAME.layers.i.SUBLAYER, its norm
/// NAME.layers.i.SUBLAYER.norm.
class ResidualStack {
 public:
  /// Builds the layers `range` of the stack described; the others are other stages'. In pre-LN the residual sum before
  /// any norm passes from stage to stage. `spec.name`, `spec.side` and `spec.memory_side` are the description's.
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
  struct Norm {
    Parameter* weight = nullptr;
    Parameter* bias = nullptr;

    /// Gradients of the norm are added here; empty if there is no norm.
    void done(LayerContext const& context) const;
  };
  struct Sublayer {
    std::string name;
    std::unique_ptr<Layer> branch;
    Norm norm;
    std::vector<Parameter const*> used;  ///< by the branch
    double dropout = 0;                  ///< of the branch's output
  };
  /// One pass over the residual stream and its results.
  struct Joint {
    ResidualNormCall call;
    ResidualNormOutput output;
  };
  struct Activations {
    Joint first;                  ///< pre-LN: the norm before the first sublayer
    std::vector<Saved> branches;  ///< one per sublayer
    std::vector<Joint> joints;    ///< after each sublayer
  };
  using RunBranch = std::function<HiddenStates(std::size_t index, HiddenStates const& input)>;

  HiddenStates run(LayerContext& context, HiddenStates const& input, Activations& activations,
                   RunBranch const& run_branch) const;
  /// The norm after sublayer `index`'s branch: its own (post-LN), or the next one's or the final one (pre-LN); none at
  /// the end of a stage that does not end the side.
  Norm const& norm_after(std::size_t index) const;
  Joint join(LayerContext& context, ResidualNormCall call) const;
  /// The norm before the first sublayer in pre-LN.
  Norm const& first_norm() const { return sublayers_.empty() ? final_norm_ : sublayers_.front().norm; }
  void backward_sublayers(LayerContext& context, HiddenStates const& grad, Activations const& activations) const;

  Side side_;
  TensorRegion memory_region_;
  bool pre_;
  bool ends_side_;
  std::vector<Sublayer> sublayers_;
  Norm final_norm_;
  std::shared_ptr<ResidualNorm> residual_norm_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
