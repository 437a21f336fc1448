#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <heddle/core/operations/divergence.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/core/trials/trials.hpp>

namespace heddle {

namespace {

constexpr std::int64_t rows = 7;

/// statistics [rows, 4] = the maximum and the sum of exponentials of each row, as far as a Divergence reads them.
void find_statistics(Tensor const& logits, Tensor const& statistics) {
  std::vector<double> const values = to_doubles(logits);
  auto const columns = static_cast<std::size_t>(logits.dim(1));
  std::vector<double> found(static_cast<std::size_t>(4 * rows));
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    auto const begin = values.begin() + static_cast<std::ptrdiff_t>(row * columns);
    auto const end = begin + logits.dim(1);
    found[4 * row] = *std::max_element(begin, end);
    std::for_each(begin, end, [&](double logit) { found[4 * row + 1] += std::exp(logit - found[4 * row]); });
  }
  copy_from_doubles(statistics, found);
}

Trial<Divergence> make_trial(std::int64_t columns, bool weighted, TrialTensors& tensors, DType dtype) {
  DType const sums_dtype = statistics_dtype(dtype);
  DivergenceCall call;
  std::array<Tensor, 2> losses;
  std::array<Tensor, 2> gradients;
  for (std::size_t pass = 0; pass < 2; ++pass) {
    call.logits[pass] = tensors.input(dtype, {rows, columns}, -3, 3);
    call.statistics[pass] = Tensor::allocate(sums_dtype, {rows, 4});
    losses[pass] = tensors.sums(sums_dtype, {rows, 2});
    gradients[pass] = tensors.output(dtype, {rows, columns});
  }
  call.targets = tensors.integers({0, 1, -1, 2, 0, 0, 3});
  if (weighted) {
    call.weights = tensors.given(sums_dtype, {rows}, {1, 0.5, 2, 0, 1.5, 1, 0.25});
  }
  Tensor const sums = tensors.output(sums_dtype, {rows, 2});
  std::vector<double> of_losses;
  for (std::int64_t row = 0; row < rows; ++row) {
    of_losses.insert(of_losses.end(), {1, 0});
  }
  Tensor const upstream = tensors.given(sums_dtype, {rows, 2}, of_losses);
  constexpr double factor = 0.7;
  Trial<Divergence> trial{.problem = call.problem()};
  trial.forward = [=](Divergence& kernel, Execution& execution) {
    for (std::size_t pass = 0; pass < 2; ++pass) {
      find_statistics(call.logits[pass], call.statistics[pass]);
    }
    kernel.forward(execution, call, sums);
    kernel.add_losses(execution, call, sums, factor, losses);
  };
  trial.backward = [=](Divergence& kernel, Execution& execution) {
    kernel.backward(execution, call, sums, factor, gradients);
  };
  trial.outputs = {{"losses of the first pass", losses[0], upstream},
                   {"losses of the second pass", losses[1], upstream}};
  trial.gradients = {{"first logits", call.logits[0], gradients[0]}, {"second logits", call.logits[1], gradients[1]}};
  return trial;
}

Trial<Divergence> make_taught_trial(std::int64_t columns, bool weighted, TrialTensors& tensors, DType dtype) {
  DType const sums_dtype = statistics_dtype(dtype);
  DivergenceCall call{.logits = {tensors.input(dtype, {rows, columns}, -3, 3), tensors.output(dtype, {rows, columns})},
                      .statistics = {Tensor::allocate(sums_dtype, {rows, 4}), Tensor::allocate(sums_dtype, {rows, 4})},
                      .targets = tensors.integers({0, 1, -1, 2, 0, 0, 3})};
  if (weighted) {
    call.weights = tensors.given(sums_dtype, {rows}, {1, 0.5, 2, 0, 1.5, 1, 0.25});
  }
  std::vector<double> taught;  // the teacher's logits, which a call replaces
  for (std::int64_t index = 0; index < rows * columns; ++index) {
    taught.push_back(3 * std::sin(static_cast<double>(7 * index + 1)));
  }
  Tensor const teacher = tensors.given(dtype, {rows, columns}, taught);
  Tensor const losses = tensors.output(sums_dtype, {rows, 2});
  Tensor const sums = tensors.output(sums_dtype, {rows, 1});
  std::vector<double> of_losses;
  for (std::int64_t row = 0; row < rows; ++row) {
    of_losses.insert(of_losses.end(), {1, 0});
  }
  constexpr double factor = 0.7;
  auto const teach = [=](Divergence& kernel, Execution& execution) {
    copy_from_doubles(call.logits[1], to_doubles(teacher));
    for (std::size_t pass = 0; pass < 2; ++pass) {
      find_statistics(call.logits[pass], call.statistics[pass]);
    }
    kernel.teach(execution, call, factor, sums);
  };
  Trial<Divergence> trial{.problem = call.problem()};
  trial.forward = [=](Divergence& kernel, Execution& execution) {
    teach(kernel, execution);
    copy_from_doubles(losses, std::vector<double>(static_cast<std::size_t>(2 * rows), 5));
    kernel.add_taught_losses(execution, call, sums, 0.25, factor, losses);
  };
  trial.backward = teach;
  trial.outputs = {{"losses", losses, tensors.given(sums_dtype, {rows, 2}, of_losses)}};
  trial.gradients = {{"logits", call.logits[0], call.logits[1]}};
  return trial;
}

}  // namespace

void add_divergence_trials(KernelRegistries& registries) {
  for (std::int64_t const columns : {5, 131}) {
    for (bool const weighted : {false, true}) {
      registries.of<Divergence>().add_trial(fmt::format("{} columns{}", columns, weighted ? ", weighted" : ""),
                                            std::bind_front(make_trial, columns, weighted));
      registries.of<Divergence>().add_trial(
          fmt::format("a teacher, {} columns{}", columns, weighted ? ", weighted" : ""),
          std::bind_front(make_taught_trial, columns, weighted));
    }
  }
}

}  // namespace heddle
