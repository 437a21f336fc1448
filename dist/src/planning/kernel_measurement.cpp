#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <heddle/core/base/seconds.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/dist/planning/available_memory.hpp>
#include <heddle/dist/planning/dry_run.hpp>
#include <heddle/dist/planning/kernel_measurement.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace heddle {

namespace {

constexpr int max_rounds = 9;  ///< of two micro-batches and an update; the first of several warms up
constexpr int min_rounds = 3;
constexpr double enough_seconds = 1.5;  ///< limit of rounds beyond the minimum
constexpr double enough_share = 0.1;    ///< limit of those rounds, as a share of the time that is left
constexpr std::int64_t max_elements = std::int64_t{64} << 20;

/// Wall time and the processor time of this process. Where kernels have several threads the latter is the longer one.
class Stopwatch {
 public:
  Stopwatch() : processor_(processor_seconds()), begin_(SteadyClock::now()) {}

  /// The seconds that the work took, without the time in which other processes had the core. Kernels of a device do not
  /// use the processor.
  double seconds() const {
    double const wall = seconds_since(begin_);
    return kernel_memory_space() == MemorySpace::host ? std::min(wall, processor_seconds() - processor_) : wall;
  }

 private:
  static double processor_seconds() {
    timespec time{};
    constexpr double nanosecond = 1e-9;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0
               ? static_cast<double>(time.tv_sec) + nanosecond * static_cast<double>(time.tv_nsec)
               : std::numeric_limits<double>::infinity();
  }

  double processor_;
  SteadyClock::time_point begin_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return std::midpoint(values[(values.size() - 1) / 2], values[values.size() / 2]);
}

/// Calls round(number) on all ranks of `world` once, and again while another round of the mean length fits: the first
/// three into `max_seconds`, later ones into a share of them.
template <class Round>
void repeat_rounds(Communicator const& world, double max_seconds, Round const& round) {
  auto const begin = SteadyClock::now();
  double const enough = std::max(enough_seconds, enough_share * max_seconds);
  for (int number = 0; number < max_rounds; ++number) {
    double const passed = broadcast_value(world, seconds_since(begin));
    if (number > 0 && passed + passed / number > (number < min_rounds ? max_seconds : enough)) {
      break;
    }
    world.barrier();
    round(number);
  }
}

/// The rounds without the first, which warms up; if there is only one, that one.
template <class Round>
std::vector<Round> without_warm_up(std::vector<Round> rounds) {
  if (rounds.size() > 1) {
    rounds.erase(rounds.begin());
  }
  return rounds;
}

using CallKey = std::tuple<std::string, double, double>;

/// Times calls where they are made. A step's first micro-batch follows an update.
class CallTimer final : public KernelObserver {
 public:
  struct Sum {
    double seconds = 0;
    double calls = 0;
  };
  using Calls = std::map<CallKey, Sum>;

  void observe(Execution& execution, KernelCall const& call) override {
    CallKey key{kind_of(call), call.cost.operations, call.cost.bytes};
    execution.space.fence();
    Stopwatch const watch;
    call.make();
    execution.space.fence();
    add(std::move(key), {watch.seconds(), 1});
  }
  /// The calls since the previous take().
  Calls take() { return std::exchange(calls_, {}); }
  /// Counts earlier calls as if they were made again.
  void repeat(Calls const& earlier) {
    for (auto const& [key, sum] : earlier) {
      add(key, sum);
    }
  }

 private:
  void add(CallKey key, Sum const& sum) {
    Sum& known = calls_[std::move(key)];
    known.seconds += sum.seconds;
    known.calls += sum.calls;
  }

  Calls calls_;
};

/// A configuration without pipeline and replicas, whose work one rank does here. A rank with many elements keeps one
/// layer of each kind.
Config measured_config(KernelMeasurement const& measurement, LayoutChoice layout, std::int64_t elements) {
  layout.shape = layout.shape.with(MeshAxis::pipeline, 1).with(MeshAxis::data, 1);
  layout.shard_optimizer = layout.shard_parameters = false;
  layout.shard_ranks = 0;
  layout.expert = 1;
  Config config = with_layout(measurement.config, layout);
  config.train.deterministic = false;
  if (elements > max_elements) {
    keep_one_of_each_kind(config.model);
  }
  return config;
}

/// The last rank of the tensor and context groups.
Mesh mesh_of(ParallelConfig const& parallel) {
  MeshShape const shape = shape_of(parallel).with(MeshAxis::pipeline, 1).with(MeshAxis::data, 1);
  return {shape, shape.ranks() - 1, shape.ranks()};
}

/// A rank that computes without the others.
class LoneRank {
 public:
  LoneRank(KernelMeasurement const& measurement, Config const& config, KernelObserver* observer)
      : config_(config),
        registries_(measurement.registries),
        parallel_(idle_parallel_state(mesh_of(config.parallel), config.parallel)) {
    if (observer != nullptr) {
      registries_.kernels.observe(*observer);
    }
    engine_.emplace(TrainingEngine::Setup{config_, registries_, parallel_, measurement.execution,
                                          measurement.vocabulary, dtype_of(config.train.precision), nullptr,
                                          std::nullopt, config.parallel.zero_bubble});
    engine_->parameters().initialize(config.train.seed);
  }

  void accumulate(MicroBatchSource const& batch, int round) { engine_->accumulate(batch, round); }
  void update(int round) { engine_->update(config_.optimizer.learning_rate * 1e-3, round + 1); }

 private:
  Config const& config_;
  Registries registries_;
  ParallelState parallel_;
  std::optional<TrainingEngine> engine_;
};

struct RoundSeconds {
  double min = 0;
  double median = 0;
};

/// Each call's mean seconds in a round on the slowest rank, in the order of `calls`: ranks wait for each other, and the
/// cores of a node are not equally fast at all times. 0 for calls that were not made. Collective over `world`.
std::vector<RoundSeconds> seconds_over_rounds(std::vector<CallTimer::Calls> const& rounds,
                                              CallTimer::Calls const& calls, Communicator const& world) {
  std::vector<double> means;  // by round and call
  for (CallTimer::Calls const& round : rounds) {
    for (auto const& [key, any] : calls) {
      auto const found = round.find(key);
      means.push_back(found == round.end() ? 0 : found->second.seconds / found->second.calls);
    }
  }
  all_reduce_values(world, std::span(means), ReduceOp::max);
  std::vector<RoundSeconds> seconds;
  for (std::size_t call = 0; call < calls.size(); ++call) {
    std::vector<double> of_rounds;
    for (std::size_t index = call; index < means.size(); index += calls.size()) {
      of_rounds.push_back(means[index]);
    }
    seconds.push_back({std::ranges::min(of_rounds), median(of_rounds)});
  }
  return seconds;
}

/// Seconds of two micro-batches and an update on the slowest rank, with nothing between them that watches: the median,
/// as a run has slow steps, too.
double unwatched_seconds(KernelMeasurement const& measurement, Config const& config, Pack const& pack,
                         double max_seconds) {
  LoneRank rank(measurement, config, nullptr);
  RepeatedPack const batch(pack);
  std::vector<double> seconds;
  repeat_rounds(measurement.world, max_seconds, [&](int round) {
    Stopwatch const watch;
    rank.accumulate(batch, round);
    rank.accumulate(batch, round);
    rank.update(round);
    measurement.execution.space.fence();
    seconds.push_back(watch.seconds());
  });
  seconds = without_warm_up(std::move(seconds));
  all_reduce_values(measurement.world, std::span(seconds), ReduceOp::max);
  return median(std::move(seconds));
}

/// Whether the ranks' memory is available here, as rank 0 of `world` sees it.
bool fits(KernelMeasurement const& measurement, Config const& config, Pack const& pack) {
  std::int64_t const needed = plan_memory(config, mesh_of(config.parallel), measurement.vocabulary,
                                          measurement.registries, {.training = {pack}, .validation = {}})
                                  .total();
  AvailableMemory const available = available_memory();
  return broadcast_value(measurement.world,
                         needed <= std::min(available.host, available.group) / measurement.world.size());
}

/// The calls of a first micro-batch in each round, and of a second one and an update.
struct WatchedRounds {
  std::vector<CallTimer::Calls> first, usual;
};

WatchedRounds watched_rounds(KernelMeasurement const& measurement, Config const& config, Pack const& pack,
                             double max_seconds) {
  auto const begin = SteadyClock::now();
  CallTimer timer;
  LoneRank rank(measurement, config, &timer);
  RepeatedPack const batch(pack);
  WatchedRounds rounds;
  repeat_rounds(measurement.world, max_seconds, [&](int round) {
    auto const at_first = SteadyClock::now();
    rank.accumulate(batch, round);
    double const taken = seconds_since(at_first);
    rounds.first.push_back(timer.take());
    if (broadcast_value(measurement.world, max_seconds - seconds_since(begin) - taken) > 0) {
      rank.accumulate(batch, round);
    } else {
      timer.repeat(rounds.first.back());
    }
    rank.update(round);
    rounds.usual.push_back(timer.take());
  });
  return {without_warm_up(std::move(rounds.first)), without_warm_up(std::move(rounds.usual))};
}

/// Measures a layout; after `max_seconds` a started micro-batch and an update are the last. Returns false, with nothing
/// measured, where the memory that is available here does not suffice. `pack`: the rank's part of a micro-batch.
/// Collective over the world.
bool measure_calls(KernelMeasurement const& measurement, LayoutChoice const& layout, Pack const& pack,
                   double max_seconds, KernelTimes& times) {
  auto const begin = SteadyClock::now();
  std::int64_t const elements = [&] {
    LayoutChoice alone = layout;
    alone.shape = layout.shape.with(MeshAxis::pipeline, 1).with(MeshAxis::data, 1);
    alone.shard_ranks = 0;
    alone.expert = 1;
    return dry_run_stage(with_layout(measurement.config, alone), alone, 0, measurement.vocabulary,
                         measurement.registries, pack)
        .parameters;
  }();
  Config const config = measured_config(measurement, layout, elements);
  if (!fits(measurement, config, pack)) {
    return false;
  }
  auto const [first, usual] = watched_rounds(measurement, config, pack, max_seconds);
  auto const usual_seconds = seconds_over_rounds(usual, usual.front(), measurement.world);
  auto const first_seconds = seconds_over_rounds(first, usual.front(), measurement.world);
  double watched = 0;
  double calls = 0;
  std::size_t index = 0;
  for (auto const& [key, sum] : usual.front()) {
    auto const in_first = first.front().find(key);
    double const of_first = in_first == first.front().end() ? 0 : in_first->second.calls;
    watched += usual_seconds[index].min * sum.calls + first_seconds[index].min * of_first;
    calls += sum.calls + of_first;
    ++index;
  }
  // The times must add up to those of rounds that nothing watches: the time between kernels is distributed over them.
  // Where watching slowed kernels, or not always the same rank was the slow one, all are shortened alike.
  double const left = broadcast_value(measurement.world, max_seconds - seconds_since(begin));
  double const unwatched = left > watched ? unwatched_seconds(measurement, config, pack, left) : watched;
  double const between = std::max(unwatched - watched, 0.0) / calls;
  double const shorter = std::min(unwatched / watched, 1.0);
  index = 0;
  for (auto const& [key, sum] : usual.front()) {
    auto const& [kind, operations, bytes] = key;
    auto const [seconds, median_seconds] = usual_seconds[index];
    double const at_first = first_seconds[index].min > 0 ? first_seconds[index].min : seconds;
    ++index;
    if (measurement.only_unknown && times.knows(kind, {operations, bytes}, false)) {
      continue;
    }
    times.add(kind, {.cost = {operations, bytes},
                     .seconds = shorter * seconds + between,
                     .first_seconds = shorter * at_first + between,
                     .spread = seconds > 0 ? median_seconds / seconds - 1 : 0,
                     .measured_at = measurement.now,
                     .load = measurement.load});
  }
  return true;
}

}  // namespace

double others_load(int own) {
  double load = 0;
  long const cores = sysconf(_SC_NPROCESSORS_ONLN);
  return getloadavg(&load, 1) == 1 && cores > 0 ? std::max(0.0, load - own) / static_cast<double>(cores) : 0;
}

MeasuredLayouts measure_unknown(KernelMeasurement const& measurement, Planner& planner,
                                std::vector<LayoutChoice> layouts, double seconds, KernelTimes& times) {
  auto const begin = SteadyClock::now();
  auto const kind_of_work = [](LayoutChoice const& layout) {
    return std::make_tuple(layout.shape.with(MeshAxis::pipeline, 1).with(MeshAxis::data, 1), layout.sequence_parallel,
                           layout.context_mode, layout.zero_bubble);
  };
  auto const configured = [&](LayoutChoice const& layout) {
    return layout.micro_batch_tokens == measurement.config.train.micro_batch_tokens;
  };
  // The smallest micro-batches of every kind come first, then the configured ones, then the largest: between them times
  // are interpolated.
  std::ranges::stable_sort(layouts, {}, &LayoutChoice::micro_batch_tokens);
  std::set<decltype(kind_of_work(layouts.front()))> smallest;
  auto const others = std::stable_partition(layouts.begin(), layouts.end(), [&](LayoutChoice const& layout) {
    return smallest.insert(kind_of_work(layout)).second;
  });
  std::reverse(std::stable_partition(others, layouts.end(), configured), layouts.end());
  MeasuredLayouts count;
  for (LayoutChoice const& layout : layouts) {
    if (planner.has_times(layout, configured(layout) && !measurement.only_unknown)) {
      continue;
    }
    double const left = broadcast_value(measurement.world, seconds - seconds_since(begin));
    if (left <= 0) {
      ++count.left;
      continue;
    }
    bool const done = measure_calls(measurement, layout, planner.typical_pack(layout), left, times);
    ++(done ? count.measured : count.too_large);
  }
  return count;
}

}  // namespace heddle
