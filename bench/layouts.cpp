// Step time, memory and traffic of a training step, layout by layout: mpirun -np N bench_layouts --help
#include "layouts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <chrono>
#include <heddle/core/base/error.hpp>
#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/model/layout.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <heddle/kernels/register.hpp>
#include <map>
#include <optional>
#include <sstream>

#include "main.hpp"
#include "pipeline_times.hpp"
#include "synthetic_micro_batches.hpp"

namespace heddle {
namespace {

namespace program_options = boost::program_options;

struct Options {
  ModelConfig model;
  SyntheticText text;
  std::int64_t steps = 1;
  std::int64_t repetitions = 3;
  std::vector<std::string> layouts;
  bool brief = false;
};

program_options::options_description described(Options& options) {
  program_options::options_description description(
      "mpirun -np N bench_layouts [options]: a training step in float32, on random sentences, of every layout of N "
      "ranks "
      "that works for the model, or of the given ones");
  auto const value = [](auto& field) { return program_options::value(&field)->default_value(field); };
  description.add_options()                                                                                         //
      ("help", "print this")                                                                                        //
      ("d-model", value(options.model.d_model))                                                                     //
      ("d-ff", value(options.model.d_ff))                                                                           //
      ("heads", value(options.model.heads))                                                                         //
      ("encoder-layers", value(options.model.encoder.layers))                                                       //
      ("decoder-layers", value(options.model.decoder.layers))                                                       //
      ("vocabulary", value(options.text.vocabulary))                                                                //
      ("tokens", value(options.text.tokens), "of a micro-batch: the sum of its pairs' longer sides, end included")  //
      ("micro-batches", value(options.text.micro_batches), "of the global batch")                                   //
      ("shortest", value(options.text.shortest), "tokens of a sentence, end included; lengths are uniform ...")     //
      ("longest", value(options.text.longest), "... up to this")                                                    //
      ("steps", value(options.steps), "timed as one, after a warm-up, in each repetition")                          //
      ("repetitions", value(options.repetitions), "of the whole list of layouts; the median counts")                //
      ("layout", program_options::value(&options.layouts),
       "KEY=VALUE,... with pipeline, context, tensor (1 where not given; the rest is data) and the switches "
       "sequence_parallel, interleaved, ulysses, shard_optimizer; can be repeated")  //
      ("brief", program_options::bool_switch(&options.brief), "print tokens per second alone, a line per layout");
  return description;
}

std::optional<Options> options_of(int argc, char** argv, bool speaks) {
  Options options;
  auto const description = described(options);
  if (!parse(argc, argv, description, "bench_layouts", speaks)) {
    return std::nullopt;
  }
  if (options.text.shortest < 1 || options.text.longest < options.text.shortest ||
      options.text.tokens < options.text.longest || options.text.micro_batches < 1 || options.steps < 1 ||
      options.repetitions < 1) {
    throw UsageError("1 <= --shortest <= --longest <= --tokens, and every count at least 1");
  }
  options.model.max_length = options.text.longest;
  return options;
}

/// Parses "pipeline=2,tensor=2,sequence_parallel" for `ranks` ranks.
Layout layout_of(std::string const& text, int ranks) {
  Layout layout;
  std::map<std::string, bool*> const switches{{"sequence_parallel", &layout.sequence_parallel},
                                              {"shard_optimizer", &layout.shard_optimizer}};
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    auto const equals = item.find('=');
    std::string const key = item.substr(0, equals);
    std::string const number = equals == std::string::npos ? "" : item.substr(equals + 1);
    bool const counts =
        !number.empty() && number.size() < 6 && number.find_first_not_of("0123456789") == std::string::npos;
    bool const is_axis = key == "pipeline" || key == "context" || key == "tensor";
    if (is_axis && counts && std::stoi(number) > 0) {
      layout.shape = layout.shape.with(MeshAxis(key), std::stoi(number));
    } else if (switches.contains(item)) {
      *switches.at(item) = true;
    } else if (item == "interleaved") {
      layout.pipeline_schedule = PipelineSchedule::interleaved;
    } else if (item == "ulysses") {
      layout.context_mode = ContextMode::ulysses;
    } else {
      throw UsageError(
          "--layout {}: \"{}\" is not understood; write for example "
          "pipeline=2,tensor=2,sequence_parallel",
          text, item);
    }
  }
  layout.shape = layout.shape.with(MeshAxis::data, std::max(ranks / layout.ranks(), 1));
  return layout;
}

constexpr std::array group_names{"pipeline", "data", "context", "tensor", "replicas"};
using Ledgers = std::array<Ledger, group_names.size()>;

Ledgers ledgers_of(ParallelState const& parallel) {
  return {parallel.pipeline.ledger(), parallel.data.ledger(), parallel.context.ledger(), parallel.tensor.ledger(),
          parallel.replicas.ledger()};
}

/// Results of one layout's steps; memory and traffic are the most of any rank.
struct Measured {
  std::vector<double> seconds;  ///< of a step, one for each repetition
  double activation_bytes = 0;
  double state_bytes = 0;       ///< parameters, gradients, optimizer state
  std::vector<double> traffic;  ///< operations and bytes of a step, by group and collective
  std::optional<PipelineTimes> times;

  double median() const {
    std::vector<double> sorted = seconds;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
};

class Bench {
 public:
  Bench(Options const& options, Communicator const& world, Execution& execution)
      : options_(options), world_(world), execution_(execution), batch_(options.text) {
    register_built_in_kernels(registries_.kernels);
    register_built_in_layers(registries_.layers);
  }

  /// Throws ConfigError, on every rank, if the layout is impossible.
  void measure(Layout const& layout, Measured& measured) {
    Config const config = config_of(layout);
    ModelDescription const model = describe_model(config.model, registries_.layers);
    make_mesh(config, model, world_.rank(), world_.size());  // for its checks
    ParallelState const parallel = parallel_of(layout, world_);
    TrainingEngine engine({.config = config,
                           .registries = registries_,
                           .parallel = parallel,
                           .execution = execution_,
                           .vocabulary = {options_.text.vocabulary, options_.text.vocabulary, true},
                           .observer = parallel.pipeline.size() > 1 ? &passes_ : nullptr});
    engine.parameters().initialize(1);
    step(engine, parallel, parallel.data.size() * parallel.pipeline.size(), 0);  // a warm-up
    double seconds = 0;
    Ledgers before{};
    Ledgers after{};
    for (std::int64_t index = 1; index <= options_.steps; ++index) {
      before = ledgers_of(parallel);
      passes_.clear();
      seconds += step(engine, parallel, batch_.micro_batches(), index);
      after = ledgers_of(parallel);
      add_times(measured, parallel);
    }
    measured.seconds.push_back(seconds / static_cast<double>(options_.steps));
    take_max(measured, engine, before, after);
  }

  SyntheticBatch const& batch() const { return batch_; }

 private:
  Config config_of(Layout const& layout) const {
    Config config;
    config.model = options_.model;
    config.train.seed = 1;
    return with_layout(std::move(config), layout);
  }

  /// Seconds, of the slowest rank.
  double step(TrainingEngine& engine, ParallelState const& parallel, std::int64_t micro_batches, std::int64_t index) {
    world_.barrier();
    auto const begin = std::chrono::steady_clock::now();
    IndexRange const mine =
        share(std::min(micro_batches, batch_.micro_batches()), parallel.data.rank(), parallel.data.size());
    engine.step(SyntheticMicroBatches(batch_, mine, engine.context()), index, 1e-4);
    world_.barrier();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  void add_times(Measured& measured, ParallelState const& parallel) const {
    if (parallel.pipeline.size() > 1) {
      PipelineTimes const times = passes_.gather(parallel.pipeline);
      measured.times ? measured.times->add(times) : static_cast<void>(measured.times = times);
    }
  }

  /// The ledgers are those before and after one step: all steps are equal.
  void take_max(Measured& measured, TrainingEngine& engine, Ledgers const& before, Ledgers const& after) {
    std::int64_t const state = engine.parameters().values().bytes() + engine.parameters().gradients().bytes() +
                               engine.optimizer().local().state_bytes();
    std::vector<double> mine{static_cast<double>(engine.pipeline().peak_memory().total()), static_cast<double>(state)};
    for (std::size_t group = 0; group < after.size(); ++group) {
      for (std::size_t collective = 0; collective < collectives; ++collective) {
        mine.push_back(static_cast<double>(after[group][collective].operations - before[group][collective].operations));
        mine.push_back(static_cast<double>(after[group][collective].bytes - before[group][collective].bytes));
      }
    }
    Tensor const max = from_host(std::span<double const>(mine), {static_cast<std::int64_t>(mine.size())});
    world_.all_reduce(max, ReduceOp::max);
    mine = to_host<double>(max);
    measured.activation_bytes = mine[0];
    measured.state_bytes = mine[1];
    measured.traffic.assign(mine.begin() + 2, mine.end());
  }

  Options const& options_;
  Communicator world_;
  Execution& execution_;
  Registries registries_;
  SyntheticBatch batch_;
  PassTimes passes_;
};

constexpr double mebibyte = 1024.0 * 1024.0;

void print(Layout const& layout, Measured const& measured, Options const& options, SyntheticBatch const& batch) {
  double const speed = static_cast<double>(batch.tokens().all) / measured.median();
  if (options.brief) {
    fmt::print("{:.1f}\n", speed);
    return;
  }
  auto const [min, max] = std::ranges::minmax(measured.seconds);
  fmt::print(
      "\n{}\n  step {:.4f} s ({:.4f} to {:.4f})   {:.0f} tokens/s   activations {:.1f} MiB   "
      "parameters, gradients, optimizer state {:.1f} MiB\n",
      describe(layout), measured.median(), min, max, speed, measured.activation_bytes / mebibyte,
      measured.state_bytes / mebibyte);
  for (std::size_t group = 0; group < group_names.size(); ++group) {
    for (std::size_t collective = 0; collective < collectives; ++collective) {
      std::size_t const place = 2 * (group * collectives + collective);
      if (measured.traffic[place] > 0) {
        fmt::print("  {:<10} {:<16} {:>8.0f} operations {:>12.3f} MiB\n", group_names[group],
                   name_of(static_cast<CollectiveOp>(collective)), measured.traffic[place],
                   measured.traffic[place + 1] / mebibyte);
      }
    }
  }
  if (measured.times) {
    fmt::print("{}", measured.times->to_string());
  }
}

int run(Options const& options, Communicator const& world, Execution& execution) {
  bool const speaks = world.rank() == 0;
  std::vector<Layout> layouts;
  for (std::string const& text : options.layouts) {
    layouts.push_back(layout_of(text, world.size()));
  }
  if (layouts.empty()) {
    layouts = layouts_on(world.size());
  }
  Bench bench(options, world, execution);
  std::vector<Measured> measured(layouts.size());
  for (std::int64_t repetition = 0; repetition < options.repetitions; ++repetition) {
    for (std::size_t index = 0; index < layouts.size(); ++index) {
      if (repetition > 0 && measured[index].seconds.empty()) {
        continue;
      }
      try {
        bench.measure(layouts[index], measured[index]);
      } catch (ConfigError const& error) {
        if (!options.layouts.empty()) {
          throw;
        }
        if (speaks) {
          fmt::print("left out: {}: {}\n", describe(layouts[index]), error.what());
        }
      }
    }
  }
  if (speaks && !options.brief) {
    fmt::print(
        "{} + {} layers, d_model {}, d_ff {}, {} heads, vocabulary {}; {} micro-batches, {} tokens a step; "
        "medians of {}; of memory and traffic the most of any rank, a step\n",
        options.model.encoder.layers, options.model.decoder.layers, options.model.d_model, options.model.d_ff,
        options.model.heads, options.text.vocabulary, options.text.micro_batches, bench.batch().tokens().all,
        options.repetitions);
  }
  for (std::size_t index = 0; speaks && index < layouts.size(); ++index) {
    if (!measured[index].seconds.empty()) {
      print(layouts[index], measured[index], options, bench.batch());
    }
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  return heddle::run_main(argc, argv, "bench_layouts", heddle::options_of, heddle::run);
}
