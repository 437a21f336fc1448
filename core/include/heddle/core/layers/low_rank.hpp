#pragma once

#include <heddle/core/layers/layer.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/residual_norm.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Low-rank adapters (LoRA: Hu et al. 2021) of the matrices of a Linear that model.adapter.targets name:
///
///     y_part += alpha / rank · B A dropout(x)
///
/// Parameters: PART.lora_a, A [rank, inputs], uniform in ±1 / √inputs as PEFT has it, and PART.lora_b, B [outputs,
/// rank], zero. They are split over the tensor group as the matrix is: B by rows or A by columns; the other is whole,
/// and its gradient a sum over the group. The parts of a Linear share dropout and the product with A.
class LowRank {
 public:
  /// A matrix of the Linear, whose parameters are NAME.weight and NAME.bias.
  struct Part {
    std::string name;
    std::int64_t outputs = 0;        ///< of all tensor ranks
    std::int64_t first_column = 0;   ///< in this rank's y
    std::int64_t local_outputs = 0;  ///< of this rank
  };
  struct Weights {
    std::int64_t inputs = 0;  ///< of all tensor ranks
    int split_axis = -1;      ///< of [outputs, inputs], over the tensor group; -1: none
    MeshAxes partial_over;    ///< their gradient_partial_over
  };

  /// Nothing where no part is a target. spec.side is that of x's rows.
  static std::optional<LowRank> declare(LayerSpec const& spec, Weights const& weights, std::vector<Part> const& parts);

  /// Adds to y [tokens, this rank's outputs of all parts] (+=). x [tokens, this rank's inputs] is inside the region.
  void forward(LayerContext& context, Tensor const& x, Tensor const& y) const;
  /// Adds to the gradients of x and of the parameters that are not frozen (+=).
  void backward(LayerContext& context, Tensor const& grad_y, Tensor const& x, Tensor const& grad_x) const;

 private:
  /// A part's B.
  struct Outputs {
    Part part;
    Parameter& b;
    std::shared_ptr<Gemm> gemm;
  };

  LowRank(LayerSpec const& spec, Weights const& weights, std::vector<Part> const& targets);
  /// A of all targets, one below the other.
  Tensor matrix(Tensor const& a) const { return a.reshaped({std::ssize(outputs_) * rank_, inputs_}); }
  /// The columns of part `index` in a tensor [tokens, all targets' ranks].
  Tensor of_part(Tensor const& all, std::size_t index) const {
    return all.columns(static_cast<std::int64_t>(index) * rank_, rank_);
  }
  Dropout dropout(LayerContext const& context) const;
  /// x with dropout, from the arena where there is some.
  Tensor dropped(LayerContext& context, Tensor const& x) const;
  /// alpha / rank · x Aᵀ, from the arena.
  Tensor projected(LayerContext& context, Tensor const& x) const;
  /// grad_x += dropout(grad A)
  void add_grad_input(LayerContext& context, Tensor const& grad, Tensor const& grad_x) const;

  std::string dropout_name_;
  Side side_;
  double rate_;
  bool stream_;  ///< x is rows of the stream
  std::int64_t rank_;
  double scale_;
  ParameterBlock& a_;
  std::int64_t inputs_;  ///< of this rank
  std::vector<Outputs> outputs_;
  std::shared_ptr<Gemm> gemm_;         ///< of products with A
  std::shared_ptr<ResidualNorm> sum_;  ///< computes dropout; null: there is none
  std::shared_ptr<TensorOps> tensor_ops_;
};

/// Whether the projection NAME, of the parameter NAME.weight, has an adapter.
bool has_adapter(AdapterConfig const& adapter, std::string const& projection);

/// Whether the name is that of an adapter's parameter.
bool is_of_adapter(std::string_view parameter);

/// Throws ConfigError for a pattern of adapter.targets that matches no projection among `names`, those of a whole
/// model's parameters.
void require_targets_match(AdapterConfig const& adapter, std::vector<std::string> const& names);

}  // namespace heddle
