#include "plan_session.hpp"

#include <fmt/format.h>

#include <ctime>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <map>
#include <sstream>

#include "run/configuration/kernel_cache.hpp"
#include "run/directory/warning.hpp"

namespace heddle {

namespace {

/// "2e-6,1e-10": seconds, and seconds per byte.
NetworkModel parse_network(std::string const& text) {
  double latency = 0;
  double seconds_per_byte = 0;
  char comma = ' ';
  std::istringstream words(text);
  constexpr double max = 1e6;  // seconds
  auto const possible = [](double value) { return value >= 0 && value <= max; };
  if (!(words >> latency >> comma >> seconds_per_byte) || comma != ',' || !words.eof() || !possible(latency) ||
      !possible(seconds_per_byte)) {
    throw UsageError(
        "plan: --network {} is not understood; expected measured, or ALPHA,BETA: the seconds of an empty message and "
        "of each byte, for example 2e-6,1e-10",
        text);
  }
  return NetworkModel::uniform(latency, seconds_per_byte, "by --network");
}

/// The measured network; nothing if a link is missing.
std::optional<NetworkModel> network_of(NetworkTimes const& times) {
  NetworkModel network;
  network.source = times.source;
  for (auto const& [name, links] : network_places(network)) {
    for (std::size_t link = 0; link < links->size(); ++link) {
      auto const found = times.links.find(fmt::format("{} {}", name, NetworkModel::link_names[link]));
      if (found == times.links.end()) {
        return std::nullopt;
      }
      (*links)[link] = {found->second[0], found->second[1]};
    }
  }
  return network;
}

/// The circumstances that the times of calls depend on: the machine, the choice of kernels, and the number of ranks of
/// a node that compute at the same time.
std::string call_circumstances(KernelChoices const& choices, KernelTimings const& timings, int ranks_of_node) {
  std::string text = machine_name(usable_cpu_level());
  for (auto const& [operation, choice] : choices.operations()) {
    text += choice.implementation == "auto" ? "" : fmt::format(", {} by {}", operation, choice.implementation);
  }
  if (!timings.empty()) {
    text += fmt::format(", chosen by times {:08x}",
                        random_key(0, to_json(MeasuredTimes{.kernels = {{"", timings}}})) & 0xffffffffU);
  }
  return fmt::format("{}, {} of a node", text, counted(ranks_of_node, "rank"));
}

}  // namespace

PlanSession::PlanSession(Config const& config, Registries& registries, Execution& execution,
                         PlanSettings const& settings, Communicator const& world)
    : config_(config),
      registries_(registries),
      execution_(execution),
      settings_(settings),
      world_(world),
      cache_(kernel_cache_path(config.kernels.cache)),
      model_(describe_model(config.model, registries.layers)),
      data_(PlannedData::open(config, registries, settings.vocabulary)) {
  MeasuredTimes measured = read_cache(cache_, notes_);
  for (char const* const older : {"call-times.json", "network.json"}) {
    auto const file = cache_.parent_path() / older;
    if (std::error_code ignored; !cache_.empty() && std::filesystem::exists(file, ignored)) {
      notes_.push_back(fmt::format("{} is of an older version and not used: remove it", file.string()));
    }
  }
  KernelTimings const& timings = measured.kernels[machine_name(usable_cpu_level())];
  registries.kernels.set_timings(timings);
  if (auto const reason = model_.untrainable_reason()) {
    throw ConfigError(*reason);
  }
  take_network(measured.network);
  take_times(measured.calls, timings);
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

void PlanSession::take_network(NetworkTimes const& measured) {
  if (!settings_.network.empty() && settings_.network != "measured") {
    network_ = parse_network(settings_.network);
  } else if (auto const found = network_of(measured)) {
    network_ = *found;
  } else if (settings_.network == "measured") {
    throw ConfigError("--network measured: {} has no network; `mpirun … heddle plan --measure` measures it",
                      cache_.empty() ? "kernels.cache = \"\"" : cache_.string());
  }
}

void PlanSession::take_times(std::map<std::string, TimedCalls>& measured, KernelTimings const& timings) {
  int const ranks = settings_.machines.ranks_per_node;
  auto const take = [&](int ranks_of_node) {
    circumstances_ = call_circumstances(config_.kernels, timings, ranks_of_node);
    for (auto const& [kind, works] : measured[circumstances_]) {
      for (TimedWork const& work : works) {
        times_.add(kind, work);
      }
    }
  };
  bool const alone = world_.size() == 1 && ranks > 1;
  take(alone ? ranks : world_.size());
  times_need_others_ = alone && !times_.empty();
  if (alone && times_.empty()) {
    notes_.push_back(fmt::format(
        "kernels are timed by one process; `mpirun -np {} heddle plan RUN.toml --measure` times them as {} ranks of a "
        "node do, which share its memory",
        ranks, ranks));
    take(1);
  }
  forget_untrusted_times();
}

void PlanSession::forget_untrusted_times() {
  now_ = broadcast_value(world_, static_cast<double>(std::time(nullptr)));
  std::map<std::string, std::int64_t> reasons;
  for (auto const& [kind, works] : times_.all()) {
    for (TimedWork const& work : works) {
      if (std::string const reason = untrusted_reason(work, now_); !reason.empty()) {
        ++reasons[reason];
      }
    }
  }
  std::string const others =
      fmt::format("mpirun -np {} heddle plan RUN.toml --measure", settings_.machines.ranks_per_node);
  std::string fix;
  if (times_need_others_) {
    fix = fmt::format(": `{}` measures them again", others);
  } else if (settings_.measure_seconds > 0) {
    fix = ": they are measured again where this plan needs them";
  }
  for (auto const& [reason, count] : reasons) {
    notes_.push_back(fmt::format("{} of kernels {} not trusted ({}){}", counted(count, "time"),
                                 count == 1 ? "is" : "are", reason, fix));
  }
  if (times_need_others_) {  // a single process would measure something else
    if (settings_.remeasure) {
      notes_.push_back(fmt::format(
          "the ranks of a node timed their kernels together: only `{} --remeasure` measures them again", others));
    }
    return;
  }
  times_.forget(now_, settings_.remeasure);
}

std::vector<LayoutChoice> PlanSession::candidates() const {
  return list_layouts(config_, model_, settings_.machines, data_->totals().longest, data_->batch_tokens(),
                      undivided_reason(config_, registries_.kernels))
      .layouts;
}

MeasuredLayouts PlanSession::measure(std::vector<LayoutChoice> const& layouts) {
  double const load = broadcast_value(world_, others_load(world_.size()));
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
        "other processes keep this machine busy ({:.1f} on each core): the times of kernels count only processor "
        "time, may still be too long, and are measured again by the next plan",
        load));
  }
  note_measurement(count);
  return count;
}

void PlanSession::note_measurement(MeasuredLayouts const& count) {
  if (count.too_large > 0) {
    notes_.push_back(
        fmt::format("kernels of {} were not measured, because their memory is not available here: their "
                    "times are scaled from others', or assumed",
                    counted(count.too_large, "layout")));
  }
  if (count.left > 0 && settings_.measure_seconds > 0) {
    notes_.push_back(
        fmt::format("kernels of {} were not measured within {} s (--measure-seconds): their times are scaled from "
                    "others'",
                    counted(count.left, "layout"), settings_.measure_seconds));
  }
  if (count.measured > 0 && times_need_others_) {
    notes_.push_back(
        fmt::format("the ranks of a node have not timed all kernels of {} together: one process timed the others",
                    counted(count.measured, "layout")));
  } else if (count.measured > 0 && world_.rank() == 0 && settings_.keep_times && !cache_.empty()) {
    notes_.push_back(fmt::format("kernels of {} were measured; the times are {}", counted(count.measured, "layout"),
                                 keep_in_cache(cache_, {.calls = {{circumstances_, times_.all()}}})));
  }
}

}  // namespace heddle
