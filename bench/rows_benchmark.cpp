#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/dropout.hpp>
#include <heddle/core/operations/embedding.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/operations/residual_norm.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/operations/update.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/kernels/register.hpp>
#include <numeric>
#include <string>
#include <vector>

// Times everything in a training step except multiplications and attention: every implementation, in float32 and
// bfloat16, on the shapes of a small and of a base model. Counters: nanoseconds per token (per parameter element for
// Adam and the sum of squares) and the bytes that must be read and written, per second. On a machine that others use,
// too: --benchmark_repetitions=30 --benchmark_min_time=0.005 --benchmark_report_aggregates_only=true, and read "min".

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

/// The least bytes that one repetition reads and writes, and the count that its time is divided by.
struct Amount {
  std::int64_t bytes;
  std::int64_t items;
};

using Work = std::function<void()>;

/// `prepare` makes the tensors only when the benchmark is run, and returns the function to be timed.
void add(std::string const& name, Amount amount, std::function<Work()> const& prepare) {
  benchmark::RegisterBenchmark(
      name.c_str(),
      [=](benchmark::State& state) {
        Work const work = prepare();
        for (auto _ : state) {
          work();
        }
        auto const repetitions = static_cast<double>(state.iterations());
        state.counters["GB/s"] =
            benchmark::Counter(static_cast<double>(amount.bytes) * 1e-9 * repetitions, benchmark::Counter::kIsRate);
        state.counters["ns/item"] = benchmark::Counter(static_cast<double>(amount.items) * 1e-9 * repetitions,
                                                       benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
      })
      ->Unit(benchmark::kMicrosecond)
      ->ComputeStatistics("min", [](std::vector<double> const& times) { return *std::ranges::min_element(times); });
}

std::string shaped(std::string const& name, std::int64_t rows, std::int64_t columns) {
  return name + "/" + std::to_string(rows) + "x" + std::to_string(columns);
}

void add_residual_norm(Bench const& bench, heddle::ResidualNorm& kernel, std::string const& name, std::int64_t rows,
                       std::int64_t columns) {
  struct Problem {
    heddle::ResidualNormCall call;
    heddle::ResidualNormOutput output;
    heddle::ResidualNormGradients gradients;
    Tensor grad;

    Problem(Bench const& bench, std::int64_t rows, std::int64_t columns, bool dropped) {
      auto const matrix = [&] { return bench.activations(rows, columns); };
      auto const vector = [&](std::int64_t size) { return bench.random(bench.statistics, {size}); };
      call.residual = matrix();
      call.branch = matrix();
      call.weight = vector(columns);
      call.bias = vector(columns);
      call.dropout = dropped ? bench.dropout(rows) : heddle::Dropout{};
      output = {matrix(), matrix(), vector(rows), vector(rows)};
      gradients = {matrix(), matrix(), vector(columns), vector(columns)};
      grad = matrix();
    }
  };
  auto const element = static_cast<std::int64_t>(heddle::size_of(bench.dtype));
  Amount const amount{4 * rows * columns * element, rows};
  for (bool const dropped : {true, false}) {
    std::string const what = dropped ? "_dropout" : "";
    add(shaped(name + "/forward" + what, rows, columns), amount, [=, &bench, &kernel] {
      return [problem = Problem(bench, rows, columns, dropped), &bench, &kernel] {
        kernel.forward(bench.execution, problem.call, problem.output);
      };
    });
    add(shaped(name + "/backward" + what, rows, columns), amount, [=, &bench, &kernel] {
      return [problem = Problem(bench, rows, columns, dropped), &bench, &kernel] {
        kernel.backward(bench.execution, problem.call, problem.output, problem.grad, Tensor(), problem.gradients);
      };
    });
  }
}

void add_activation(Bench const& bench, heddle::Activation& kernel, std::string const& name, std::int64_t rows,
                    std::int64_t columns) {
  auto const element = static_cast<std::int64_t>(heddle::size_of(bench.dtype));
  for (char const* const function : {"relu", "gelu"}) {
    for (bool const dropped : {true, false}) {
      auto const call = [=, &bench] {
        return heddle::ActivationCall{function, bench.activations(rows, columns),
                                      dropped ? bench.dropout(rows) : heddle::Dropout{}};
      };
      std::string const what = name + "/" + function + (dropped ? "_dropout" : "");
      add(shaped(what + "/forward", rows, columns), {2 * rows * columns * element, rows}, [=, &bench, &kernel] {
        return [&bench, &kernel, call = call(), output = bench.activations(rows, columns)] {
          kernel.forward(bench.execution, call, output);
        };
      });
      add(shaped(what + "/backward", rows, columns), {3 * rows * columns * element, rows}, [=, &bench, &kernel] {
        return [&bench, &kernel, call = call(), output = bench.activations(rows, columns),
                grad = bench.activations(rows, columns)] { kernel.backward(bench.execution, call, grad, {output}); };
      });
    }
  }
}

/// In every repetition a copy writes the logits again, as a multiplication would; its time is also listed
/// separately.
void add_cross_entropy(Bench const& bench, heddle::SoftmaxCrossEntropy& kernel, heddle::TensorOps& ops,
                       std::string const& name, std::int64_t vocabulary) {
  constexpr std::int64_t tokens = 256;
  struct Problem {
    Tensor fresh;
    heddle::SoftmaxCrossEntropyCall call;
    Tensor statistics, losses;

    Problem(Bench const& bench, std::int64_t size)
        : fresh(bench.activations(tokens, size)),
          statistics(bench.random(bench.statistics, {tokens, heddle::SoftmaxCrossEntropy::statistics_columns})),
          losses(bench.random(bench.statistics, {tokens, 2})) {
      call.logits = bench.activations(tokens, size);
      call.targets = heddle::from_host<std::int32_t>(std::vector<std::int32_t>(tokens, 17), {tokens});
      call.global_vocabulary = size;
      call.label_smoothing = 0.1;
    }
  };
  auto const bytes = 2 * tokens * vocabulary * static_cast<std::int64_t>(heddle::size_of(bench.dtype));
  add(shaped(name + "/copy_alone", tokens, vocabulary), {bytes, tokens}, [=, &bench, &ops] {
    return [problem = Problem(bench, vocabulary), &bench, &ops] {
      ops.copy(bench.execution, problem.fresh, problem.call.logits);
    };
  });
  add(shaped(name + "/whole_with_copy", tokens, vocabulary), {2 * bytes, tokens}, [=, &bench, &kernel, &ops] {
    return [problem = Problem(bench, vocabulary), &bench, &kernel, &ops] {
      ops.copy(bench.execution, problem.fresh, problem.call.logits);
      kernel.losses_and_gradient(bench.execution, problem.call, 0.5, problem.losses);
    };
  });
  add(shaped(name + "/sharded_with_copy", tokens, vocabulary), {3 * bytes, tokens}, [=, &bench, &kernel, &ops] {
    return [problem = Problem(bench, vocabulary), &bench, &kernel, &ops] {
      ops.copy(bench.execution, problem.fresh, problem.call.logits);
      kernel.statistics(bench.execution, problem.call, problem.statistics);
      kernel.losses(bench.execution, problem.call, problem.statistics, problem.losses);
      kernel.gradient(bench.execution, problem.call, problem.statistics, 0.5);
    };
  });
}

/// A third of the tokens have the same id, like punctuation.
heddle::TokenIds token_ids(std::int64_t rows, std::int64_t vocabulary) {
  std::vector<std::int32_t> id(static_cast<std::size_t>(rows));
  for (std::int64_t row = 0; row < rows; ++row) {
    id[static_cast<std::size_t>(row)] = row % 3 == 0 ? 5 : static_cast<std::int32_t>(row * row % vocabulary);
  }
  std::vector<std::int32_t> order(id.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::int32_t row) { return id[static_cast<std::size_t>(row)]; });
  return {heddle::from_host<std::int32_t>(id, {rows}), heddle::from_host<std::int32_t>(order, {rows})};
}

void add_embedding(Bench const& bench, heddle::Embedding& kernel, std::string const& name, std::int64_t rows,
                   std::int64_t columns) {
  struct Problem {
    heddle::EmbeddingCall call;
    Tensor output, grad_table;

    Problem(Bench const& bench, std::int64_t rows, std::int64_t columns) : output(bench.activations(rows, columns)) {
      constexpr std::int64_t vocabulary = 10000;
      call.table = bench.random(bench.statistics, {vocabulary, columns});
      call.positions = bench.random(bench.statistics, {64, columns});
      call.tokens = token_ids(rows, vocabulary);
      call.dropout = bench.dropout(rows);
      call.rows.position = call.dropout.position;
      call.rows.sample = call.dropout.sample;
      call.rows.tokens = rows;
      grad_table = bench.random(bench.statistics, {vocabulary, columns});
    }
  };
  auto const element = static_cast<std::int64_t>(heddle::size_of(bench.dtype));
  add(shaped(name + "/forward_dropout", rows, columns), {rows * columns * (4 + element), rows}, [=, &bench, &kernel] {
    return [problem = Problem(bench, rows, columns), &bench, &kernel] {
      kernel.forward(bench.execution, problem.call, problem.output);
    };
  });
  add(shaped(name + "/backward_dropout", rows, columns), {rows * columns * (8 + element), rows}, [=, &bench, &kernel] {
    return [problem = Problem(bench, rows, columns), &bench, &kernel] {
      kernel.backward(bench.execution, problem.call, problem.output, problem.grad_table, Tensor());
    };
  });
}

void add_tensor_ops(Bench const& bench, heddle::TensorOps& ops, std::string const& name, std::int64_t rows,
                    std::int64_t columns) {
  auto const element = static_cast<std::int64_t>(heddle::size_of(bench.dtype));
  add(shaped(name + "/add", rows, columns), {3 * rows * columns * element, rows}, [=, &bench, &ops] {
    return [&bench, &ops, one = bench.activations(rows, columns), other = bench.activations(rows, columns)] {
      ops.add(bench.execution, one, other);
    };
  });
  add(shaped(name + "/column_sums", rows, columns), {rows * columns * element, rows}, [=, &bench, &ops] {
    return [&bench, &ops, one = bench.activations(rows, columns), sums = bench.random(bench.statistics, {columns})] {
      ops.add_column_sums(bench.execution, one, sums);
    };
  });
}

void add_optimizer(Bench const& bench, heddle::Update& adam, heddle::TensorOps& ops, std::string const& name,
                   std::int64_t size) {
  add(name + "/adam/" + std::to_string(size), {28 * size, size}, [=, &bench, &adam, &ops] {
    auto const parameters = [&] { return bench.random(DType::float32, {size}); };
    heddle::UpdateCall call{.rule = "adam",
                            .value = parameters(),
                            .gradient = parameters(),
                            .state = {parameters(), parameters()},
                            .scalars = Tensor::allocate(DType::float64, {heddle::update_scalars::count}),
                            .options = heddle::option_values(adam.rule(), {})};
    copy_from_host(call.scalars, heddle::update_scalars_of(adam.rule(), call.options, {.learning_rate = 1e-6}).data());
    ops.fill(bench.execution, call.state[1], 1);
    return [&bench, &adam, call] { adam.update(bench.execution, call); };
  });
  add(name + "/sum_of_squares/" + std::to_string(size), {4 * size, size}, [=, &bench, &ops] {
    return [&bench, &ops, gradient = bench.random(DType::float32, {size}),
            sum = Tensor::allocate(DType::float64, {1})] { ops.add_sum_of_squares(bench.execution, gradient, sum); };
  });
}

template <class Registry, class Problem, class Visit>
void for_each_fast(Registry const& registry, Problem const& problem, Visit const& visit) {
  for (auto const& entry : registry.entries()) {
    using Kernel = typename decltype(entry.kernel)::element_type;
    if (entry.name != "reference" && entry.kernel->supports(problem)) {
      visit(*entry.kernel,
            std::string(Kernel::operation) + "/" + entry.name + "/" + std::string(heddle::name_of(problem.dtype)));
    }
  }
}

void add_all(Bench const& bench, heddle::KernelRegistries const& registries) {
  heddle::TensorOps& ops = *registries.of<heddle::TensorOps>().select("auto", {bench.dtype});
  struct Shapes {
    std::int64_t rows, d_model, d_ff, vocabulary;
  };
  for (Shapes const& shapes :
       {Shapes{200, 128, 256, 10000}, Shapes{3300, 128, 256, 10000}, Shapes{1500, 512, 2048, 32000}}) {
    for_each_fast(registries.of<heddle::ResidualNorm>(), heddle::ResidualNormProblem{bench.dtype, shapes.d_model},
                  [&](auto& kernel, std::string const& name) {
                    add_residual_norm(bench, kernel, name, shapes.rows, shapes.d_model);
                  });
    for_each_fast(
        registries.of<heddle::Activation>(), heddle::ActivationProblem{bench.dtype, "relu"},
        [&](auto& kernel, std::string const& name) { add_activation(bench, kernel, name, shapes.rows, shapes.d_ff); });
    for_each_fast(
        registries.of<heddle::SoftmaxCrossEntropy>(),
        heddle::SoftmaxCrossEntropyProblem{bench.dtype, shapes.vocabulary, shapes.vocabulary},
        [&](auto& kernel, std::string const& name) { add_cross_entropy(bench, kernel, ops, name, shapes.vocabulary); });
    for_each_fast(registries.of<heddle::Embedding>(),
                  heddle::EmbeddingProblem{bench.dtype, bench.statistics, shapes.d_model},
                  [&](auto& kernel, std::string const& name) {
                    add_embedding(bench, kernel, name, shapes.rows, shapes.d_model);
                  });
    for_each_fast(registries.of<heddle::TensorOps>(), heddle::TensorOpsProblem{bench.dtype},
                  [&](auto& kernel, std::string const& name) {
                    add_tensor_ops(bench, kernel, name, shapes.rows, shapes.d_model);
                    add_tensor_ops(bench, kernel, name, shapes.rows, shapes.d_ff);
                  });
  }
  if (bench.dtype == DType::float32) {
    for_each_fast(registries.of<heddle::Update>(), heddle::UpdateProblem{"adam", bench.dtype},
                  [&](auto& kernel, std::string const& name) {
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
  // These tensors must be freed before the runtime ends.
  benchmark::ClearRegisteredBenchmarks();
  benchmark::Shutdown();
}
