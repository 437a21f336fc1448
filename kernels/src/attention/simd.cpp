#include "simd.hpp"

#include "linear.hpp"
#include "support/factories.hpp"

namespace heddle {
namespace {

class SimdAttention : public Attention {
 public:
  bool supports(AttentionProblem const& problem) const override {
    return (problem.dtype == DType::float32 || problem.dtype == DType::bfloat16) && is_defined(problem);
  }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    bool const widened = call.q.dtype() == DType::bfloat16;
    if (call.score == ScoreKind::linear) {
      auto const run = widened ? kernels::linear_forward<BFloat16> : kernels::linear_forward<float>;
      return run(execution, call, output, log_sum_exp);
    }
    auto const run = widened ? simd_attention::forward<BFloat16> : simd_attention::forward<float>;
    run(execution, call, output, log_sum_exp);
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    bool const widened = call.q.dtype() == DType::bfloat16;
    if (call.score == ScoreKind::linear) {
      auto const run = widened ? kernels::linear_backward<BFloat16> : kernels::linear_backward<float>;
      return run(execution, call, {output, log_sum_exp, grad_output}, gradients);
    }
    auto const run = widened ? simd_attention::backward<BFloat16> : simd_attention::backward<float>;
    run(execution, call, output, log_sum_exp, grad_output, gradients);
  }
};

}  // namespace

void add_vector_attention_kernels(KernelRegistries& registries) {
  registries.of<Attention>().add("simd", speeds::simd, std::make_shared<SimdAttention>());
}

}  // namespace heddle
