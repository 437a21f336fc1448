#pragma once

#include "simd_backward.hpp"
#include "simd_forward.hpp"
#include "support/factories.hpp"

/// The kernels are in an unnamed namespace, so that each element type's file has its own copy, which the compiler may
/// inline.
namespace heddle::simd_attention {
namespace {

/// `simd` for one element type. Linear attention is computed by `kokkos`.
template <class Element>
class SimdAttention final : public Attention {
 public:
  explicit SimdAttention(std::shared_ptr<Attention> portable) : portable_(std::move(portable)) {}

  bool supports(AttentionProblem const& problem) const override {
    return problem.dtype == DTypeOf<Element>::value && is_defined(problem) && problem.score != ScoreKind::function;
  }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    if (call.score == ScoreKind::linear) {
      return portable_->forward(execution, call, output, log_sum_exp);
    }
    simd_attention::forward<Element>(execution, call, output, log_sum_exp);
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    if (call.score == ScoreKind::linear) {
      return portable_->backward(execution, call, output, log_sum_exp, grad_output, gradients);
    }
    simd_attention::backward<Element>(execution, call, output, log_sum_exp, grad_output, gradients);
  }

 private:
  std::shared_ptr<Attention> portable_;
};

template <class Element>
void add_simd_attention(KernelRegistries& registries) {
  auto& registry = registries.of<Attention>();
  auto const portable = registry.select("kokkos", {.dtype = DTypeOf<Element>::value, .heads = 1, .head_dim = 1});
  registry.add_part("simd", priorities::simd, std::make_shared<SimdAttention<Element>>(portable));
}

}  // namespace
}  // namespace heddle::simd_attention
