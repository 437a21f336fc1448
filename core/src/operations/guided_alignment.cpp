#include <fmt/format.h>

#include <heddle/core/operations/guided_alignment.hpp>
#include <heddle/core/operations/observation.hpp>

namespace heddle {

namespace {

class ObservedGuidedAlignment final : public ObservedKernel<GuidedAlignment> {
 public:
  using ObservedKernel::ObservedKernel;

  void forward(Execution& execution, GuidedAlignmentCall const& call, Tensor const& rows, double factor,
               Tensor const& sum) override {
    pass<&GuidedAlignment::forward>(execution, traffic("forward", {call.q, call.k, rows}), call, rows, factor, sum);
  }
  void backward(Execution& execution, GuidedAlignmentCall const& call, Tensor const& rows, double factor,
                Tensor const& grad_q, Tensor const& grad_k) override {
    pass<&GuidedAlignment::backward>(execution, traffic("backward", {call.q, call.k, rows, grad_q, grad_k}), call, rows,
                                     factor, grad_q, grad_k);
  }
};

}  // namespace

std::string describe(GuidedAlignmentProblem const& problem) {
  return fmt::format("a head of {} columns in {}", problem.head_dim, name_of(problem.dtype));
}

std::shared_ptr<GuidedAlignment> GuidedAlignment::observed(ObservedSelection<GuidedAlignment> selection) {
  return std::make_shared<ObservedGuidedAlignment>(std::move(selection));
}

}  // namespace heddle
