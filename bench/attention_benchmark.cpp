#include <benchmark/benchmark.h>

#include <cmath>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/tensor/arena.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/kernels/register.hpp>
#include <memory>
#include <string>
#include <vector>

namespace {

using heddle::DType;
using heddle::Shape;
using heddle::Tensor;

/// The sequences of a micro-batch of that model.
struct Workload {
  std::string name;
  std::int64_t heads, head_dim;
  std::vector<std::int32_t> queries, keys;  ///< lengths
  bool self;                                ///< q, k and v are columns of one fused matrix
  bool causal;
  float dropout = 0;
};

/// Sentences of 6 to 40 tokens, 14 on average, distributed as in Multi30k.
std::vector<std::int32_t> sentence_lengths(std::int32_t count, std::uint32_t seed) {
  std::vector<std::int32_t> lengths;
  for (std::int32_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    double const uniform = (static_cast<double>(seed >> 8) + 0.5) / 16777216.0;
    lengths.push_back(6 + static_cast<std::int32_t>(std::min(34.0, -8.5 * std::log(1 - 0.98 * uniform))));
  }
  return lengths;
}

heddle::Sequences sequences_of(std::vector<std::int32_t> const& lengths) {
  std::vector<std::int32_t> begins;
  std::int32_t begin = 0;
  std::int32_t longest = 0;
  for (std::int32_t const length : lengths) {
    begins.push_back(begin);
    begin += length;
    longest = std::max(longest, length);
  }
  auto const count = static_cast<std::int64_t>(lengths.size());
  return {heddle::from_host<std::int32_t>(begins, Shape{count}), heddle::from_host<std::int32_t>(lengths, Shape{count}),
          count, longest};
}

std::int64_t total(std::vector<std::int32_t> const& lengths) {
  std::int64_t sum = 0;
  for (std::int32_t const length : lengths) {
    sum += length;
  }
  return sum;
}

/// Taken from the arena, as a training step's tensors are: it has huge pages.
Tensor filled(heddle::Arena& arena, Shape const& shape, DType dtype) {
  Tensor const tensor = arena.allocate(dtype, shape);
  std::vector<float> elements(static_cast<std::size_t>(shape.size()));
  std::vector<heddle::BFloat16> rounded(elements.size());
  std::uint32_t seed = 1;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    seed = seed * 1664525U + 1013904223U;
    elements[i] = static_cast<float>(seed >> 8) / 8388608.0F - 1;
    rounded[i] = heddle::BFloat16(elements[i]);
  }
  copy_from_host(tensor, dtype == DType::bfloat16 ? static_cast<void const*>(rounded.data()) : elements.data());
  return tensor;
}

/// A call and its outputs.
struct Operands {
  std::shared_ptr<heddle::Arena> arena = std::make_shared<heddle::Arena>();
  heddle::AttentionCall call;
  Tensor output, log_sum_exp, grad_output;
  heddle::AttentionGradients gradients;

  Operands(Workload const& work, DType dtype) {
    std::int64_t const width = work.heads * work.head_dim;
    std::int64_t const rows = total(work.queries);
    std::int64_t const key_rows = total(work.keys);
    std::int64_t const first = work.self ? width : 0;  // column of k
    Tensor const fused = filled(*arena, {key_rows, first + 2 * width}, dtype);
    Tensor const grad = filled(*arena, {key_rows, first + 2 * width}, dtype);
    call.q = work.self ? fused.columns(0, width) : filled(*arena, {rows, width}, dtype);
    call.k = fused.columns(first, width), call.v = fused.columns(first + width, width);
    gradients = {work.self ? grad.columns(0, width) : filled(*arena, {rows, width}, dtype), grad.columns(first, width),
                 grad.columns(first + width, width)};
    call.queries = sequences_of(work.queries);
    call.keys = sequences_of(work.keys);
    call.heads = work.heads;
    call.scale = 1 / std::sqrt(static_cast<double>(work.head_dim));
    call.mask = work.causal ? heddle::AttentionMask::causal() : heddle::AttentionMask::bidirectional();
    if (work.dropout > 0) {
      std::vector<std::int32_t> samples(static_cast<std::size_t>(rows), 3);
      call.dropout.rate = work.dropout;
      call.dropout.key = 7;
      call.dropout.sample = heddle::from_host<std::int32_t>(samples, Shape{rows});
      call.dropout.position = heddle::from_host<std::int32_t>(samples, Shape{rows});
    }
    output = filled(*arena, {rows, width}, dtype);
    log_sum_exp = filled(*arena, {rows, work.heads}, DType::float32);
    grad_output = filled(*arena, {rows, width}, dtype);
  }
};

template <class Pass>
void measure(benchmark::State& state, Workload const& work, Pass const& pass) {
  pass();
  for (auto _ : state) {
    pass();
  }
  double const tokens_and_heads = static_cast<double>(total(work.queries) * work.heads);
  state.counters["s_per_token_and_head"] =
      benchmark::Counter(tokens_and_heads * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void add_benchmarks(heddle::Runtime& runtime, std::string const& implementation, heddle::Attention& kernel,
                    Workload const& work, DType dtype) {
  std::string const name = implementation + "/" + work.name + "/" + std::string(heddle::name_of(dtype));
  benchmark::RegisterBenchmark((name + "/forward").c_str(), [&runtime, &kernel, work, dtype](benchmark::State& state) {
    Operands const o(work, dtype);
    measure(state, work, [&] { kernel.forward(runtime.execution(), o.call, o.output, o.log_sum_exp); });
  })->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark((name + "/backward").c_str(), [&runtime, &kernel, work, dtype](benchmark::State& state) {
    Operands const o(work, dtype);
    kernel.forward(runtime.execution(), o.call, o.output, o.log_sum_exp);
    measure(state, work,
            [&] { kernel.backward(runtime.execution(), o.call, o.output, o.log_sum_exp, o.grad_output, o.gradients); });
  })->Unit(benchmark::kMicrosecond);
}

std::vector<Workload> workloads() {
  std::vector<std::int32_t> const source = sentence_lengths(250, 1);
  std::vector<std::int32_t> const target = sentence_lengths(250, 2);
  std::vector<std::int32_t> const page{2048};
  return {
      {"tiny_self", 4, 32, source, source, true, false},   {"tiny_causal", 4, 32, target, target, true, true},
      {"tiny_cross", 4, 32, target, source, false, false}, {"tiny_dropout", 4, 32, source, source, true, false, 0.1F},
      {"base_self", 8, 64, source, source, true, false},   {"base_causal", 8, 64, target, target, true, true},
      {"long_self", 8, 64, page, page, true, false},       {"long_causal", 8, 64, page, page, true, true}};
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  heddle::Runtime runtime;
  heddle::KernelRegistries registries;
  heddle::register_built_in_kernels(registries);
  for (Workload const& work : workloads()) {
    for (DType const dtype : {DType::float32, DType::bfloat16}) {
      for (auto const& entry : registries.of<heddle::Attention>().entries()) {
        // An implementation may have a part for each element type.
        heddle::AttentionProblem const problem{.dtype = dtype, .heads = work.heads, .head_dim = work.head_dim};
        if (entry.name != "reference" && entry.kernel->supports(problem)) {
          add_benchmarks(runtime, entry.name, *entry.kernel, work, dtype);
        }
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  // These tensors must be freed before the runtime ends.
  benchmark::ClearRegisteredBenchmarks();
  benchmark::Shutdown();
}
