#pragma once

#include <cmath>
#include <heddle/core/layers/linear.hpp>
#include <heddle/core/layers/registry.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <memory>
#include <vector>

namespace heddle {

/// A layer with an auxiliary loss: y = W x + b, which is not split over tensor ranks, and rate * Σ y².
class PenalizedProjection final : public Layer {
 public:
  PenalizedProjection(LayerSpec const& spec, double rate)
      : rate_(rate),
        tensor_(spec.parallel.tensor),
        linear_(spec, {spec.model.d_model, spec.model.d_model}, Linear::Split::none),
        tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {}

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override {
    Tensor const y = linear_.forward(context, input.hidden);
    if (!context.loss_sums.empty()) {
      ArenaScope const scope(context.arena);
      // √rate y, whose squares are summed.
      Tensor const scaled = scaled_of(context, y, std::sqrt(rate_));
      Tensor const loss = context.arena.allocate(DType::float64, {1});
      tensor_ops_->fill(context.execution, loss, 0);
      tensor_ops_->add_sum_of_squares(context.execution, scaled, loss);
      if (context.row_split.ranks > 1) {
        tensor_.all_reduce(loss);
      }
      Tensor const sums = context.loss_sums.reshaped({SoftmaxCrossEntropy::sums_size});
      tensor_ops_->add(context.execution, sums.rows(0, 1), loss);
    }
    saved.keep(Activations{input.hidden, y});
    return {y, input.encoder_output};
  }

  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override {
    auto const& [x, y] = saved.get<Activations>();
    Tensor const grad_y = scaled_of(context, y, 2 * rate_ * context.loss_scale);
    tensor_ops_->add(context.execution, grad_y, grad_output.hidden);
    return {linear_.backward(context, grad_y, x), grad_output.encoder_output};
  }

 private:
  struct Activations {
    Tensor x, y;
  };

  static Tensor scaled_of(LayerContext& context, Tensor const& tensor, double factor) {
    std::vector<double> host = to_doubles(tensor);
    for (double& value : host) {
      value *= factor;
    }
    Tensor const scaled = context.arena.allocate(tensor.dtype(), tensor.shape());
    copy_from_doubles(scaled, host);
    return scaled;
  }

  double rate_;
  Communicator tensor_;
  Linear linear_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

/// Registers the layer "penalized". It counts as attention, so that recompute = "attention" computes it again.
inline void register_penalized_projection(LayerRegistry& layers, double rate) {
  layers.add("penalized", [rate](LayerSpec const& spec) { return std::make_unique<PenalizedProjection>(spec, rate); },
             {.attends = true});
}

}  // namespace heddle
