#include "run_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cstdlib>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/measure/peaks.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/planning/available_memory.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <set>
#include <utility>

#include "run/directory/json_text.hpp"

namespace heddle {

namespace {

namespace json = boost::json;

constexpr auto between_energy_samples = std::chrono::seconds(20);
/// The peak takes up to three seconds to measure.
constexpr double seconds_worth_a_peak = 60;

/// null stands for a number that is not known, which a positive one is.
json::value known(double value) {
  return value > 0 ? json::value(value) : json::value(nullptr);
}

/// The step of a Slurm job in which this process runs; its step is null outside of steps, for example by `mpirun` in a
/// job's script. null outside of Slurm.
json::value own_slurm_step() {
  char const* const job = std::getenv("SLURM_JOB_ID");
  char const* const step = std::getenv("SLURM_STEP_ID");
  auto const has = [](char const* text) { return text != nullptr && *text != '\0'; };
  return has(job) ? json::value(json::object{{"job", job}, {"step", has(step) ? json::value(step) : json::value()}})
                  : json::value();
}

json::object bytes(MemoryUse const& use) {
  return {{"parameters", use.parameters}, {"gradients", use.gradients},     {"state", use.state},
          {"kernels", use.kernels},       {"activations", use.activations}, {"total", use.total()}};
}

/// A rank's bytes and seconds by group: no seconds where it was in none of the group's collectives during a step.
json::object by_group(TrafficByGroup const& traffic, std::map<std::string, double> const& by_collective) {
  json::object groups;
  for (std::size_t group = 0; group < traffic_groups; ++group) {
    std::int64_t sum = 0;
    for (Traffic const& collective : traffic[group]) {
      sum += collective.bytes;
    }
    double seconds = 0;
    for (auto const& [name, spent] : by_collective) {
      seconds += traffic_group_of(name.substr(0, name.find('.'))) == traffic_group_name(group) ? spent : 0;
    }
    if (sum > 0) {
      groups[traffic_group_name(group)] = json::object{{"bytes", sum}, {"seconds", known(seconds)}};
    }
  }
  return groups;
}

/// The communication of all ranks, by group and collective.
json::object all_communication(TrafficByGroup const& traffic, std::vector<json::object> const& measured) {
  json::object object;
  for_each_traffic(traffic, [&](std::string const& name, Traffic const& each) {
    double seconds = 0;
    for (json::object const& rank : measured) {
      seconds += number_of(object_of(rank, "by_collective"), name);
    }
    object[name] = json::object{{"operations", each.operations}, {"bytes", each.bytes}, {"seconds", known(seconds)}};
  });
  return object;
}

std::vector<json::object> gather_objects(Communicator const& world, json::object const& own) {
  std::vector<json::object> objects;
  for (std::string const& text : gather_texts(world, json_text(own))) {
    objects.push_back(json::parse(text).as_object());
  }
  return objects;
}

/// The earlier starts before this one's step, the last of all with the state in which it ended, and this one.
json::array starts_with(json::object const& own, json::object const& earlier) {
  json::array starts;
  if (json::value const* const found = earlier.if_contains("starts"); found != nullptr && found->is_array()) {
    starts = found->get_array();
  }
  if (!starts.empty()) {
    starts.back().as_object()["state"] = earlier.at("state");
  }
  while (!starts.empty() && number_of(starts.back().as_object(), "step") >= number_of(own, "step")) {
    starts.pop_back();
  }
  starts.emplace_back(own);
  return starts;
}

}  // namespace

RunReport::RunReport(Setup const& setup, PlannedPacks const& packs)
    : setup_(setup),
      model_(describe_model(setup.config.model, setup.registries.layers)),
      hosts_(gather_texts(setup.parallel.world, host_name())) {
  auto const own = hosts_.begin() + setup.parallel.world.rank();
  first_on_host_ = std::find(hosts_.begin(), own, *own) == own;
  json::object mesh = mesh_to_json(setup.config, model_, setup.parallel.mesh, setup.vocabulary, hosts_);
  mesh_ = describe_mesh(mesh);
  json_ = {{"version", 1},
           {"program", "heddle " HEDDLE_VERSION},
           {"command", setup.command},
           {"started", utc_now().replace(10, 1, "T") + "Z"},
           {"state", "training"},
           {"slurm", own_slurm_step()},
           {"parameters", 0},
           {"layout", std::move(mesh["layout"])},
           {"stages", std::move(mesh["stages"])},
           {"ranks", std::move(mesh["ranks"])},
           {"communication", json::object()},
           {"kernels", json::array()},
           {"training", nullptr},
           {"efficiency", nullptr},
           {"energy", nullptr},
           {"reference", nullptr},
           {"best", nullptr}};
  plan_memory_with(packs);
}

void RunReport::plan_memory_with(PlannedPacks const& packs) {
  Communicator const& world = setup_.parallel.world;
  std::string failure;
  try {
    plan_ = plan_memory(setup_.config, setup_.parallel.mesh, setup_.vocabulary, setup_.registries, packs);
  } catch (ConfigError const&) {
    throw;  // building the model would find it, too
  } catch (Error const& error) {
    // The prediction must not end a run that may succeed, because real micro-batches may be smaller.
    failure = fmt::format("memory of rank {} could not be predicted: {}\n", world.rank(), error.what());
  }
  auto const planned = gather_values<MemoryReport>(world, {.predicted = plan_.use, .measured = {}});
  for (std::size_t rank = 0; rank < planned.size(); ++rank) {
    json_.at("ranks").at(rank).at("memory").as_object()["planned"] = bytes(planned[rank].predicted);
  }
  memory_ = describe_prediction(planned) + failure;
  for (SelectedKernel const& kernel : plan_.kernels) {
    json_["kernels"].as_array().push_back(json::object{
        {"operation", kernel.operation}, {"problem", kernel.problem}, {"implementation", kernel.implementation}});
  }
}

void RunReport::compare_with(std::filesystem::path const& report, std::int64_t step) {
  json::object const own{{"step", step}, {"started", json_.at("started")}, {"layout", json_.at("layout")}};
  json_["starts"] = json::array{own};
  try {
    json::object const old = json::parse(read_regular(report).value_or("")).as_object();
    json_["starts"] = starts_with(own, old);
    json::array const& ranks = old.at("ranks").as_array();
    json::object const& earlier = object_of(old, "reference");
    json_["reference"] = old.at("reference");
    if (old.at("training").is_object() &&
        (earlier.empty() || static_cast<double>(ranks.size()) < number_of(earlier, "ranks"))) {
      double computing = 0;
      for (json::value const& rank : ranks) {
        computing += rank.at("seconds").at("computing").to_number<double>();
      }
      double const tokens = old.at("training").at("tokens").to_number<double>();
      json_["reference"] = json::object{{"ranks", ranks.size()}, {"computing_seconds_per_token", computing / tokens}};
    }
  } catch (std::exception const&) {
    json_["reference"] = nullptr;  // no file, one of another version, or a damaged one: nothing is known
  }
}

void RunReport::count_step(std::int64_t step, BatchTokens const& tokens) {
  auto const now = std::chrono::steady_clock::now();
  if (!steps_) {
    steps_ = {.first = step, .tokens_of_first = tokens.all};
    if (first_on_host_) {
      energy_.emplace();  // the first step itself is not measured
      sampled_ = now;
    }
  }
  steps_->last = step;
  steps_->tokens.all += tokens.all;
  steps_->tokens.target += tokens.target;
  if (energy_ && now - sampled_ >= between_energy_samples) {
    energy_->sample();
    sampled_ = now;
  }
}

double RunReport::measure_peak(Execution& execution, double seconds) const {
  if (seconds < seconds_worth_a_peak) {
    return 0;
  }
  setup_.parallel.world.barrier();  // all measure at the same time, as they compute in training
  return measure_matmul_peak(setup_.registries.kernels, execution, dtype_of(setup_.config.train.precision))
      .operations_per_second;
}

json::object RunReport::own_measurements(StepTimes const& times, double peak) const {
  StepTimes::Seconds const seconds = times.seconds();
  auto const by_collective = times.by_collective();
  return {{"seconds",
           {{"steps", seconds.all},
            {"computing", seconds.computing()},
            {"communicating", seconds.communicating},
            {"data", seconds.data}}},
          {"communication", by_group(own_traffic_, by_collective)},
          {"by_collective", json::value_from(by_collective)},
          {"peak", peak},
          {"joules", energy_ ? energy_->joules() : 0},
          {"source", energy_ ? energy_->source() : ""},
          {"reason", energy_ ? energy_->reason() : ""}};
}

void RunReport::set_ranks(std::vector<json::object> const& measured, std::vector<MemoryReport> const& memory) {
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    json::object& own = json_["ranks"].as_array()[rank].as_object();
    own["seconds"] = measured[rank].at("seconds");
    own["communication"] = measured[rank].at("communication");
    own["memory"] =
        json::object{{"planned", bytes(memory[rank].predicted)},
                     {"measured", bytes(memory[rank].measured)},
                     {"resident", memory[rank].resident > 0 ? json::value(memory[rank].resident) : json::value()}};
  }
}

void RunReport::set_training(StepTimes::Seconds const& seconds) {
  // The first step, which also warms up, is left out of the rate where there are others.
  bool const warm = steps_->last > steps_->first;
  auto const tokens = static_cast<double>(steps_->tokens.all - (warm ? steps_->tokens_of_first : 0));
  // Node-hours cover the whole start, also validation and checkpoints, as computing centres bill them.
  std::chrono::duration<double> const since_start = std::chrono::steady_clock::now() - began_;
  auto const nodes = static_cast<double>(std::set(hosts_.begin(), hosts_.end()).size());
  double const node_hours = nodes * since_start.count() / 3600;
  json_["training"] = json::object{{"first_step", steps_->first},
                                   {"last_step", steps_->last},
                                   {"tokens", steps_->tokens.all},
                                   {"seconds", seconds.all},
                                   {"node_hours", node_hours},
                                   {"tokens_per_node_hour", static_cast<double>(steps_->tokens.all) / node_hours},
                                   {"tokens_per_second", tokens / (seconds.all - (warm ? seconds.first : 0))}};
}

void RunReport::set_efficiency(std::vector<StepTimes::Seconds> const& seconds, double operations, double peak) {
  Efficiency const found = efficiency_of(seconds);
  double computing = 0;
  for (StepTimes::Seconds const& rank : seconds) {
    computing += rank.computing();
  }
  json::object const& reference = object_of(json_, "reference");
  double const scaling =
      number_of(reference, "ranks") < static_cast<double>(hosts_.size())
          ? number_of(reference, "computing_seconds_per_token") * static_cast<double>(steps_->tokens.all) / computing
          : 0;
  double const rate = operations / seconds.front().all;
  json_["efficiency"] = json::object{{"load_balance", found.load_balance},
                                     {"communication", found.communication},
                                     {"parallel", found.parallel},
                                     {"computation_scaling", known(scaling)},
                                     {"model_operations_per_second", rate},
                                     {"peak_operations_per_second", known(peak)},
                                     {"model_utilisation", known(peak > 0 ? rate / peak : 0)},
                                     {"slowest",
                                      {{"rank", found.slowest},
                                       {"host", hosts_[static_cast<std::size_t>(found.slowest)]},
                                       {"seconds", found.waited_less}}}};
}

void RunReport::set_energy(std::vector<json::object> const& measured) {
  double joules = 0;
  std::set<std::string_view> sources;
  std::string reason = steps_->last > steps_->first ? "" : "one step is too short to measure";
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    joules += number_of(measured[rank], "joules");
    sources.insert(text_of(measured[rank], "source"));
    if (std::string_view const unknown = text_of(measured[rank], "reason"); reason.empty() && !unknown.empty()) {
      reason = fmt::format("on {}: {}", hosts_[rank], unknown);
    }
  }
  sources.erase("");  // of ranks that measure nothing
  auto const tokens = static_cast<double>(steps_->tokens.all - steps_->tokens_of_first);
  json_["energy"] = energy_object(joules, tokens, fmt::format("{}", fmt::join(sources, " and ")), reason);
}

void RunReport::conclude(Ending const& ending) {
  json_["state"] = ending.state;
  json_["best"] =
      ending.best_step == 0
          ? json::value()
          : json::value(json::object{{"step", ending.best_step}, {ending.best_measure.key(), ending.best_value}});
  set_validation(ending.best_measure, ending.best_values);
}

void RunReport::set_validation(Measure const& best, std::vector<BestValue> const& values) {
  json_["best_metric"] = best.short_name();
  json::object validation;
  for (auto const& [measure, value, step] : values) {
    bool const known = step > 0;
    validation[measure.key()] = json::object{{"higher_is_better", measure.higher_is_better},
                                             {"best", known ? json::value(value) : json::value()},
                                             {"step", known ? json::value(step) : json::value()}};
  }
  json_["validation"] = std::move(validation);
}

std::string RunReport::end(TrainingEngine& engine, Execution& execution, StepTimes const& times, double typical_length,
                           Ending const& ending) {
  Communicator const& world = setup_.parallel.world;
  own_traffic_ = traffic_of(setup_.parallel);  // before the report's own messages
  if (energy_) {
    energy_->sample();
  }
  auto const seconds = gather_values(world, times.seconds());
  auto const memory = gather_values<MemoryReport>(world, {plan_.use, measure_memory(engine), peak_resident_bytes()});
  auto const traffic = sum_over_ranks(world, own_traffic_);
  auto const measured = gather_objects(world, own_measurements(times, measure_peak(execution, seconds.front().all)));
  double peak = 0;
  for (json::object const& rank : measured) {
    peak += number_of(rank, "peak");
  }
  auto const all = static_cast<double>(steps_->tokens.all);
  auto const target = static_cast<double>(steps_->tokens.target);
  set_ranks(measured, memory);
  set_training(seconds.front());
  set_efficiency(
      seconds,
      training_operations(model_, setup_.vocabulary.target,
                          model_.keys.is_encoder_decoder() ? std::vector{all - target, target} : std::vector{all},
                          typical_length),
      peak);
  set_energy(measured);
  json_["communication"] = all_communication(traffic, measured);
  conclude(ending);
  return describe_memory(memory) + (hosts_.size() > 1 ? describe_traffic("rank 0", own_traffic_, traffic) : "");
}

}  // namespace heddle
