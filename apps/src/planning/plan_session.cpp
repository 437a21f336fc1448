#include "plan_session.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <map>

#include "kernels/cache.hpp"
#include "plan_files.hpp"
#include "report/warning.hpp"

namespace heddle {

namespace {

/// "2e-6,1e-10": seconds, and seconds per byte.
NetworkModel network_of(std::string const& text) {
  char* end = nullptr;
  double const latency = std::strtod(text.c_str(), &end);
  bool whole = end != text.c_str() && *end == ',';
  char const* const second = whole ? end + 1 : end;
  double const seconds_per_byte = std::strtod(second, &end);
  constexpr double max = 1e6;  // seconds
  auto const possible = [](double value) { return value >= 0 && value <= max; };
  whole = whole && end != second && *end == '\0' && possible(latency) && possible(seconds_per_byte);
  if (!whole) {
    throw UsageError(fmt::format(
        "plan: --network {} is not understood; expected measured, or ALPHA,BETA: the seconds of an empty message and "
        "those of a byte, for example 2e-6,1e-10",
        text));
  }
  return NetworkModel::uniform(latency, seconds_per_byte, "by --network");
}

}  // namespace

PlanSession::PlanSession(Config const& config, Registries& registries, Execution& execution,
                         PlanSettings const& settings, Communicator const& world)
    : config_(config),
      registries_(registries),
      execution_(execution),
      settings_(settings),
      world_(world),
      model_(describe_model(config.model, registries.layers)),
      data_(PlannedData::open(config, model_, settings.vocabulary)) {
  KernelTimings const timings =
      read_own_timings(kernel_cache_path(config.kernels.cache), machine_name(usable_cpu_level()), notes_);
  registries.kernels.set_timings(timings);
  if (auto const reason = model_.untrainable_reason()) {
    throw ConfigError(*reason);
  }
  read_network();
  read_times(timings);
  planner_.emplace(PlanRequest{.config = config_,
                               .registries = registries_,
                               .vocabulary = data_->vocabulary(),
                               .machines = settings_.machines,
                               .samples = *data_,
                               .batch_tokens = data_->batch_tokens(),
                               .longest_sequence = data_->totals().longest,
                               .network = network_,
                               .times = times_,
                               .reading_seconds_per_token = data_->reading_seconds_per_token()});
}

void PlanSession::read_network() {
  if (!settings_.network.empty() && settings_.network != "measured") {
    network_ = network_of(settings_.network);
    return;
  }
  auto const file = plan_file(config_.kernels.cache, network_file_name);
  if (auto const found = heddle::read_network(file)) {
    network_ = *found;
  } else if (settings_.network == "measured") {
    throw ConfigError(fmt::format("--network measured: there is no {}; `mpirun … heddle plan --measure` writes it",
                                  file.empty() ? "file beside kernels.cache, which is \"\"" : file.string()));
  }
}

void PlanSession::read_times(KernelTimings const& timings) {
  auto const file = plan_file(config_.kernels.cache, call_times_file_name);
  int const ranks = settings_.machines.ranks_per_node;
  auto const circumstances = [&](int ranks_of_node) {
    return call_circumstances(machine_name(usable_cpu_level()), config_.kernels, timings, ranks_of_node);
  };
  circumstances_ = circumstances(world_.size() > 1 ? world_.size() : ranks);
  times_ = read_call_times(file, circumstances_);
  times_need_others_ = !times_.empty() && world_.size() == 1 && ranks > 1;
  if (times_.empty() && world_.size() == 1 && ranks > 1) {
    notes_.push_back(fmt::format(
        "kernels are timed alone; `mpirun -np {} heddle plan RUN.toml --measure` times them as {} ranks of a node "
        "do, which share its memory",
        ranks, ranks));
    circumstances_ = circumstances(1);
    times_ = read_call_times(file, circumstances_);
  }
  distrust_times();
}

void PlanSession::distrust_times() {
  now_ = broadcast_value(world_, static_cast<double>(std::time(nullptr)));
  std::map<std::string, std::int64_t> reasons;
  for (auto const& [kind, works] : times_.all()) {
    for (TimedWork const& work : works) {
      if (std::string const reason = distrust(work, now_); !reason.empty()) {
        ++reasons[reason];
      }
    }
  }
  std::string const others =
      fmt::format("mpirun -np {} heddle plan RUN.toml --measure", settings_.machines.ranks_per_node);
  std::string remedy;
  if (times_need_others_) {
    remedy = fmt::format(": `{}` measures them again", others);
  } else if (settings_.measure_seconds > 0) {
    remedy = ": they are measured again where this plan needs them";
  }
  for (auto const& [reason, count] : reasons) {
    notes_.push_back(fmt::format("{} time{} of kernels {} not trusted ({}){}", readable_count(count),
                                 count == 1 ? "" : "s", count == 1 ? "is" : "are", reason, remedy));
  }
  if (times_need_others_) {  // this process alone would measure something else
    if (settings_.remeasure) {
      notes_.push_back(
          fmt::format("the ranks of a node timed their kernels together: only `{} --remeasure` measures "
                      "them again",
                      others));
    }
    return;
  }
  times_.forget_distrusted(now_);
  if (settings_.remeasure) {
    times_.forget_all();
  }
}

std::vector<LayoutChoice> PlanSession::candidates() const {
  return list_layouts(config_, model_, settings_.machines, data_->totals().longest, data_->batch_tokens()).layouts;
}

MeasuredLayouts PlanSession::measure(std::vector<LayoutChoice> const& layouts) {
  int const own = world_.size();
  double const load = broadcast_value(world_, others_load(own));
  MeasuredLayouts const count = measure_unknown({.config = config_,
                                                 .registries = registries_,
                                                 .execution = execution_,
                                                 .vocabulary = data_->vocabulary(),
                                                 .world = world_,
                                                 .only_unknown = times_need_others_,
                                                 .now = now_,
                                                 .load = load},
                                                *planner_, layouts, settings_.measure_seconds, times_);
  constexpr double busy = 0.5;
  if (count.measured > 0 && load > busy && world_.rank() == 0) {
    warn(fmt::format(
        "other processes keep this machine busy ({:.1f} on each core): the times of kernels count processor "
        "time alone, may still be too long, and are measured again by the next plan",
        load));
  }
  note_measurement(count);
  return count;
}

void PlanSession::note_measurement(MeasuredLayouts const& count) {
  auto const layouts = [](int number) {
    return fmt::format("{} layout{}", readable_count(number), number == 1 ? "" : "s");
  };
  if (count.too_large > 0) {
    notes_.push_back(
        fmt::format("kernels of {} were not measured, because their memory is not available here: their "
                    "times are scaled from others', or assumed",
                    layouts(count.too_large)));
  }
  if (count.left > 0 && settings_.measure_seconds > 0) {
    notes_.push_back(
        fmt::format("kernels of {} were not measured within {} s (--measure-seconds): their times are scaled from "
                    "others'",
                    layouts(count.left), settings_.measure_seconds));
  }
  auto const file = plan_file(config_.kernels.cache, call_times_file_name);
  if (count.measured > 0 && times_need_others_) {
    notes_.push_back(
        fmt::format("the ranks of a node have not timed all kernels of {} together: the others are timed alone",
                    layouts(count.measured)));
  } else if (count.measured > 0 && world_.rank() == 0 && settings_.keep_times && !file.empty()) {
    std::string kept = fmt::format("are kept in {}", file.string());
    try {
      write_call_times(file, circumstances_, times_);
    } catch (Error const& error) {
      kept = fmt::format("are not kept: {}; set kernels.cache or XDG_CACHE_HOME", error.what());
    }
    notes_.push_back(fmt::format("kernels of {} were measured; the times {}", layouts(count.measured), kept));
  }
}

}  // namespace heddle
