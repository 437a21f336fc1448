#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <heddle/core/execution.hpp>
#include <heddle/core/kernel_registry.hpp>
#include <heddle/core/runtime.hpp>
#include <heddle/kernels/register.hpp>
#include <numeric>
#include <string>
#include <vector>

// Times all that a training step does beside multiplications and attention: every implementation, in float32 and
// bfloat16, on the shapes of a small and of a base model. Counters: nanoseconds a token (an element of parameters for
// Adam and the sum of squares) and the bytes that must be read and written, per second.

namespace {

using heddle::DType;
using heddle::Shape;
using heddle::Tensor;

struct Bench {
  heddle::Execution& execution;
  DType dtype;
  DType statistics = heddle::statistics_dtype(dtype);

  Tensor random(DType type, Shape const& shape) const {
    std::vector<float> elements(static_cast<std::size_t>(shape.size()));
    std::uint32_t state = 1;
    for (float& element : elements) {
      state = state * 1664525U + 1013904223U;
      element = static_cast<float>(state >> 8) / 8388608.0F - 1.0F;
    }
    if (type == DType::float32) {
      return heddle::from_host<float>(elements, shape);
    }
    std::vector<heddle::BFloat16> rounded(elements.begin(), elements.end());
    return heddle::from_host<heddle::BFloat16>(rounded, shape);
  }
  Tensor activations(std::int64_t rows, std::int64_t columns) const { return random(dtype, {rows, columns}); }
  heddle::Dropout dropout(std::int64_t rows) const {
    std::vector<std::int32_t> sample(static_cast<std::size_t>(rows));
    std::vector<std::int32_t> position(static_cast<std::size_t>(rows));
    for (std::size_t row = 0; row < sample.size(); ++row) {
      sample[row] = static_cast<std::int32_t>(row / 16);
      position[row] = static_cast<std::int32_t>(row % 16);
    }
    heddle::Dropout result;
    result.rate = 0.1F;
    result.key = 0x123456789abcdefULL;
    result.step = 3;
    result.sample = heddle::from_host<std::int32_t>(sample, {rows});
    result.position = heddle::from_host<std::int32_t>(position, {rows});
    return result;
  }
};

/// What one repetition reads and writes at least, and what its time is divided by.
struct Amount {
  std::int64_t bytes;
  std::int64_t items;
};

void add(std::string const& name, Amount amount, std::function<void()> const& work) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    for (auto _ : state) {
      work();
    }
    auto const repetitions = static_cast<double>(state.iterations());
    state.counters["GB/s"] =
        benchmark::Counter(static_cast<double>(amount.bytes) * 1e-9 * repetitions, benchmark::Counter::kIsRate);
    state.counters["ns/item"] = benchmark::Counter(static_cast<double>(amount.items) * 1e-9 * repetitions,
                                                   benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  })->Unit(benchmark::kMicrosecond);
}

std::string shaped(std::string const& name, std::int64_t rows, std::int64_t columns) {
  return name + "/" + std::to_string(rows) + "x" + std::to_string(columns);
}

void add_residual_norm(Bench const& bench, heddle::ResidualNorm& kernel, std::string const& name, std::int64_t rows,
                       std::int64_t columns) {
  auto const element = static_cast<std::int64_t>(heddle::size_of(bench.dtype));
  heddle::ResidualNormCall call;
  call.residual = bench.activations(rows, columns);
  call.branch = bench.activations(rows, columns);
  call.weight = bench.random(bench.statistics, {columns});
  call.bias = bench.random(bench.statistics, {columns});
  heddle::ResidualNormOutput output{bench.activations(rows, columns), bench.activations(rows, columns),
                                    bench.random(bench.statistics, {rows}), bench.random(bench.statistics, {rows})};
  Tensor const grad = bench.activations(rows, columns);
  heddle::ResidualNormGradients const gradients{bench.activations(rows, columns), bench.activations(rows, columns),
                                                bench.random(bench.statistics, {columns}),
                                                bench.random(bench.statistics, {columns})};
  for (bool const dropped : {true, false}) {
    call.dropout = dropped ? bench.dropout(rows) : heddle::Dropout{};
    std::string const what = dropped ? "_dropout" : "";
    add(shaped(name + "/forward" + what, rows, columns), {4 * rows * columns * element, rows},
        [=, &bench, &kernel] { kernel.forward(bench.execution, call, output); });
    add(shaped(name + "/backward" + what, rows, columns), {4 * rows * columns * element, rows},
        [=, &bench, &kernel] { kernel.backward(bench.execution, call, output, grad, Tensor(), gradients); });
  }
}

void add_activation(Bench const& bench, heddle::Activation& kernel, std::string const& name, std::int64_t rows,
                    std::int64_t columns) {
  auto const element = static_cast<std::int64_t>(heddle::size_of(bench.dtype));
  heddle::ActivationCall call;
  call.input = bench.activations(rows, columns);
  Tensor const output = bench.activations(rows, columns);
  Tensor const grad = bench.activations(rows, columns);
  for (char const* const function : {"relu", "gelu"}) {
    for (bool const dropped : {true, false}) {
      call.function = function;
      call.dropout = dropped ? bench.dropout(rows) : heddle::Dropout{};
      std::string const what = std::string(function) + (dropped ? "_dropout" : "");
      add(shaped(name + "/" + what + "/forward", rows, columns), {2 * rows * columns * element, rows},
          [=, &bench, &kernel] { kernel.forward(bench.execution, call, output); });
      add(shaped(name + "/" + what + "/backward", rows, columns), {3 * rows * columns * element, rows},
          [=, &bench, &kernel] { kernel.backward(bench.execution, call, grad, output); });
    }
  }
}

/// The logits are written anew in every repetition by a copy, as a multiplication writes them; its time is listed
/// alone.
void add_cross_entropy(Bench const& bench, heddle::SoftmaxCrossEntropy& kernel, heddle::TensorOps& ops,
                       std::string const& name, std::int64_t vocabulary) {
  constexpr std::int64_t tokens = 256;
  auto const element = static_cast<std::int64_t>(heddle::size_of(bench.dtype));
  Tensor const fresh = bench.activations(tokens, vocabulary);
  heddle::SoftmaxCrossEntropyCall call;
  call.logits = bench.activations(tokens, vocabulary);
  call.targets = heddle::from_host<std::int32_t>(std::vector<std::int32_t>(tokens, 17), {tokens});
  call.vocabulary_size = vocabulary;
  call.label_smoothing = 0.1;
  Tensor const statistics = bench.random(bench.statistics, {tokens, heddle::SoftmaxCrossEntropy::statistics_columns});
  Tensor const losses = bench.random(bench.statistics, {tokens, 2});
  add(shaped(name + "/copy_alone", tokens, vocabulary), {2 * tokens * vocabulary * element, tokens},
      [=, &bench, &ops] { ops.copy(bench.execution, fresh, call.logits); });
  add(shaped(name + "/training_with_copy", tokens, vocabulary), {4 * tokens * vocabulary * element, tokens},
      [=, &bench, &kernel, &ops] {
        ops.copy(bench.execution, fresh, call.logits);
        kernel.losses_and_gradient(bench.execution, call, 0.5, losses);
      });
  add(shaped(name + "/sharded_with_copy", tokens, vocabulary), {4 * tokens * vocabulary * element, tokens},
      [=, &bench, &kernel, &ops] {
        ops.copy(bench.execution, fresh, call.logits);
        kernel.statistics(bench.execution, call, statistics);
        kernel.losses(bench.execution, call, statistics, losses);
        kernel.gradient(bench.execution, call, statistics, 0.5);
      });
}

void add_embedding(Bench const& bench, heddle::Embedding& kernel, std::string const& name, std::int64_t rows,
                   std::int64_t columns) {
  constexpr std::int64_t vocabulary = 10000;
  auto const element = static_cast<std::int64_t>(heddle::size_of(bench.dtype));
  std::vector<std::int32_t> id(static_cast<std::size_t>(rows));
  for (std::size_t row = 0; row < id.size(); ++row) {
    id[row] = row % 3 == 0 ? 5 : static_cast<std::int32_t>(row * row % vocabulary);
  }
  std::vector<std::int32_t> order(id.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t left, std::int32_t right) {
    return id[static_cast<std::size_t>(left)] < id[static_cast<std::size_t>(right)];
  });
  heddle::EmbeddingCall call;
  call.table = bench.random(bench.statistics, {vocabulary, columns});
  call.positions = bench.random(bench.statistics, {64, columns});
  call.tokens = {heddle::from_host<std::int32_t>(id, {rows}), heddle::from_host<std::int32_t>(order, {rows})};
  call.dropout = bench.dropout(rows);
  call.rows.position = call.dropout.position;
  call.rows.sample = call.dropout.sample;
  call.rows.tokens = rows;
  Tensor const output = bench.activations(rows, columns);
  Tensor const grad_table = bench.random(bench.statistics, {vocabulary, columns});
  add(shaped(name + "/forward_dropout", rows, columns), {rows * columns * (4 + element), rows},
      [=, &bench, &kernel] { kernel.forward(bench.execution, call, output); });
  add(shaped(name + "/backward_dropout", rows, columns), {rows * columns * (8 + element), rows},
      [=, &bench, &kernel] { kernel.backward(bench.execution, call, output, grad_table, Tensor()); });
}

void add_tensor_ops(Bench const& bench, heddle::TensorOps& ops, std::string const& name, std::int64_t rows,
                    std::int64_t columns) {
  auto const element = static_cast<std::int64_t>(heddle::size_of(bench.dtype));
  Tensor const one = bench.activations(rows, columns);
  Tensor const other = bench.activations(rows, columns);
  Tensor const sums = bench.random(bench.statistics, {columns});
  ops.fill(bench.execution, one, 0);
  add(shaped(name + "/add", rows, columns), {3 * rows * columns * element, rows},
      [=, &bench, &ops] { ops.add(bench.execution, one, other); });
  add(shaped(name + "/column_sums", rows, columns), {rows * columns * element, rows},
      [=, &bench, &ops] { ops.add_column_sums(bench.execution, other, sums); });
}

void add_optimizer(Bench const& bench, heddle::Adam& adam, heddle::TensorOps& ops, std::string const& name,
                   std::int64_t size) {
  auto const parameters = [&] { return bench.random(DType::float32, {size}); };
  heddle::AdamCall call{
      .value = parameters(), .gradient = parameters(), .first_moment = parameters(), .second_moment = parameters()};
  call.learning_rate = 1e-6;
  ops.fill(bench.execution, call.second_moment, 1);
  add(name + "/adam/" + std::to_string(size), {28 * size, size},
      [=, &bench, &adam] { adam.update(bench.execution, call); });
  add(name + "/sum_of_squares/" + std::to_string(size), {4 * size, size},
      [=, &bench, &ops] { benchmark::DoNotOptimize(ops.sum_of_squares(bench.execution, call.gradient)); });
}

template <class Registry, class Work>
void for_each_fast(Registry const& registry, Bench const& bench, Work const& work) {
  for (auto const& entry : registry.entries()) {
    using Kernel = typename decltype(entry.kernel)::element_type;
    if (entry.name != "reference") {
      work(*entry.kernel,
           std::string(Kernel::operation) + "/" + entry.name + "/" + std::string(heddle::name_of(bench.dtype)));
    }
  }
}

void add_all(Bench const& bench, heddle::KernelRegistries const& registries) {
  heddle::TensorOps& ops = *registries.tensor_ops.select("auto", {bench.dtype});
  struct Shapes {
    std::int64_t rows, d_model, d_ff, vocabulary;
  };
  for (Shapes const& shapes : {Shapes{3300, 128, 256, 10000}, Shapes{1500, 512, 2048, 32000}}) {
    for_each_fast(registries.residual_norm, bench, [&](auto& kernel, std::string const& name) {
      add_residual_norm(bench, kernel, name, shapes.rows, shapes.d_model);
    });
    for_each_fast(registries.activation, bench, [&](auto& kernel, std::string const& name) {
      add_activation(bench, kernel, name, shapes.rows, shapes.d_ff);
    });
    for_each_fast(registries.softmax_cross_entropy, bench, [&](auto& kernel, std::string const& name) {
      add_cross_entropy(bench, kernel, ops, name, shapes.vocabulary);
    });
    for_each_fast(registries.embedding, bench, [&](auto& kernel, std::string const& name) {
      add_embedding(bench, kernel, name, shapes.rows, shapes.d_model);
    });
    for_each_fast(registries.tensor_ops, bench, [&](auto& kernel, std::string const& name) {
      add_tensor_ops(bench, kernel, name, shapes.rows, shapes.d_model);
      add_tensor_ops(bench, kernel, name, shapes.rows, shapes.d_ff);
    });
  }
  if (bench.dtype == DType::float32) {
    for_each_fast(registries.adam, bench, [&](auto& kernel, std::string const& name) {
      add_optimizer(bench, kernel, ops, name, std::int64_t{1} << 20);
      add_optimizer(bench, kernel, ops, name, std::int64_t{1} << 25);
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  heddle::Runtime runtime;
  heddle::KernelRegistries registries;
  heddle::register_built_in_kernels(registries);
  std::vector<Bench> const benches{{runtime.execution(), DType::float32}, {runtime.execution(), DType::bfloat16}};
  for (Bench const& bench : benches) {
    add_all(bench, registries);
  }
  benchmark::RunSpecifiedBenchmarks();
  // Their tensors must go before the runtime does.
  benchmark::ClearRegisteredBenchmarks();
  benchmark::Shutdown();
}
