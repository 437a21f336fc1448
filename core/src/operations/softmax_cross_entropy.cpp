#include <fmt/format.h>

#include <heddle/core/operations/observation.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <heddle/core/tensor/execution.hpp>

namespace heddle {

namespace {

class ObservedSoftmaxCrossEntropy final : public ObservedKernel<SoftmaxCrossEntropy> {
 public:
  using ObservedKernel::ObservedKernel;

  void statistics(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics) override {
    pass<&SoftmaxCrossEntropy::statistics>(execution, traffic("statistics", {call.logits, statistics}), call,
                                           statistics);
  }
  void combine(Execution& execution, Tensor const& parts, Tensor const& statistics) override {
    pass<&SoftmaxCrossEntropy::combine>(execution, traffic("combine", {parts, statistics}), parts, statistics);
  }
  void losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
              Tensor const& losses) override {
    pass<&SoftmaxCrossEntropy::losses>(execution, traffic("losses", {losses, statistics, call.targets}), call,
                                       statistics, losses);
  }
  void add_losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& losses,
                  Tensor const& sums) override {
    pass<&SoftmaxCrossEntropy::add_losses>(execution, traffic("sums", {losses, call.targets}), call, losses, sums);
  }
  void add_correct(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                   Tensor const& sums) override {
    pass<&SoftmaxCrossEntropy::add_correct>(execution, traffic("correct", {statistics, call.targets}), call, statistics,
                                            sums);
  }
  void gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                double scale) override {
    pass<&SoftmaxCrossEntropy::gradient>(execution, traffic("gradient", {call.logits, call.logits, statistics}), call,
                                         statistics, scale);
  }
  void losses_and_gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, double scale,
                           Tensor const& losses) override {
    pass<&SoftmaxCrossEntropy::losses_and_gradient>(
        execution, traffic("losses and gradient", {call.logits, call.logits, losses}), call, scale, losses);
  }
};

}  // namespace

SoftmaxCrossEntropyProblem SoftmaxCrossEntropyCall::problem() const {
  if (!weights.empty()) {
    weights.require(statistics_dtype(logits.dtype()), {logits.dim(0)}, "a cross-entropy's weights");
  }
  return {logits.dtype(), logits.dim(1), global_vocabulary};
}

std::string describe(SoftmaxCrossEntropyProblem const& problem) {
  if (problem.local_vocabulary == problem.global_vocabulary || problem.global_vocabulary == 0) {
    return fmt::format("a vocabulary of {} in {}", problem.local_vocabulary, name_of(problem.dtype));
  }
  return fmt::format("{} of a vocabulary of {} in {}", problem.local_vocabulary, problem.global_vocabulary,
                     name_of(problem.dtype));
}

std::string timing_key(SoftmaxCrossEntropyProblem const& problem) {
  return fmt::format("a vocabulary of {} in {}", problem.local_vocabulary, name_of(problem.dtype));
}

Cost cost(SoftmaxCrossEntropyProblem const& problem, double tokens) {
  double const logits = static_cast<double>(problem.local_vocabulary) * static_cast<double>(size_of(problem.dtype));
  double const losses = 2 * static_cast<double>(size_of(statistics_dtype(problem.dtype)));
  return {0, tokens * (2 * logits + losses)};
}

void SoftmaxCrossEntropy::losses_and_gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, double scale,
                                              Tensor const& losses) {
  ArenaScope const scope(execution.scratch);
  Tensor const of_rows =
      execution.scratch.allocate(statistics_dtype(call.logits.dtype()), {call.logits.dim(0), statistics_columns});
  statistics(execution, call, of_rows);
  this->losses(execution, call, of_rows, losses);
  gradient(execution, call, of_rows, scale);
}

std::shared_ptr<SoftmaxCrossEntropy> SoftmaxCrossEntropy::observed(ObservedSelection<SoftmaxCrossEntropy> selection) {
  return std::make_shared<ObservedSoftmaxCrossEntropy>(std::move(selection));
}

}  // namespace heddle
