#include "kernel_benchmark.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <heddle/core/execution.hpp>
#include <heddle/core/layout.hpp>
#include <heddle/core/random.hpp>
#include <heddle/dist/rehearsal.hpp>
#include <heddle/dist/training_engine.hpp>
#include <heddle/io/batches.hpp>
#include <limits>
#include <optional>

#include "timed_kernels.hpp"

namespace heddle {

namespace {

/// The model whose step is timed: what is repeated, or split without changing a kernel's problem, is there once.
Config small_config(Config config) {
  config.model.encoder_layers = config.model.decoder_layers = 1;
  ParallelConfig parallel;
  parallel.tensor = config.parallel.tensor;
  parallel.data = 1;
  config.parallel = parallel;
  config.train.deterministic = false;
  return config;
}

/// A micro-batch as training would begin with, or one of made-up sentences of 10 to 50 tokens.
struct Sample {
  VocabularySizes vocabulary;
  Pack pack;
};

Sample read_sample(Config const& config) {
  Dataset const data = Dataset::open(config.data.train);
  BatchPlanner batches(data, {config.train.batch_tokens, config.model.max_length}, config.train.seed);
  std::vector<std::int64_t> const pairs = batches.next().pairs;
  PairRange const first = cut_by_tokens(data, pairs, config.train.micro_batch_tokens).front();
  return {{data.source_tokenizer().size(), data.target_tokenizer().size(), data.joint()},
          read_pack(data, pairs, first)};
}

Sample make_up_sample(Config const& config, std::int64_t vocabulary) {
  Philox::Counter counter{};
  auto const below = [&](std::int64_t limit) {
    ++counter[0];
    return static_cast<std::int64_t>(Philox::words(config.train.seed, counter)[0] % static_cast<std::uint64_t>(limit));
  };
  auto const sentence = [&](std::int64_t pieces) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(pieces));
    std::generate(ids.begin(), ids.end(), [&] { return static_cast<std::int32_t>(below(vocabulary)); });
    return ids;
  };
  std::vector<SentencePair> pairs;
  std::int64_t const longest = std::min<std::int64_t>(50, config.model.max_length);
  std::int64_t const shortest = std::min<std::int64_t>(10, longest);
  for (std::int64_t left = config.train.micro_batch_tokens;;) {
    std::int64_t const tokens = shortest + below(longest - shortest + 1);
    if (left < tokens && !pairs.empty()) {
      break;
    }
    left -= tokens;
    pairs.push_back({static_cast<std::int32_t>(pairs.size()), sentence(tokens - 1), sentence(tokens - 1)});
  }
  return {{vocabulary, vocabulary, true}, make_pack(pairs, 0, 0, 0)};
}

/// One forward and backward pass and one update, whose calls `problems` then has.
TimedProblems time_step(KernelBenchmark const& benchmark, Config const& config, Sample const& sample) {
  TimedProblems problems;
  Registries registries = benchmark.registries;
  registries.kernels = timed_kernels(benchmark.registries.kernels, benchmark.all, problems);
  int const ranks = config.parallel.tensor;
  ParallelState const parallel =
      ranks == 1 ? ParallelState() : idle_parallel_state(make_mesh(config, 0, ranks), config.parallel);
  TrainingEngine engine(
      {config, registries, parallel, benchmark.execution, sample.vocabulary, dtype_of(config.train.precision)});
  engine.parameters().initialize(config.train.seed);
  engine.accumulate({.micro_batches = 1,
                     .make_pack = [&](std::int64_t) { return sample.pack; },
                     .target_tokens = sample.pack.target_rows.tokens});
  engine.update(config.optimizer.learning_rate, 1);
  return problems;
}

template <class Work>
double least_seconds(Execution& execution, Work const& work) {
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 10; ++round) {
    execution.space.fence();
    auto const begin = std::chrono::steady_clock::now();
    work();
    execution.space.fence();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return least;
}

/// The best that this machine was seen to do.
struct Peaks {
  double flops = 0;                      ///< a second, of a large multiplication
  std::map<double, double> copies = {};  ///< bytes a second of a copy that reads and writes so many bytes in all

  /// Of what reads and writes so much: what fits into a cache is faster.
  double bandwidth(double bytes) const {
    auto const copy = copies.lower_bound(bytes);
    return copy == copies.end() ? copies.rbegin()->second : copy->second;
  }
};

/// Of a matrix by a square weight.
double measure_multiplication(KernelBenchmark const& benchmark, DType dtype, std::int64_t extent) {
  Execution& execution = benchmark.execution;
  auto const tensor_ops = benchmark.registries.kernels.tensor_ops.select("auto", {DType::float32});
  Tensor const ones = Tensor::allocate(statistics_dtype(dtype), {extent, extent});
  tensor_ops->fill(execution, ones, 1);
  Tensor const a = Tensor::allocate(dtype, ones.shape());
  tensor_ops->copy(execution, ones, a);
  // The weight's id is none that a parameter has.
  auto const id = std::numeric_limits<std::uint64_t>::max() - static_cast<std::uint64_t>(extent);
  GemmCall const call{.a = a,
                      .b = ones,
                      .c = Tensor::allocate(dtype, ones.shape()),
                      .bias = {},
                      .transpose_b = true,
                      .b_weight = {id, 1}};
  double best = 0;
  for (auto const& entry : benchmark.registries.kernels.gemm.entries()) {
    if (entry.speed > 0 && entry.kernel->supports(call.problem())) {
      double const seconds = least_seconds(execution, [&] { entry.kernel->multiply(execution, call); });
      best = std::max(best, 2 * std::pow(static_cast<double>(extent), 3) / seconds);
    }
  }
  return best;
}

Peaks measure_peaks(KernelBenchmark const& benchmark, DType dtype) {
  Peaks peaks;
  for (std::int64_t const extent : {256, 512, 1024}) {
    peaks.flops = std::max(peaks.flops, measure_multiplication(benchmark, dtype, extent));
  }
  auto const tensor_ops = benchmark.registries.kernels.tensor_ops.select("auto", {DType::float32});
  for (std::int64_t elements = std::int64_t{1} << 13; elements <= std::int64_t{1} << 25; elements *= 4) {
    Tensor const from = Tensor::allocate(DType::float32, {elements});
    Tensor const to = Tensor::allocate(DType::float32, {elements});
    double const bytes = 2 * static_cast<double>(from.bytes());
    auto const copy = [&] { tensor_ops->copy(benchmark.execution, from, to); };
    peaks.copies[bytes] = bytes / least_seconds(benchmark.execution, copy);
  }
  return peaks;
}

std::string in_words(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} us", seconds * 1e6)
         : seconds < 1  ? fmt::format("{:.2f} ms", seconds * 1e3)
                        : fmt::format("{:.2f} s ", seconds);
}

void print_line(std::string const& call, std::string const& name, double seconds) {
  fmt::print("  {:<46} {:<12} {:>10}", call, name, in_words(seconds));
}

/// Rate and fraction of the peak; nothing where there is no such work.
void print_rate(double amount, double seconds, double peak) {
  double const rate = amount / seconds;
  fmt::print("{}", amount > 0 ? fmt::format(" {:>9.1f} {:>6.0f} %", rate * 1e-9, 100 * rate / peak)
                              : fmt::format(" {:>18}", ""));
}

void print_problem(std::string const& key, TimedProblem const& problem, Peaks const& peaks) {
  fmt::print(" {}\n", key);
  for (TimedCall const& call : problem.calls) {
    std::string title = fmt::format("{}{}", call.name, call.count > 1 ? fmt::format(", {}x", call.count) : "");
    for (auto const& [name, seconds] : call.seconds) {
      print_line(title, name, seconds);
      print_rate(call.flops, seconds, peaks.flops);
      print_rate(call.bytes, seconds, peaks.bandwidth(call.bytes));
      fmt::print("\n");
      title.clear();
    }
  }
  std::string title = "all calls";
  for (auto const& [name, seconds] : problem.total()) {
    print_line(title, (name == problem.fastest() ? "* " : "  ") + name, seconds);
    fmt::print("\n");
    title.clear();
  }
}

void print_tables(TimedProblems const& problems, Peaks const& peaks) {
  fmt::print("\n  {:<46} {:<12} {:>10} {:>9} {:>8} {:>9} {:>8}\n", "", "", "time", "GFLOP/s", "of peak", "GB/s",
             "of copy");
  for (auto const& [operation, by_key] : problems) {
    for (auto const& [key, problem] : by_key) {
      if (!problem.calls.empty()) {
        fmt::print("{}:", operation);
        print_problem(key, problem, peaks);
      }
    }
  }
}

}  // namespace

KernelTimings benchmark_kernels(KernelBenchmark const& benchmark) {
  Config const config = small_config(benchmark.config);
  Sample const sample = config.data.train.empty() ? make_up_sample(config, benchmark.vocabulary) : read_sample(config);
  DType const dtype = dtype_of(config.train.precision);
  fmt::print("A step of the model with one encoder and one decoder layer: {}, {} + {} tokens{}, vocabulary {}{}\n",
             name_of(dtype), sample.pack.source_rows.tokens, sample.pack.target_rows.tokens,
             config.data.train.empty() ? " (made up)" : " of " + config.data.train, sample.vocabulary.target,
             config.parallel.tensor > 1 ? fmt::format(", parallel.tensor = {}", config.parallel.tensor) : "");
  Peaks const peaks = measure_peaks(benchmark, dtype);
  fmt::print("Peak of multiplications: {:.1f} GFLOP/s; of copies", peaks.flops * 1e-9);
  for (auto const& [bytes, rate] : peaks.copies) {
    fmt::print("{} {:.0f} KiB: {:.1f} GB/s", bytes == peaks.copies.begin()->first ? "" : ",", bytes / 1024,
               rate * 1e-9);
  }
  fmt::print("\nTimes are the least of some calls; * is what `auto` takes with them. {}\n",
             benchmark.all ? "" : "Implementations of speed 0 are left out; --all has them, too.");
  std::fflush(stdout);
  TimedProblems const problems = time_step(benchmark, config, sample);
  print_tables(problems, peaks);
  KernelTimings timings;
  for (auto const& [operation, by_key] : problems) {
    for (auto const& [key, problem] : by_key) {
      if (TimesByName times = problem.total(); times.size() > 1) {
        timings[operation][key] = std::move(times);
      }
    }
  }
  return timings;
}

}  // namespace heddle
