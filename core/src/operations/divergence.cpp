#include <fmt/format.h>

#include <heddle/core/operations/divergence.hpp>
#include <heddle/core/operations/observation.hpp>

namespace heddle {

namespace {

class ObservedDivergence final : public ObservedKernel<Divergence> {
 public:
  using ObservedKernel::ObservedKernel;

  void forward(Execution& execution, DivergenceCall const& call, Tensor const& sums) override {
    pass<&Divergence::forward>(execution, traffic("forward", {call.logits[0], call.logits[1], sums}), call, sums);
  }
  void add_losses(Execution& execution, DivergenceCall const& call, Tensor const& sums, double factor,
                  std::array<Tensor, 2> const& losses) override {
    pass<&Divergence::add_losses>(execution, traffic("losses", {sums, losses[0], losses[1]}), call, sums, factor,
                                  losses);
  }
  void backward(Execution& execution, DivergenceCall const& call, Tensor const& sums, double factor,
                std::array<Tensor, 2> const& gradients) override {
    pass<&Divergence::backward>(execution,
                                traffic("backward", {call.logits[0], call.logits[1], gradients[0], gradients[1]}), call,
                                sums, factor, gradients);
  }
  void teach(Execution& execution, DivergenceCall const& call, double factor, Tensor const& sums) override {
    pass<&Divergence::teach>(execution, traffic("teach", {call.logits[0], call.logits[1], call.logits[1], sums}), call,
                             factor, sums);
  }
  void add_taught_losses(Execution& execution, DivergenceCall const& call, Tensor const& sums, double kept,
                         double factor, Tensor const& losses) override {
    pass<&Divergence::add_taught_losses>(execution, traffic("taught losses", {sums, losses}), call, sums, kept, factor,
                                         losses);
  }
};

}  // namespace

std::string describe(DivergenceProblem const& problem) {
  return fmt::format("{} columns in {}", problem.local_vocabulary, name_of(problem.dtype));
}

std::shared_ptr<Divergence> Divergence::observed(ObservedSelection<Divergence> selection) {
  return std::make_shared<ObservedDivergence>(std::move(selection));
}

}  // namespace heddle
