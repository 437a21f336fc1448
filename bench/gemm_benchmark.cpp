// GEMM implementations on the shapes of a training step, interleaved, in GFLOP/s: bench_gemm [part of a row's name]
// [implementations]; without names all but the reference
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/kernels/register.hpp>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

using heddle::DType;
using heddle::Shape;
using heddle::Tensor;

constexpr int rounds = 15;
/// A sample is repeated calls of at least this many seconds in total, so that the clock's resolution does not matter.
constexpr double sample_seconds = 1e-3;

/// A linear layer [tokens, inputs] → [tokens, outputs], whose three products a training step computes.
struct Layer {
  std::int64_t tokens, outputs, inputs;
};

/// `new_weights`: the weight's version changes at every call; in training it changes from step to step.
struct Row {
  std::string name;
  heddle::GemmCall call;
  bool new_weights = false;
  std::map<std::string, double> gigaflops{};  ///< by implementation, the fastest sample
};

Tensor filled(DType dtype, Shape const& shape) {
  std::vector<float> elements(static_cast<std::size_t>(shape.size()));
  for (std::size_t i = 0; i < elements.size(); ++i) {
    elements[i] = static_cast<float>(i * 37 % 101) / 101.0F - 0.5F;
  }
  if (dtype == DType::float32) {
    return heddle::from_host<float>(elements, shape);
  }
  std::vector<heddle::BFloat16> const rounded(elements.begin(), elements.end());
  return heddle::from_host<heddle::BFloat16>(rounded, shape);
}

std::vector<Row> rows_of(Layer const& layer, DType dtype) {
  Tensor const x = filled(dtype, {layer.tokens, layer.inputs});
  Tensor const y = filled(dtype, {layer.tokens, layer.outputs});
  Tensor const weight = filled(DType::float32, {layer.outputs, layer.inputs});
  Tensor const bias = filled(DType::float32, {layer.outputs});
  Tensor const gradient = filled(DType::float32, {layer.outputs, layer.inputs});
  auto const output = [&](Tensor const& like) { return Tensor::allocate(dtype, like.shape()); };
  heddle::GemmCall const forward{
      .a = x, .b = weight, .c = output(y), .bias = bias, .transpose_b = true, .b_weight = {1, 1}};
  heddle::GemmCall const input_gradient{.a = y, .b = weight, .c = output(x), .bias = {}, .b_weight = {1, 1}};
  heddle::GemmCall const weight_gradient{
      .a = y, .b = x, .c = gradient, .bias = {}, .transpose_a = true, .accumulate = true};
  std::string const suffix =
      fmt::format("/{}x{}x{}/{}", layer.tokens, layer.outputs, layer.inputs, heddle::name_of(dtype));
  return {{"forward" + suffix, forward},
          {"forward_new_weights" + suffix, forward, true},
          {"input_gradient" + suffix, input_gradient},
          {"weight_gradient" + suffix, weight_gradient}};
}

double seconds_of(heddle::Execution& execution, heddle::Gemm& gemm, Row& row, int calls) {
  auto const begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    gemm.multiply(execution, row.call);
    row.call.b_weight.version += row.new_weights ? 1 : 0;
  }
  execution.space.fence();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// `names`: of the implementations; all but the reference if it is empty.
void measure(heddle::Execution& execution, heddle::KernelRegistries const& registries,
             std::set<std::string> const& names, Row& row) {
  auto const problem = row.call.problem();
  double const operations = 2.0 * static_cast<double>(problem.m * problem.n * problem.k);
  struct Contender {
    heddle::KernelEntry<heddle::Gemm> const& entry;
    int calls;
    double best = std::numeric_limits<double>::infinity();
  };
  std::vector<Contender> contenders;
  for (auto const& entry : registries.of<heddle::Gemm>().entries()) {
    bool const wanted = names.empty() ? entry.name != "reference" : names.contains(entry.name);
    if (wanted && entry.kernel->supports(problem)) {
      seconds_of(execution, *entry.kernel, row, 1);
      double const once = seconds_of(execution, *entry.kernel, row, 1);
      contenders.push_back({entry, std::max(1, static_cast<int>(sample_seconds / once))});
    }
  }
  for (int round = 0; round < rounds; ++round) {
    for (Contender& contender : contenders) {
      double const seconds = seconds_of(execution, *contender.entry.kernel, row, contender.calls);
      contender.best = std::min(contender.best, seconds / contender.calls);
    }
  }
  for (Contender const& contender : contenders) {
    row.gigaflops[contender.entry.name] = operations * 1e-9 / contender.best;
  }
}

/// Percentages are of the best rate that any call of the same dtype reached.
void print(std::vector<Row> const& rows) {
  std::map<DType, double> best;
  for (Row const& row : rows) {
    for (auto const& [name, rate] : row.gigaflops) {
      double& highest = best[row.call.a.dtype()];
      highest = std::max(highest, rate);
    }
  }
  for (Row const& row : rows) {
    fmt::print("{:52}", row.name);
    for (auto const& [name, rate] : row.gigaflops) {
      fmt::print("  {:>8} {:6.1f} {:3.0f} %", name, rate, 100 * rate / best[row.call.a.dtype()]);
    }
    fmt::print("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string const wanted = argc > 1 ? argv[1] : "";
  std::set<std::string> const names(argv + std::min(argc, 2), argv + argc);
  heddle::Runtime runtime;
  heddle::KernelRegistries registries;
  heddle::register_built_in_kernels(registries);
  std::vector<Row> rows;
  for (DType const dtype : {DType::float32, DType::bfloat16}) {
    for (Layer const& layer :
         {Layer{2700, 128, 128}, Layer{2700, 384, 128}, Layer{2700, 256, 128}, Layer{2700, 128, 256},
          Layer{256, 10000, 128}, Layer{40, 256, 128}, Layer{8, 10000, 128}, Layer{1500, 512, 512},
          Layer{1500, 1536, 512}, Layer{1500, 2048, 512}, Layer{1500, 512, 2048}, Layer{256, 10000, 512},
          Layer{700, 1024, 1024}, Layer{700, 4096, 1024}, Layer{700, 1024, 4096}, Layer{256, 32000, 1024}}) {
      for (Row& row : rows_of(layer, dtype)) {
        if (row.name.find(wanted) != std::string::npos) {
          measure(runtime.execution(), registries, names, row);
          rows.push_back(std::move(row));
        }
      }
    }
  }
  print(rows);
}
