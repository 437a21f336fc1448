#include <fmt/format.h>

#include <functional>
#include <heddle/core/operations/guided_alignment.hpp>
#include <heddle/core/trials/trials.hpp>

namespace heddle {

namespace {

/// Sequences with and without tokens; rows that are aligned with no, one, two and the same token twice.
Trial<GuidedAlignment> make_trial(std::int64_t columns, TrialTensors& tensors, DType dtype) {
  std::vector<std::int32_t> const targets{3, 0, 1, 4};
  std::vector<std::int32_t> const sources{5, 2, 0, 3};
  GuidedAlignmentCall call;
  call.q = tensors.strided(3).input(dtype, {8, columns});
  call.k = tensors.strided(2).input(dtype, {10, columns});
  tensors.strided(0);
  call.queries = tensors.sequences(targets);
  call.keys = tensors.sequences(sources);
  call.scale = 0.75;
  call.alignment = {tensors.integers({0, 1, 1, 3, 3, 3, 4, 6, 7}), tensors.integers({4, 0, 2, 2, 1, 1, 0})};
  Tensor const rows = tensors.output(DType::float64, {8, 2});
  Tensor const sum = tensors.sums(DType::float64, {1});
  Tensor const upstream = tensors.given(DType::float64, {1}, {0.5});
  Tensor const grad_q = tensors.output(statistics_dtype(dtype), call.q.shape());
  Tensor const grad_k = tensors.output(statistics_dtype(dtype), call.k.shape());
  Trial<GuidedAlignment> trial{.problem = call.problem()};
  trial.forward = [=](GuidedAlignment& kernel, Execution& execution) { kernel.forward(execution, call, rows, 1, sum); };
  trial.backward = [=](GuidedAlignment& kernel, Execution& execution) {
    kernel.backward(execution, call, rows, 0.5, grad_q, grad_k);
  };
  trial.outputs = {{"sum", sum, upstream}};
  trial.gradients = {{"q", call.q, grad_q}, {"k", call.k, grad_k}};
  return trial;
}

}  // namespace

void add_guided_alignment_trials(KernelRegistries& registries) {
  for (std::int64_t const columns : {1, 5, 32}) {
    registries.of<GuidedAlignment>().add_trial(fmt::format("{} columns", columns),
                                               std::bind_front(make_trial, columns));
  }
}

}  // namespace heddle
