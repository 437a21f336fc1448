#include "simd.hpp"

#include "support/factories.hpp"

namespace heddle {
namespace {

class SimdAttention : public Attention {
 public:
  bool supports(AttentionProblem const& problem) const override {
    return (problem.dtype == DType::float32 || problem.dtype == DType::bfloat16) &&
           kernels::has_plain_scores(problem) && problem.own_keys();
  }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    auto const run =
        call.q.dtype() == DType::bfloat16 ? simd_attention::forward<BFloat16> : simd_attention::forward<float>;
    run(execution, call, output, log_sum_exp);
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    auto const run =
        call.q.dtype() == DType::bfloat16 ? simd_attention::backward<BFloat16> : simd_attention::backward<float>;
    run(execution, call, output, log_sum_exp, grad_output, gradients);
  }
};

}  // namespace

std::shared_ptr<Attention> make_simd_attention() {
  return std::make_shared<SimdAttention>();
}

}  // namespace heddle
