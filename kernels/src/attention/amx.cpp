#include "amx/backward.hpp"
#include "amx/forward.hpp"
#include "support/factories.hpp"
#include "support/matrix_registers.hpp"

namespace heddle {

namespace {

/// Products of bfloat16 in matrix registers. `simd` computes one query of each sequence, as a step of generation has.
class AmxAttention final : public Attention {
 public:
  explicit AmxAttention(std::shared_ptr<Attention> simd) : simd_(std::move(simd)) {}

  bool supports(AttentionProblem const& problem) const override {
    return problem.dtype == DType::bfloat16 && is_defined(problem) && problem.score == ScoreKind::dot_product;
  }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    if (output.dtype() == DType::float32) {
      return amx_attention::forward<float>(execution, call, output, log_sum_exp);
    }
    if (call.queries.max_length == 1) {
      return simd_->forward(execution, call, output, log_sum_exp);
    }
    amx_attention::forward<BFloat16>(execution, call, output, log_sum_exp);
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    gradients.q.dtype() == DType::float32
        ? amx_attention::backward<float>(execution, call, output, log_sum_exp, grad_output, gradients)
        : amx_attention::backward<BFloat16>(execution, call, output, log_sum_exp, grad_output, gradients);
  }
  bool wide_results() const override { return true; }

 private:
  std::shared_ptr<Attention> simd_;
};

}  // namespace

void add_amx_attention_kernels(KernelRegistries& registries) {
  if (!request_matrix_registers()) {
    return;
  }
  auto& registry = registries.of<Attention>();
  AttentionProblem const problem{.dtype = DType::bfloat16, .heads = 1, .head_dim = 1};
  registry.add("amx", priorities::own, std::make_shared<AmxAttention>(registry.select("simd", problem)));
}

}  // namespace heddle
