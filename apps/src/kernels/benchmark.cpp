#include "benchmark.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/base/seconds.hpp>
#include <heddle/core/measure/peaks.hpp>
#include <heddle/core/model/layout.hpp>
#include <heddle/core/operations/observation.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/dist/planning/dry_run.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/synthetic_batch.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <iterator>
#include <ranges>
#include <string>
#include <vector>

#include "run/configuration/config_check.hpp"

namespace heddle {

namespace {

constexpr int min_rounds = 3;
constexpr int max_rounds = 20;
constexpr double enough_seconds = 0.2;  ///< limit for each implementation, after min_rounds
constexpr double max_seconds = 1;       ///< limit for all together, after which no round starts

/// Equal calls of a training step.
struct TimedCall {
  std::string name;     ///< the method and its extents: "forward, 4096 x 512 x 2048"
  Cost cost;            ///< cost of one call
  double count = 0;     ///< the number of such calls in a step
  TimesByName seconds;  ///< the shortest time of a call
};

/// All calls of layers that select by the same key.
struct TimedProblem {
  std::string by_speed;  ///< the choice of `auto` without times
  std::vector<TimedCall> calls;

  /// Seconds of all calls, of the implementations that were timed in each.
  TimesByName total() const {
    TimesByName total = calls.empty() ? TimesByName() : calls.front().seconds;
    std::erase_if(total, [&](auto const& item) {
      return !std::ranges::all_of(calls, [&](TimedCall const& call) { return call.seconds.contains(item.first); });
    });
    for (auto& [name, seconds] : total) {
      seconds = 0;
      for (TimedCall const& call : calls) {
        seconds += call.count * call.seconds.at(name);
      }
    }
    return total;
  }
};

/// The timed calls by operation and timing_key.
using TimedProblems = std::map<std::string, std::map<std::string, TimedProblem>>;

/// Makes a call by every implementation that supports it, several times, when such a call first occurs. The step that
/// makes the calls then continues with wrong numbers: only its calls count. Implementations of speed 0 are left out if
/// there are others, unless `all`.
class KernelTimer final : public KernelObserver {
 public:
  explicit KernelTimer(bool all) : all_(all) {}

  void observe(Execution& execution, KernelCall const& call) override {
    TimedProblem& problem = problems_[std::string(call.operation)][std::string(call.key)];
    problem.by_speed = call.by_speed;
    std::string const name =
        fmt::format("{}{}{}, {}", call.direction, call.variant.empty() ? "" : " ", call.variant, call.extents);
    auto known = std::ranges::find(problem.calls, name, &TimedCall::name);
    if (known == problem.calls.end()) {
      known = problem.calls.insert(known, {name, call.cost, 0, measure(execution, call)});
    }
    known->count += 1;
    call.make();
  }

  TimedProblems const& problems() const { return problems_; }

 private:
  /// Times the implementations in turn, so that other work of the machine affects all alike.
  TimesByName measure(Execution& execution, KernelCall const& call) const {
    auto ways = call.ways();
    std::erase_if(ways, [&](auto const& each) { return !all_ && each.speed <= 0 && each.name != call.by_speed; });
    TimesByName min;
    double elapsed = 0;
    auto const enough = enough_seconds * static_cast<double>(ways.size());
    for (int round = 0; elapsed < max_seconds && (round < min_rounds || (round < max_rounds && elapsed < enough));
         ++round) {
      for (KernelCall::Candidate const& way : ways) {
        execution.space.fence();
        auto const begin = SteadyClock::now();
        way.make();
        execution.space.fence();
        double const seconds = seconds_since(begin);
        double& best = min.try_emplace(way.name, seconds).first->second;
        best = std::min(best, seconds);
        elapsed += seconds;
      }
    }
    return min;
  }

  bool all_;
  TimedProblems problems_;
};

/// The configuration whose step is timed: it has one of the layers that are repeated or that are split without changing
/// a kernel's problem.
Config small_config(Config config) {
  keep_one_of_each_kind(config.model);
  ParallelConfig parallel;
  parallel.tensor = config.parallel.tensor;
  parallel.data = 1;
  config.parallel = parallel;
  config.train.deterministic = false;
  return config;
}

/// The groups of rank 0 of the tensor group.
ParallelState parallel_of(Config const& config, LayerRegistry const& layers) {
  int const ranks = config.parallel.tensor;
  return ranks == 1
             ? ParallelState()
             : idle_parallel_state(make_mesh(config, describe_model(config.model, layers), 0, ranks), config.parallel);
}

/// Records which implementations are selected.
class SelectionRecorder final : public KernelObserver {
 public:
  void selected(KernelSelection const& selection) override {
    selections[std::string(selection.operation)].emplace(selection.implementation);
  }
  void observe(Execution& execution, KernelCall const& call) override {
    static_cast<void>(execution);
    call.make();
  }

  KernelSelections selections;
};

/// The first micro-batch of training, or one of synthetic sentences of 10 to 50 tokens.
struct BenchmarkSample {
  VocabularySizes vocabulary;
  Pack pack;
  std::string origin;
};

BenchmarkSample read_sample(Config const& config, Registries const& registries) {
  require_read_again(config, "a measurement of kernels");
  TrainingData const data = open_training_data(config);
  ModelDescription const model = describe_model(config.model, registries.layers);
  Mixture const mixture = training_mixture(config, registries.tasks.of(config), data,
                                           {.prefixes = model.needs_prefixes(), .fields = model.fields()});
  BatchPlanner batches(mixture, BatchPlanner::Limits::of(config), config.train.seed);
  SampledMicroBatches const batch(mixture, batches.next(), {.max_tokens = config.train.micro_batch_tokens});
  return {vocabulary_sizes(data.vocabulary()), batch.micro_batch(0), " of " + data.name()};
}

BenchmarkSample synthetic_sample(Config const& config, bool prefixes, std::int64_t vocabulary) {
  std::int64_t const longest = std::min<std::int64_t>(50, config.model.max_length);
  SyntheticBatch const batch({.vocabulary = vocabulary,
                              .tokens = config.train.micro_batch_tokens,
                              .micro_batches = 1,
                              .shortest = std::min<std::int64_t>(10, longest),
                              .longest = longest});
  Pack pack = batch.pack(0);
  pack.source_output.id = pack.source.id;  // for an encoder-only model
  if (prefixes) {                          // half of each sequence
    auto lengths = to_host<std::int32_t>(pack.target_rows.sequences.length);
    std::ranges::transform(lengths, lengths.begin(), [](std::int32_t length) { return length / 2; });
    pack.target_rows.prefix_length = from_host<std::int32_t>(lengths, {pack.target_rows.sequences.count});
  }
  return {{vocabulary, vocabulary, true}, std::move(pack), " (synthetic)"};
}

/// Runs one forward and backward pass and one update; the result has their calls.
TimedProblems time_step(KernelBenchmark const& benchmark, Config const& config, BenchmarkSample const& sample) {
  KernelTimer timer(benchmark.all);
  Registries registries = benchmark.registries;
  registries.kernels.observe(timer);
  ParallelState const parallel = parallel_of(config, registries.layers);
  TrainingEngine engine(
      {config, registries, parallel, benchmark.execution, sample.vocabulary, dtype_of(config.train.precision)});
  engine.parameters().initialize(config.train.seed);
  engine.step(RepeatedPack(sample.pack), 0, config.optimizer.learning_rate);
  return timer.problems();
}

std::string describe(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} us", seconds * 1e6)
         : seconds < 1  ? fmt::format("{:.2f} ms", seconds * 1e3)
                        : fmt::format("{:.2f} s ", seconds);
}

void print_line(std::string const& call, std::string const& name, double seconds) {
  fmt::print("  {:<46} {:<12} {:>10}", call, name, describe(seconds));
}

/// Prints the rate and the fraction of the peak; blanks if no such work is counted.
void print_rate(double amount, double seconds, double peak) {
  double const rate = amount / seconds;
  fmt::print("{}", amount > 0 ? fmt::format(" {:>9} {:>6.0f} %", readable_decimal(rate * 1e-9, 1), 100 * rate / peak)
                              : fmt::format(" {:>18}", ""));
}

void print_problem(std::string const& key, TimedProblem const& problem, Peaks const& peaks, DType dtype) {
  fmt::print(" {}\n", key);
  for (TimedCall const& call : problem.calls) {
    std::string title = fmt::format("{}{}", call.name, call.count > 1 ? fmt::format(", {}x", call.count) : "");
    for (auto const& [name, seconds] : call.seconds) {
      print_line(title, name, seconds);
      print_rate(call.cost.operations, seconds, peaks.matmul(dtype).operations_per_second);
      print_rate(call.cost.bytes, seconds, peaks.bandwidth(call.cost.bytes).bytes_per_second);
      fmt::print("\n");
      title.clear();
    }
  }
  std::string title = "all calls";
  TimesByName const total = problem.total();
  std::vector<std::string> names{problem.by_speed};
  std::ranges::copy(std::views::keys(total), std::back_inserter(names));
  for (auto const& [name, seconds] : total) {
    print_line(title, (name == measured_choice(total, names) ? "* " : "  ") + name, seconds);
    fmt::print("\n");
    title.clear();
  }
}

void print_tables(TimedProblems const& problems, Peaks const& peaks, DType dtype) {
  fmt::print("\n  {:<46} {:<12} {:>10} {:>9} {:>8} {:>9} {:>8}\n", "", "", "time", "GFLOP/s", "of peak", "GB/s",
             "of y += x");
  for (auto const& [operation, by_key] : problems) {
    for (auto const& [key, problem] : by_key) {
      if (!problem.calls.empty()) {
        fmt::print("{}:", operation);
        print_problem(key, problem, peaks, dtype);
      }
    }
  }
}

}  // namespace

KernelSelections select_kernels(Config const& configured, Registries const& registered, Execution& execution,
                                std::int64_t vocabulary) {
  Config const config = small_config(configured);
  SelectionRecorder recorder;
  Registries registries = registered;
  registries.kernels.observe(recorder);
  ParallelState const parallel = parallel_of(config, registries.layers);
  TrainingEngine const engine(
      {config, registries, parallel, execution, {vocabulary, vocabulary, true}, dtype_of(config.train.precision)});
  return recorder.selections;
}

KernelTimings benchmark_kernels(KernelBenchmark const& benchmark) {
  Config const config = small_config(benchmark.config);
  bool const prefixes = describe_model(config.model, benchmark.registries.layers).needs_prefixes();
  BenchmarkSample const sample = config.data.has_training() ? read_sample(config, benchmark.registries)
                                                            : synthetic_sample(config, prefixes, benchmark.vocabulary);
  DType const dtype = dtype_of(config.train.precision);
  fmt::print("A step of the model with one layer of each kind: {}, {} + {} tokens{}, vocabulary {}{}\n", name_of(dtype),
             readable_count(sample.pack.source_rows.tokens), readable_count(sample.pack.target_rows.tokens),
             sample.origin, readable_count(sample.vocabulary.target),
             config.parallel.tensor > 1 ? fmt::format(", parallel.tensor = {}", config.parallel.tensor) : "");
  Peaks const peaks = measure_peaks(benchmark.registries.kernels, benchmark.execution, {dtype}, 1);
  MatmulPeak const& matmul = peaks.matmul(dtype);
  fmt::print("Peak of multiplications: {} GFLOP/s ({}); of y += x",
             readable_decimal(matmul.operations_per_second * 1e-9, 1), matmul.implementation);
  for (Bandwidth const& bandwidth : peaks.bandwidths) {
    fmt::print(" in {}: {:.1f} GB/s", bandwidth.level, bandwidth.bytes_per_second * 1e-9);
  }
  fmt::print("\nTimes are the minimum of several calls; * marks the one that `auto` takes with them. {}\n",
             benchmark.all ? "" : "Implementations of registered speed 0 are left out; --all times them, too.");
  std::fflush(stdout);
  TimedProblems const problems = time_step(benchmark, config, sample);
  print_tables(problems, peaks, dtype);
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
