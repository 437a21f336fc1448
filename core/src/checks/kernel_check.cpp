#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <heddle/core/base/error.hpp>
#include <heddle/core/checks/check.hpp>
#include <heddle/core/checks/compare.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <optional>

#include "crash_note.hpp"

namespace heddle {

namespace {

constexpr std::array dtypes{DType::float32, DType::float64, DType::bfloat16};

using Values = std::vector<double>;

AnyTrial make_trial(NamedTrial const& named, TrialTensors& tensors, DType dtype) {
  try {
    return named.make(tensors, dtype);
  } catch (std::exception const& error) {
    throw Error("the trial cannot be made: {}", error.what());
  }
}

bool supports(Kernel const& kernel, AnyTrial const& trial) {
  try {
    return trial.supported_by(kernel);
  } catch (std::exception const& error) {
    throw Error("supports() throws, but must return true or false: {}", error.what());
  }
}

/// A trial made for one dtype, and the tensors of its calls.
struct Made {
  TrialTensors tensors;
  AnyTrial trial;
  std::vector<Values> upstreams;  ///< the upstream gradient of each output, before the calls; empty: none

  Made(NamedTrial const& named, DType dtype) : trial(make_trial(named, tensors, dtype)) {
    for (TrialOutput const& output : trial.outputs) {
      upstreams.push_back(to_doubles(output.upstream));
    }
  }

  /// The sum of outputs ∘ upstream: the loss whose gradients backward gives.
  double loss(Kernel& kernel, Execution& execution) const {
    trial.forward(kernel, execution);
    double sum = 0;
    for (std::size_t i = 0; i < upstreams.size(); ++i) {
      sum += upstreams[i].empty() ? 0 : weighted_sum(upstreams[i], to_doubles(trial.outputs[i].value));
    }
    return sum;
  }
};

struct Results {
  std::vector<Values> outputs, gradients;
  std::string damage;
};

Results results_of(Made const& made, Kernel& kernel, Execution& execution) {
  Results results;
  made.trial.forward(kernel, execution);
  for (TrialOutput const& output : made.trial.outputs) {
    results.outputs.push_back(to_doubles(output.value));
  }
  if (made.trial.backward) {
    made.trial.backward(kernel, execution);
  }
  for (TrialGradient const& gradient : made.trial.gradients) {
    results.gradients.push_back(to_doubles(gradient.value));
  }
  results.damage = made.tensors.damage();
  return results;
}

std::string no_oracle(std::string const& result) {
  return fmt::format(
      "{}: there is nothing to compare it with: neither `reference` nor the implementation itself supports this "
      "problem in float64, which is the oracle; let the kernel support float64, too",
      result);
}

class KernelCheck {
 public:
  KernelCheck(AnyKernelRegistry const& registry, Implementation const& implementation, Execution& execution)
      : registry_(registry),
        kernel_(implementation.kernel),
        reference_(registry.find("reference")),
        execution_(execution),
        run_({.operation = std::string(registry.operation()),
              .implementation = implementation.name,
              .origin = implementation.origin,
              .problem = {}}) {}

  std::vector<CheckResult> run() {
    for (NamedTrial const& trial : registry_.trials()) {
      CheckResult made = run_.start(trial.name);
      try {
        check(trial);
      } catch (std::exception const& error) {
        made.fault = error.what();
        run_.results.push_back(std::move(made));
      }
    }
    return std::move(run_.results);
  }
  CheckResult nothing_to_check() {
    CheckResult nothing = run_.start("every trial");
    nothing.not_run = fmt::format(
        "it supports none of the {} problems that operation '{}' is checked by: add one that it supports, by "
        "add_trial (docs/guide/checking-kernels.md)",
        registry_.trials().size(), registry_.operation());
    return nothing;
  }

 private:
  /// The kernel whose float64 results are right: `reference`, else the implementation itself; null if neither can.
  Kernel* oracle(AnyTrial const& trial) const {
    if (!trial.forward) {
      return nullptr;
    }
    for (Kernel* const kernel : {reference_.get(), kernel_.get()}) {
      if (kernel != nullptr && supports(*kernel, trial)) {
        return kernel;
      }
    }
    return nullptr;
  }

  void check(NamedTrial const& named) {
    std::optional<Results> expected;
    for (DType const dtype : dtypes) {
      Made const made(named, dtype);
      if (!made.trial.forward || !supports(*kernel_, made.trial)) {
        continue;
      }
      run_.add(fmt::format("{}, {}", named.name, name_of(dtype)), tolerance(dtype, kernel_->accuracy()),
               [&](CheckResult& found) {
                 Made const exact(named, DType::float64);
                 Kernel* const right = oracle(exact.trial);
                 if (right != nullptr && !expected) {
                   expected = results_of(exact, *right, execution_);
                 }
                 compare(made, expected, found);
               });
    }
    Made const exact(named, DType::float64);
    if (oracle(exact.trial) == kernel_.get() && !exact.trial.gradients.empty()) {
      run_.add(named.name + ", central differences", difference_tolerance,
               [&](CheckResult& found) { compare_with_differences(named, exact, found); });
    }
  }

  void compare(Made const& made, std::optional<Results> const& expected, CheckResult& found) const {
    Results const actual = results_of(made, *kernel_, execution_);
    for (std::size_t i = 0; i < actual.outputs.size(); ++i) {
      TrialOutput const& output = made.trial.outputs[i];
      if (output.expected.empty() && !expected) {
        found.fault = no_oracle(output.name);
        return;
      }
      note(difference(output.name, actual.outputs[i], output.expected.empty() ? expected->outputs[i] : output.expected),
           &CheckResult::output_error, found);
    }
    for (std::size_t i = 0; i < actual.gradients.size(); ++i) {
      std::string const name = "gradient of " + made.trial.gradients[i].name;
      if (!expected) {
        found.fault = no_oracle(name);
        return;
      }
      note(difference(name, actual.gradients[i], expected->gradients[i]), &CheckResult::gradient_error, found);
    }
    if (!actual.damage.empty()) {
      found.fault = actual.damage;
    }
  }

  void compare_with_differences(NamedTrial const& named, Made const& made, CheckResult& found) const {
    std::vector<Values> points;
    for (TrialGradient const& gradient : made.trial.gradients) {
      points.push_back(to_doubles(gradient.variable));
    }
    Results const results = results_of(made, *kernel_, execution_);
    for (std::size_t i = 0; i < made.trial.gradients.size(); ++i) {
      TrialGradient const& gradient = made.trial.gradients[i];
      Values own = results.gradients[i];
      std::for_each(own.begin(), own.end(), [&](double& value) { value -= gradient.already; });
      auto const loss_at = [&](Values const& values) {
        Made const fresh(named, DType::float64);
        copy_from_doubles(fresh.trial.gradients[i].variable, values);
        return fresh.loss(*kernel_, execution_);
      };
      note(central_difference({"gradient of " + gradient.name, points[i], own, loss_at}), &CheckResult::gradient_error,
           found);
    }
  }

  AnyKernelRegistry const& registry_;
  std::shared_ptr<Kernel> kernel_;
  std::shared_ptr<Kernel> reference_;
  Execution& execution_;
  CheckRun run_;
};

}  // namespace

std::vector<CheckResult> check_kernel(KernelRegistries const& registries, std::string_view operation,
                                      std::string_view implementation, Execution& execution) {
  std::vector<CheckResult> results;
  std::optional<CheckResult> nothing;
  if (AnyKernelRegistry const* const registry = registries.registry(operation)) {
    for (Implementation const& part : registry->parts()) {
      if (part.name == implementation) {
        KernelCheck check(*registry, part, execution);
        std::ranges::move(check.run(), std::back_inserter(results));
        nothing = check.nothing_to_check();
      }
    }
  }
  if (!nothing) {
    throw ConfigError("there is no implementation '{}' of operation '{}'", implementation, operation);
  }
  if (results.empty()) {
    results.push_back(*std::move(nothing));
  }
  return results;
}

}  // namespace heddle
