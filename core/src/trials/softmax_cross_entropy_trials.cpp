#include <fmt/format.h>

#include <functional>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/core/trials/trials.hpp>

namespace heddle {

namespace {

struct Variant {
  char const* name;
  std::int64_t rows, vocabulary;
  double smoothing;
  double range;           ///< range of the logits
  bool weighted = false;  ///< rows have weights, and some are ignored
  bool one_pass = false;  ///< losses_and_gradient
  double z_loss = 0;
};

constexpr std::array variants{Variant{"smoothed", 13, 301, 0.1, 4},
                              Variant{"plain", 5, 64, 0, 4},
                              Variant{"a wide range", 7, 131, 0.1, 80},
                              Variant{"tiny", 3, 3, 0.3, 1},
                              Variant{"a large vocabulary", 3, 10007, 0.1, 6},
                              Variant{"no rows", 0, 10, 0.1, 1},
                              Variant{"weighted", 13, 301, 0.1, 4, true},
                              Variant{"in one pass", 13, 301, 0.1, 4, false, true},
                              Variant{"plain, in one pass", 5, 64, 0, 4, false, true},
                              Variant{"weighted, in one pass", 7, 131, 0.1, 8, true, true},
                              Variant{"weighted, not smoothed", 5, 67, 0, 4, true},
                              Variant{"z-loss, not smoothed", 5, 67, 0, 4, false, false, 0.25},
                              Variant{"z-loss", 13, 301, 0.1, 4, true, false, 0.25},
                              Variant{"z-loss, in one pass", 7, 131, 0.1, 4, false, true, 0.25}};

SoftmaxCrossEntropyCall make_call(Variant const& variant, TrialTensors& tensors, DType dtype) {
  std::vector<std::int32_t> targets;
  for (std::int64_t row = 0; row < variant.rows; ++row) {
    bool const ignored = variant.weighted && row % 3 == 1;
    targets.push_back(ignored ? -1 : static_cast<std::int32_t>((row * 37 + 5) % variant.vocabulary));
  }
  SoftmaxCrossEntropyCall call;
  call.logits = tensors.input(dtype, {variant.rows, variant.vocabulary}, -variant.range, variant.range);
  call.targets = tensors.integers(targets);
  call.global_vocabulary = variant.vocabulary;
  call.label_smoothing = variant.smoothing;
  call.z_loss = variant.z_loss;
  call.weights = variant.weighted ? tensors.input(statistics_dtype(dtype), {variant.rows}, 0.25, 3) : Tensor();
  return call;
}

/// Forward does not change the logits; backward replaces the logits of a second call.
Trial<SoftmaxCrossEntropy> make_trial(Variant const& variant, TrialTensors& tensors, DType dtype) {
  constexpr double scale = 0.25;
  SoftmaxCrossEntropyCall const call = make_call(variant, tensors, dtype);
  DType const real = statistics_dtype(dtype);
  Tensor const statistics = tensors.output(real, {variant.rows, SoftmaxCrossEntropy::statistics_columns});
  Tensor const losses = tensors.output(real, {variant.rows, 2});
  Tensor const again = tensors.output(real, {variant.rows, 2});
  SoftmaxCrossEntropyCall replaced = call;
  replaced.logits = tensors.updated(dtype, call.logits.shape(), to_doubles(call.logits));
  std::vector<double> factors;  // of the smoothed losses, whose gradient backward gives, and of the plain ones
  for (std::int64_t row = 0; row < variant.rows; ++row) {
    factors.insert(factors.end(), {scale, 0});
  }
  Trial<SoftmaxCrossEntropy> trial{.problem = call.problem()};
  trial.forward = [=](SoftmaxCrossEntropy& kernel, Execution& execution) {
    kernel.statistics(execution, call, statistics);
    kernel.losses(execution, call, statistics, losses);
  };
  trial.backward = [=, one_pass = variant.one_pass](SoftmaxCrossEntropy& kernel, Execution& execution) {
    if (one_pass) {
      kernel.losses_and_gradient(execution, replaced, scale, again);
    } else {
      kernel.gradient(execution, replaced, statistics, scale);
    }
  };
  trial.outputs = {{"statistics", statistics}, {"losses", losses, tensors.given(real, losses.shape(), factors)}};
  trial.gradients = {{"logits", call.logits, replaced.logits}};
  return trial;
}

/// The vocabulary in two parts, whose statistics are combined.
Trial<SoftmaxCrossEntropy> sharded_trial(TrialTensors& tensors, DType dtype) {
  constexpr std::int64_t cut = 100;
  SoftmaxCrossEntropyCall const whole = make_call({"", 13, 301, 0.1, 4, true}, tensors, dtype);
  SoftmaxCrossEntropyCall left = whole;
  SoftmaxCrossEntropyCall right = whole;
  left.logits = whole.logits.columns(0, cut);
  right.logits = whole.logits.columns(cut, 301 - cut);
  right.first_token = cut;
  DType const real = statistics_dtype(dtype);
  Shape const each{13, SoftmaxCrossEntropy::statistics_columns};
  Tensor const parts = tensors.output(real, {2, each[0], each[1]});
  Tensor const statistics = tensors.output(real, each);
  Tensor const losses = tensors.output(real, {13, 2});
  Tensor const sums = tensors.sums(DType::float64, {SoftmaxCrossEntropy::sums_size});
  Trial<SoftmaxCrossEntropy> trial{.problem = left.problem()};
  trial.forward = [=](SoftmaxCrossEntropy& kernel, Execution& execution) {
    kernel.statistics(execution, left, parts.rows(0, 1).reshaped(each));
    kernel.statistics(execution, right, parts.rows(1, 1).reshaped(each));
    kernel.combine(execution, parts, statistics);
    kernel.losses(execution, left, statistics, losses);
    kernel.add_losses(execution, left, losses, sums);
    kernel.add_correct(execution, left, statistics, sums);
  };
  trial.outputs = {{"statistics", statistics}, {"losses", losses}, {"sums of losses", sums}};
  return trial;
}

}  // namespace

void add_softmax_cross_entropy_trials(KernelRegistries& registries) {
  auto& registry = registries.of<SoftmaxCrossEntropy>();
  for (Variant const& variant : variants) {
    registry.add_trial(fmt::format("{}, {} x {}", variant.name, variant.rows, variant.vocabulary),
                       std::bind_front(make_trial, variant));
  }
  registry.add_trial("a vocabulary in two parts", sharded_trial);
}

}  // namespace heddle
