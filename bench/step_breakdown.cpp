// Where a training step's time is spent, beside the least possible time of each part: mpirun -np N
// bench_step_breakdown --help
#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/model/layout.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <heddle/io/files/measured_times.hpp>
#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <iostream>
#include <limits>
#include <optional>

#include "breakdown.hpp"
#include "run/configuration/registration.hpp"

namespace heddle {
namespace {

namespace program_options = boost::program_options;

struct Options {
  ConfigOptions config;
  std::int64_t steps = 10;
  std::int64_t warm_up = 3;
  std::string kernel_times;
  bool validation = false;
  bool details = false;
  bool json = false;
};

program_options::options_description described(Options& options) {
  program_options::options_description description(
      "mpirun -np N bench_step_breakdown --config RUN.toml [options]: the parts of a training step's time on one of N "
      "data-parallel ranks, beside\nthe floor of each part: its operations at the peak of large matrix products, or "
      "its "
      "bytes at the bandwidth of the level that\nholds them, all measured at the beginning of the same run");
  auto const value = [](auto& field) { return program_options::value(&field)->default_value(field); };
  description.add_options()                                                                                      //
      ("help", "print this")                                                                                     //
      ("config", program_options::value(&options.config.config), "the model and its data, as for heddle train")  //
      ("set", program_options::value(&options.config.overrides)->composing(),
       "SECTION.KEY=VALUE; as often as needed")                                                                      //
      ("steps", value(options.steps), "medians of this many")                                                        //
      ("warm-up", value(options.warm_up), "steps before them")                                                       //
      ("kernel-times", value(options.kernel_times), "a kernels.json, for example a run's, that auto uses")           //
      ("validation", program_options::bool_switch(&options.validation), "only the losses of these micro-batches")    //
      ("details", program_options::bool_switch(&options.details), "matrix products by shape, attention by kind")     //
      ("json", program_options::bool_switch(&options.json), "print what bench/compare_pytorch reads, on one line");  //
  return description;
}

/// Nothing where --help was given, which rank 0 (`speaks`) then prints.
std::optional<Options> options_of(int argc, char** argv, bool speaks) {
  Options options;
  auto const description = described(options);
  program_options::variables_map values;
  try {
    program_options::store(program_options::parse_command_line(argc, argv, description), values);
    program_options::notify(values);
  } catch (program_options::error const& error) {
    throw UsageError("{}; --help shows the options", error.what());
  }
  if (values.contains("help")) {
    if (speaks) {
      std::cout << description;
    }
    return std::nullopt;
  }
  if (options.config.config.empty() || options.steps < 1 || options.warm_up < 1) {
    throw UsageError("expected --config RUN.toml, and --steps and --warm-up of at least 1");
  }
  return options;
}

/// A step's micro-batches, whose construction is timed. Keeps a reference to the stopwatch.
class TimedMicroBatches final : public MicroBatchSource {
 public:
  TimedMicroBatches(std::unique_ptr<MicroBatchSource> batch, Stopwatch& watch)
      : batch_(std::move(batch)), watch_(watch) {}

  std::int64_t count() const override { return batch_->count(); }
  BatchTokens tokens() const override { return batch_->tokens(); }
  Pack micro_batch(std::int64_t index) const override {
    return watch_.time([&] { return batch_->micro_batch(index); });
  }

 private:
  std::unique_ptr<MicroBatchSource> batch_;
  Stopwatch& watch_;
};

/// The configuration's sentences, divided among data-parallel ranks as by `heddle train`.
class Sentences {
 public:
  Sentences(Config const& config, Registries const& registries)
      : config_(config),
        data_(open_training_data(config)),
        planner_(training_mixture(config, registries.tasks.of(config), data_, uses_of(config, registries)),
                 {config.train.batch_tokens, config.model.max_length}, config.train.seed) {}

  VocabularySizes vocabulary() const { return vocabulary_sizes(data_.vocabulary()); }

  TimedMicroBatches next(GroupMember const& data, Stopwatch& watch) {
    return {watch.time([&] {
              return std::make_unique<SampledMicroBatches>(
                  planner_.mixture(), planner_.next(),
                  MicroBatchCut{.max_tokens = config_.train.micro_batch_tokens, .data = data});
            }),
            watch};
  }

 private:
  static SampleUse uses_of(Config const& config, Registries const& registries) {
    ModelDescription const model = describe_model(config.model, registries.layers);
    return {.prefixes = model.needs_prefixes(), .fields = model.fields()};
  }

  Config const& config_;
  TrainingData data_;
  BatchPlanner planner_;
};

class TimedTransfer : public TransferBackend {
 public:
  TimedTransfer(std::unique_ptr<TransferBackend> transfer, Stopwatch& watch)
      : transfer_(std::move(transfer)), watch_(watch) {}

  bool progress() override {
    return watch_.time([&] { return transfer_->progress(); });
  }
  void wait() override {
    watch_.time([&] { transfer_->wait(); });
  }

 private:
  std::unique_ptr<TransferBackend> transfer_;
  Stopwatch& watch_;
};

class TimedBackend : public CommunicatorBackend {
 public:
  TimedBackend(std::shared_ptr<CommunicatorBackend> inner, Stopwatch& watch)
      : inner_(std::move(inner)), watch_(watch) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool reads(MemorySpace space) const override { return inner_->reads(space); }
  std::unique_ptr<TransferBackend> run(CollectiveCall const& call) override {
    auto transfer = watch_.time([&] { return inner_->run(call); });
    return transfer == nullptr ? nullptr : std::make_unique<TimedTransfer>(std::move(transfer), watch_);
  }
  std::shared_ptr<CommunicatorBackend> split(int color, int key, std::string const& name) override {
    return std::make_shared<TimedBackend>(inner_->split(color, key, name), watch_);
  }

 private:
  std::shared_ptr<CommunicatorBackend> inner_;
  Stopwatch& watch_;
};

/// The ranks of `world`; the time spent in collectives, in unfinished transfers and in the groups that it is split into
/// is added to `watch`, which must outlive them all.
Communicator timed(Communicator const& world, Stopwatch& watch) {
  return Communicator(std::make_shared<TimedBackend>(world.backend(), watch));
}

double mean_over(Communicator const& world, double value) {
  Tensor const sum = from_host<double>(std::span(&value, 1), {1});
  world.all_reduce(sum);
  return to_host<double>(sum).front() / world.size();
}

/// Results of a run, of one rank unless said otherwise.
struct Result {
  StepTimes step;
  double tokens = 0;               ///< of a step, all ranks
  double products_seconds = 0;     ///< the matrix products of one step, repeated separately
  double products_tokens = 0;      ///< of that step, all ranks
  double products_operations = 0;  ///< of that step
};

class Measurement {
 public:
  Measurement(Options const& options, Communicator const& world, Execution& execution)
      : world_(world), execution_(execution), config_(read_config(options.config)) {
    config_.parallel = {};
    config_.parallel.data = world.size();
    register_everything({}, registries_, execution);
    if (!options.kernel_times.empty()) {
      if (!std::filesystem::exists(options.kernel_times)) {
        throw UsageError("--kernel-times " + missing_file(options.kernel_times));
      }
      registries_.kernels.set_timings(
          read_measured_times(options.kernel_times).kernels[machine_name(usable_cpu_level())]);
    }
    sentences_.emplace(config_, registries_);
  }

  Config const& config() const { return config_; }
  std::int64_t vocabulary() const { return sentences_->vocabulary().target; }

  Peaks peaks() {
    world_.barrier();
    return measure_peaks(registries_.kernels, execution_, {DType::float32, DType::bfloat16}, world_.size());
  }

  Result run(Options const& options, Breakdown& breakdown) {
    registries_.kernels.observe(breakdown);
    Mesh const mesh =
        make_mesh(config_, describe_model(config_.model, registries_.layers), world_.rank(), world_.size());
    ParallelState const parallel = make_parallel_state(timed(world_, communication_), mesh);
    TrainingEngine engine(
        {config_, registries_, parallel, execution_, sentences_->vocabulary(), dtype_of(config_.train.precision)});
    engine.parameters().initialize(1);
    std::vector<StepTimes> steps;
    Result result;
    for (std::int64_t index = 0; index < options.warm_up + options.steps; ++index) {
      StepTimes const times = step(options, engine, breakdown, index, result.tokens);
      if (index >= options.warm_up) {
        steps.push_back(times);
      }
    }
    result.step = typical(steps);
    result.tokens /= static_cast<double>(options.warm_up + options.steps);
    breakdown.record_products();
    StepTimes const recorded =
        step(options, engine, breakdown, options.warm_up + options.steps, result.products_tokens);
    result.products_operations = sum_of(recorded.parts, "gemm").operations;
    result.products_seconds = products_alone(breakdown, recorded.seconds);
    return result;
  }

 private:
  StepTimes step(Options const& options, TrainingEngine& engine, Breakdown& breakdown, std::int64_t index,
                 double& tokens) {
    world_.barrier();
    static_cast<void>(breakdown.take()), static_cast<void>(communication_.take()), static_cast<void>(data_.take());
    Stopwatch whole;
    whole.time([&] {
      // The engine divides a validation's micro-batches.
      GroupMember const mine = options.validation ? GroupMember() : GroupMember{world_.rank(), world_.size()};
      TimedMicroBatches const batch = sentences_->next(mine, data_);
      tokens += static_cast<double>(batch.tokens().all);
      if (options.validation) {
        engine.evaluate(batch);
      } else {
        engine.step(batch, index, 1e-4, GradientsAfter::zero);
      }
    });
    return {whole.take(), communication_.take(), data_.take(), breakdown.take()};
  }

  /// Times the same calls on the same memory with packed weights: the least seconds of as many repetitions as take
  /// about two seconds, `step_seconds` being more than one takes. Their results are not used.
  double products_alone(Breakdown const& breakdown, double step_seconds) {
    auto const repetitions = static_cast<int>(std::clamp(2 / mean_over(world_, step_seconds), 1.0, 20.0));
    double min = std::numeric_limits<double>::infinity();
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      world_.barrier();
      Stopwatch watch;
      watch.time([&] {
        for (auto const& multiply : breakdown.products()) {
          multiply();
        }
        execution_.space.fence();
      });
      min = std::min(min, watch.take());
    }
    return min;
  }

  Communicator world_;
  Execution& execution_;
  Config config_;
  Registries registries_;
  std::optional<Sentences> sentences_;
  Stopwatch communication_;
  Stopwatch data_;
};

/// Tokens per second of all ranks: as measured, and if a step consisted only of its matrix products.
struct Speeds {
  double measured = 0;
  double at_peak = 0;         ///< at the rate of large ones
  double products_alone = 0;  ///< as fast as the kernels do just these
};

Speeds speeds_of(Result const& result, double peak, Communicator const& world) {
  // Ranks wait for each other at the end of each step, so the mean rank represents all.
  double const at_peak = mean_over(world, result.products_operations / peak);
  double const alone = mean_over(world, result.products_seconds);
  return {result.tokens / mean_over(world, result.step.seconds), result.products_tokens / at_peak,
          result.products_tokens / alone};
}

void print_json(Speeds const& speeds, Peaks const& peaks) {
  fmt::print(
      "{{\"tokens_per_second\": {:.1f}, \"floor_at_peak\": {:.1f}, \"products_alone\": {:.1f}, "
      "\"peak_float32\": {:.4g}, \"peak_bfloat16\": {:.4g}}}\n",
      speeds.measured, speeds.at_peak, speeds.products_alone, peaks.matmul(DType::float32).operations_per_second,
      peaks.matmul(DType::bfloat16).operations_per_second);
}

void print_peaks(Peaks const& peaks, int ranks) {
  auto const rate = [](MatmulPeak const& peak) {
    return peak.operations_per_second > 0
               ? fmt::format("{:.1f} GFLOP/s ({})", 1e-9 * peak.operations_per_second, peak.implementation)
               : std::string("no implementation");
  };
  fmt::print("peaks of one of {} ranks, all busy: large matrix products in float32 {}, in bfloat16 {};\n", ranks,
             rate(peaks.matmul(DType::float32)), rate(peaks.matmul(DType::bfloat16)));
  fmt::print("  y += x from");
  for (Bandwidth const& bandwidth : peaks.bandwidths) {
    fmt::print(" {} {:.1f} GB/s", bandwidth.level, 1e-9 * bandwidth.bytes_per_second);
  }
  fmt::print(
      ";\n  a call that touches more bytes than L2, or a rank's part of L3, holds is counted one level further out; "
      "peaks "
      "are the best seen, parts\n  medians: other work on the machine drives them apart\n");
}

void print_summary(Result const& result, Speeds const& speeds) {
  fmt::print(
      "\n{:.0f} tokens/s on all ranks, {:.0f} a step (source and target, ends included; with the timing's own cost)\n"
      "GEMM floor: {:.0f} tokens/s if a step were its matrix products at the peak of large ones; reached: {:.1f} %\n"
      "products alone: {:.0f} tokens/s if it were just these products, one after another; reached: {:.1f} %\n",
      speeds.measured, result.tokens, speeds.at_peak, 100 * speeds.measured / speeds.at_peak, speeds.products_alone,
      100 * speeds.measured / speeds.products_alone);
}

int run(Options const& options, Communicator const& world, Execution& execution) {
  Measurement measurement(options, world, execution);
  Breakdown breakdown(measurement.peaks(), measurement.vocabulary());
  DType const dtype = dtype_of(measurement.config().train.precision);
  if (breakdown.peaks().matmul(dtype).operations_per_second <= 0) {
    throw ConfigError("no GEMM but the reference supports {} here", name_of(dtype));
  }
  Result const result = measurement.run(options, breakdown);
  Speeds const speeds = speeds_of(result, breakdown.peaks().matmul(dtype).operations_per_second, world);
  if (world.rank() != 0) {
    return static_cast<int>(ExitCode::done);
  }
  if (options.json) {
    print_json(speeds, breakdown.peaks());
    return static_cast<int>(ExitCode::done);
  }
  ModelConfig const& model = measurement.config().model;
  fmt::print("{}: {} + {} layers, d_model {}, d_ff {}, {} heads, vocabulary {}; medians of {} steps\n", name_of(dtype),
             model.encoder.layers, model.decoder.layers, model.d_model, model.d_ff, model.heads,
             measurement.vocabulary(), options.steps);
  print_peaks(breakdown.peaks(), world.size());
  print(result.step, options.details);
  print_summary(result, speeds);
  return static_cast<int>(ExitCode::done);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  heddle::MpiSession const session;
  heddle::Communicator const world = session.world();
  try {
    auto const options = heddle::options_of(argc, argv, world.rank() == 0);
    heddle::Runtime runtime;
    return options ? heddle::run(*options, world, runtime.execution()) : 0;
  } catch (heddle::Error const& error) {  // of one rank ends them all
    fmt::print(stderr, "bench_step_breakdown, rank {}: {}\n", world.rank(), error.what());
    session.abort(static_cast<int>(error.code()));
  }
}
