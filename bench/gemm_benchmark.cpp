#include <benchmark/benchmark.h>

#include <functional>
#include <heddle/core/execution.hpp>
#include <heddle/core/kernel_registry.hpp>
#include <heddle/core/runtime.hpp>
#include <heddle/kernels/register.hpp>
#include <string>
#include <vector>

namespace {

using heddle::DType;
using heddle::Shape;
using heddle::Tensor;

/// A linear layer [tokens, inputs] → [tokens, outputs], whose three products a training step computes.
struct Layer {
  std::int64_t tokens, outputs, inputs;
};

Tensor filled(Shape const& shape, float value) {
  std::vector<float> const elements(static_cast<std::size_t>(shape.size()), value);
  return heddle::from_host<float>(elements, shape);
}

heddle::GemmCall forward(Layer const& layer) {
  heddle::GemmCall call;
  call.a = filled({layer.tokens, layer.inputs}, 0.5F);
  call.b = filled({layer.outputs, layer.inputs}, 0.25F);
  call.c = filled({layer.tokens, layer.outputs}, 0.0F);
  call.transpose_b = true;
  call.b_weight = {1, 1};
  return call;
}

heddle::GemmCall input_gradient(Layer const& layer) {
  heddle::GemmCall call;
  call.a = filled({layer.tokens, layer.outputs}, 0.5F);
  call.b = filled({layer.outputs, layer.inputs}, 0.25F);
  call.c = filled({layer.tokens, layer.inputs}, 0.0F);
  call.b_weight = {1, 1};
  return call;
}

heddle::GemmCall weight_gradient(Layer const& layer) {
  heddle::GemmCall call;
  call.a = filled({layer.tokens, layer.outputs}, 0.5F);
  call.b = filled({layer.tokens, layer.inputs}, 0.25F);
  call.c = filled({layer.outputs, layer.inputs}, 0.0F);
  call.transpose_a = true;
  call.accumulate = true;
  return call;
}

/// `new_weights`: the weight's version changes at every call, as it does from step to step.
void measure(benchmark::State& state, heddle::Execution& execution, heddle::Gemm& gemm, heddle::GemmCall call,
             bool new_weights) {
  auto const problem = call.problem();
  for (auto _ : state) {
    gemm.multiply(execution, call);
    call.b_weight.version += new_weights && call.b_weight.id != 0 ? 1 : 0;
  }
  double const operations = 2.0 * static_cast<double>(problem.m * problem.n * problem.k);
  state.counters["GFLOP/s"] =
      benchmark::Counter(operations * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  heddle::Runtime runtime;
  heddle::KernelRegistries registries;
  heddle::register_built_in_kernels(registries);
  std::vector<Layer> const layers{{3328, 128, 128}, {3328, 256, 128}, {3328, 128, 256},  {3328, 384, 128},
                                  {3301, 256, 128}, {3328, 512, 512}, {256, 10000, 128}, {256, 10000, 512},
                                  {40, 256, 128},   {8, 10000, 128}};
  for (auto const& entry : registries.gemm.entries()) {
    if (entry.name == "reference") {
      continue;
    }
    for (Layer const& layer : layers) {
      auto const add = [&](char const* pass, heddle::GemmCall const& call, bool new_weights) {
        std::string const name = entry.name + "/" + pass + "/" + std::to_string(layer.tokens) + "x" +
                                 std::to_string(layer.outputs) + "x" + std::to_string(layer.inputs);
        benchmark::RegisterBenchmark(name.c_str(), [&runtime, &entry, call, new_weights](benchmark::State& state) {
          measure(state, runtime.execution(), *entry.kernel, call, new_weights);
        })->Unit(benchmark::kMicrosecond);
      };
      add("forward", forward(layer), false);
      add("forward_new_weights", forward(layer), true);
      add("input_gradient", input_gradient(layer), false);
      add("weight_gradient", weight_gradient(layer), false);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  // Their tensors must go before the runtime does.
  benchmark::ClearRegisteredBenchmarks();
  benchmark::Shutdown();
}
