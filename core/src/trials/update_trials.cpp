#include <functional>
#include <heddle/core/operations/update.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/core/trials/trials.hpp>

namespace heddle {

namespace {

Trial<Update> update_trial(RuleDefinition const& rule, Shape const& shape, TrialTensors& tensors, DType dtype) {
  auto const updated = [&](double low, double high) {
    return tensors.updated(dtype, shape, to_doubles(tensors.input(dtype, shape, low, high)));
  };
  UpdateCall call{.rule = rule.name, .value = updated(-1, 1), .gradient = tensors.input(dtype, shape), .scalars = {}};
  Trial<Update> trial{.problem = call.problem()};
  if (dtype == DType::bfloat16) {
    return trial;  // values are float32 or float64
  }
  trial.outputs = {{"value", call.value}};
  for (std::size_t index = 0; index < rule.state.size(); ++index) {
    call.state.at(index) = updated(0, 1);  // a second moment has no negative values
    trial.outputs.push_back({rule.state[index], call.state.at(index)});
  }
  call.options = option_values(rule, {});
  call.weight_decay = 0.1;
  auto scalars = update_scalars_of(rule, call.options, {.learning_rate = 0.01, .gradient_scale = 0.7, .step = 3});
  scalars[update_scalars::value_size] = 0.5;
  scalars[update_scalars::direction_size] = 1.5;
  call.scalars = tensors.updated(DType::float64, {update_scalars::count}, {scalars.begin(), scalars.end()});
  if (!rule.whole()) {
    trial.forward = [call](Update& kernel, Execution& execution) { kernel.update(execution, call); };
    return trial;
  }
  UpdateCall direct = call;
  direct.value = updated(0, 1);
  trial.outputs.push_back({"direction", direct.value});
  call.gradient = direct.value;
  trial.forward = [call, direct](Update& kernel, Execution& execution) {
    kernel.direct(execution, direct);
    kernel.update(execution, call);
  };
  return trial;
}

}  // namespace

/// Every rule has trials, a plug-in's, too.
void add_update_trials(KernelRegistries& registries) {
  for (RuleDefinition const& rule : update_rules(registries)) {
    Shape const shape{4099};  // more than one work item, no multiple of a vector
    registries.of<Update>().add_trial(rule.name, std::bind_front(update_trial, rule, shape));
  }
}

}  // namespace heddle
