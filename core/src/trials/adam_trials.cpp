#include <heddle/core/operations/adam.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/core/trials/trials.hpp>

namespace heddle {

namespace {

Trial<Adam> adam_trial(bool decoupled, TrialTensors& tensors, DType dtype) {
  constexpr std::int64_t size = 4099;  // more than one work item, no multiple of a vector
  auto const updated = [&](double low, double high) {
    return tensors.updated(dtype, {size}, to_doubles(tensors.input(dtype, {size}, low, high)));
  };
  AdamCall call;
  call.value = updated(-1, 1);
  call.gradient = tensors.input(dtype, {size});
  call.first_moment = updated(-1, 1);
  call.second_moment = updated(0, 1);
  call.scalars = tensors.updated(DType::float64, {adam_scalars::count}, std::vector<double>(adam_scalars::count));
  call.weight_decay = 0.1;
  call.decoupled = decoupled;
  Trial<Adam> trial{.problem = call.problem()};
  if (dtype == DType::bfloat16) {
    return trial;  // values are float32 or float64
  }
  trial.forward = [call](Adam& kernel, Execution& execution) {
    write_adam_scalars(call, {.learning_rate = 0.01, .gradient_scale = 0.7, .step = 3});
    kernel.update(execution, call);
  };
  trial.outputs = {{"value", call.value}, {"first moment", call.first_moment}, {"second moment", call.second_moment}};
  return trial;
}

}  // namespace

void add_adam_trials(KernelRegistries& registries) {
  for (bool const decoupled : {false, true}) {
    registries.of<Adam>().add_trial(decoupled ? "AdamW" : "Adam", [=](TrialTensors& tensors, DType dtype) {
      return adam_trial(decoupled, tensors, dtype);
    });
  }
}

}  // namespace heddle
