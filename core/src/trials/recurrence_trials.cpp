#include <fmt/format.h>

#include <functional>
#include <heddle/core/operations/recurrence.hpp>
#include <heddle/core/trials/trials.hpp>

namespace heddle {

namespace {

struct RecurrenceTrial {
  std::int64_t columns = 0;
  bool gated = false;
  bool decodes = false;  ///< with states, and later positions
};

std::vector<std::int32_t> const lengths{3, 0, 1, 5};

std::vector<double> numbered(std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<double>(i % 7) / 4 - 0.5);
  }
  return values;
}

Trial<Recurrence> make_trial(RecurrenceTrial const& of, TrialTensors& tensors, DType dtype) {
  Shape const shape{9, of.columns};
  RecurrenceCall call{.input = tensors.strided(3).input(dtype, shape), .sequences = tensors.sequences(lengths)};
  if (of.gated) {
    call.gate = tensors.strided(1).input(dtype, shape, -4, 4);
  } else {
    std::int32_t const more = of.decodes ? 2 : 0;
    call.position = tensors.integers({more, more + 1, more + 2, more, more, more + 1, more + 2, more + 3, more + 4});
  }
  tensors.strided(0);
  Trial<Recurrence> trial{.problem = call.problem()};
  Tensor const output = tensors.output(dtype, shape);
  Tensor const upstream = tensors.input(dtype, shape);
  trial.outputs = {{"output", output, upstream}};
  if (of.decodes) {
    call.state = tensors.updated(statistics_dtype(dtype), {4, of.columns}, numbered(4 * of.columns));
    trial.outputs = {{"output", output}, {"state", call.state}};
  }
  RecurrenceGradients const gradients{tensors.strided(2).output(dtype, shape),
                                      of.gated ? tensors.output(dtype, shape) : Tensor()};
  tensors.strided(0);
  trial.forward = [=](Recurrence& kernel, Execution& execution) { kernel.forward(execution, call, output); };
  if (!of.decodes) {
    trial.backward = [=](Recurrence& kernel, Execution& execution) {
      kernel.backward(execution, call, output, upstream, gradients);
    };
    trial.gradients = {{"input", call.input, gradients.input}};
    if (of.gated) {
      trial.gradients.push_back({"gate", call.gate, gradients.gate});
    }
  }
  return trial;
}

}  // namespace

void add_recurrence_trials(KernelRegistries& registries) {
  for (std::int64_t const columns : {1, 5, 300}) {
    for (bool const gated : {false, true}) {
      for (bool const decodes : {false, true}) {
        registries.of<Recurrence>().add_trial(
            fmt::format("{} columns{}{}", columns, gated ? ", gated" : "", decodes ? ", with states" : ""),
            std::bind_front(make_trial, RecurrenceTrial{columns, gated, decodes}));
      }
    }
  }
}

}  // namespace heddle
