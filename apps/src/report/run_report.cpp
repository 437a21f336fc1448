#include "run_report.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <heddle/core/base/error.hpp>
#include <heddle/core/measure/peaks.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/report/mesh_report.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <numeric>
#include <set>
#include <utility>

namespace heddle {

namespace {

namespace json = boost::json;

constexpr auto between_energy_samples = std::chrono::seconds(20);
/// The peak takes up to three seconds to measure.
constexpr double seconds_worth_a_peak = 60;

/// The bytes and seconds of each group on this rank.
std::array<GroupFacts, traffic_groups> by_group(TrafficByGroup const& traffic,
                                                std::map<std::string, double> const& seconds) {
  std::array<GroupFacts, traffic_groups> groups{};
  for (std::size_t group = 0; group < traffic_groups; ++group) {
    std::string const prefix = fmt::format("{}.", traffic_group_name(group));
    for (Traffic const& verb : traffic[group]) {
      groups[group].bytes += verb.bytes;
    }
    for (auto const& [name, spent] : seconds) {
      if (name.starts_with(prefix)) {
        groups[group].seconds = groups[group].seconds.value_or(0) + spent;
      }
    }
  }
  return groups;
}

bool is_first_on_host(std::vector<std::string> const& hosts, int rank) {
  auto const own = hosts.begin() + rank;
  return std::find(hosts.begin(), own, *own) == own;
}

}  // namespace

RunReport::RunReport(Setup const& setup)
    : setup_(setup),
      facts_{.config = setup_.config,
             .model = describe_model(setup.config.model, setup.registries.layers),
             .plan = {},
             .mesh = setup.parallel.mesh,
             .vocabulary = setup.vocabulary,
             .hosts = gather_hosts(setup.parallel.world),
             .ranks = {},
             .kernels = {},
             .program = setup.program,
             .command = setup.command,
             .started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
             .slurm = own_slurm_step()},
      first_on_host_(is_first_on_host(facts_.hosts, setup.parallel.world.rank())) {
  facts_.plan = plan_pipeline(facts_.model, setup.config.parallel, setup.vocabulary.target);
  facts_.ranks.resize(facts_.hosts.size());
  std::string const layout = describe_mesh(setup.config, facts_.model, facts_.mesh, setup.vocabulary, facts_.hosts);
  std::size_t const end = layout.find('\n') + 1;
  layout_line_ = layout.substr(0, end);
  std::size_t const warning = std::min(layout.find("warning: "), layout.size());
  layout_table_ = layout.substr(end, warning - end);
  layout_warning_ = layout.substr(warning);
}

RunReport RunReport::gather(Setup const& setup, PlannedPacks const& packs) {
  RunReport report(setup);
  Communicator const& world = setup.parallel.world;
  std::string failure;
  try {
    report.plan_ = plan_memory(setup.config, setup.parallel.mesh, setup.vocabulary, setup.registries, packs);
  } catch (ConfigError const&) {
    throw;  // building the model would find it, too
  } catch (Error const& error) {
    // The prediction must not end a run that may succeed, because real micro-batches may be smaller.
    failure = fmt::format("memory of rank {} could not be predicted: {}\n", world.rank(), error.what());
  }
  auto const planned = gather_memory(world, {.predicted = report.plan_.use, .measured = {}});
  for (std::size_t rank = 0; rank < planned.size(); ++rank) {
    report.facts_.ranks[rank].memory = planned[rank];
  }
  report.memory_ = describe_prediction(planned) + failure;
  report.facts_.kernels = report.plan_.kernels;
  return report;
}

void RunReport::compare_with(std::filesystem::path const& report) {
  try {
    json::error_code problem;
    json::value const value = json::parse(read_regular(report).value_or(""), problem);
    if (problem) {
      return;
    }
    json::object const& old = value.as_object();
    auto const ranks = static_cast<std::int64_t>(old.at("ranks").as_array().size());
    std::optional<Reference> reference;
    if (json::object const* const earlier = old.at("reference").if_object()) {
      reference = {earlier->at("ranks").as_int64(), earlier->at("computing_seconds_per_token").to_number<double>()};
    }
    if (old.at("training").is_object() && (!reference || ranks < reference->ranks)) {
      double computing = 0;
      for (json::value const& rank : old.at("ranks").as_array()) {
        computing += rank.at("seconds").at("computing").to_number<double>();
      }
      reference = {ranks, computing / old.at("training").at("tokens").to_number<double>()};
    }
    facts_.reference = reference;
  } catch (std::exception const&) {
    // A file of another version, or a damaged one: nothing is known.
  }
}

void RunReport::count_step(std::int64_t step, BatchTokens const& tokens) {
  auto const now = std::chrono::steady_clock::now();
  if (!facts_.training) {
    facts_.training.emplace(TrainingFacts{.first_step = step, .tokens_of_first = tokens.all});
    if (first_on_host_) {
      energy_.emplace();  // the first step itself is not measured
      sampled_ = now;
    }
  }
  facts_.training->last_step = step;
  facts_.training->tokens += tokens.all;
  tokens_.all += tokens.all;
  tokens_.target += tokens.target;
  if (energy_ && now - sampled_ >= between_energy_samples) {
    energy_->sample();
    sampled_ = now;
  }
}

void RunReport::gather_ranks(TrainingEngine& engine, StepTimes const& times) {
  RankFacts own{.memory = {plan_.use, measure_memory(engine), peak_resident_bytes()},
                .seconds = times.seconds(),
                .communication = by_group(own_traffic_, times.by_verb())};
  facts_.ranks = gather_values(setup_.parallel.world, own);
  std::vector<StepTimes::Seconds> seconds;
  for (RankFacts const& rank : facts_.ranks) {
    seconds.push_back(rank.seconds);
  }
  facts_.training->seconds = seconds.front().all;
  facts_.training->seconds_of_first = seconds.front().first;
  facts_.efficiency = efficiency_of(seconds);
}

void RunReport::gather_traffic(StepTimes const& times) {
  Communicator const& world = setup_.parallel.world;
  facts_.traffic = sum_over_ranks(world, own_traffic_);
  auto const own = times.by_verb();
  std::vector<double> seconds;
  std::vector<double> timed;  // 1 where this rank was in the verb during a step
  for (std::size_t group = 0; group < traffic_groups; ++group) {
    for (std::size_t verb = 0; verb < verbs; ++verb) {
      auto const found = own.find(fmt::format("{}.{}", traffic_group_name(group), name_of(static_cast<Verb>(verb))));
      seconds.push_back(found == own.end() ? 0 : found->second);
      timed.push_back(found == own.end() ? 0 : 1);
    }
  }
  seconds = sums_of(world, seconds);
  timed = sums_of(world, timed);
  for (std::size_t index = 0; index < seconds.size(); ++index) {
    if (timed[index] > 0) {
      facts_.seconds[index / verbs][index % verbs] = seconds[index];
    }
  }
}

void RunReport::measure_peak(Execution& execution) {
  if (facts_.training->seconds < seconds_worth_a_peak) {  // of rank 0, on every rank
    return;
  }
  Communicator const& world = setup_.parallel.world;
  world.barrier();  // all measure at the same time, as they compute in training
  double const peak = measure_matmul_peak(setup_.registries.kernels, execution, dtype_of(setup_.config.train.precision))
                          .operations_per_second;
  auto const peaks = gather_values(world, peak);
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    facts_.ranks[rank].peak = peaks[rank];
  }
}

void RunReport::gather_energy() {
  std::string source;
  std::string reason;
  double joules = 0;
  if (energy_) {
    energy_->sample();
    source = energy_->source();
    reason = energy_->reason();
    joules = energy_->joules();
  }
  Communicator const& world = setup_.parallel.world;
  auto const sources = gather_texts(world, source);
  auto const reasons = gather_texts(world, reason);
  double const sum = sums_of(world, std::vector{joules}).front();
  auto const unknown = std::ranges::find_if(reasons, [](std::string const& each) { return !each.empty(); });
  if (facts_.training->steps() < 2) {
    facts_.no_energy = "one step is too short to measure";
  } else if (unknown == reasons.end()) {
    facts_.joules = sum;
    std::set<std::string> different(sources.begin(), sources.end());
    different.erase("");  // of ranks that measure nothing
    facts_.energy_source = fmt::format("{}", fmt::join(different, " and "));
  } else {
    facts_.no_energy =
        fmt::format("on {}: {}", facts_.hosts[static_cast<std::size_t>(unknown - reasons.begin())], *unknown);
  }
}

double RunReport::seconds_per_token() const {
  double const computing =
      std::accumulate(facts_.ranks.begin(), facts_.ranks.end(), 0.0,
                      [](double sum, RankFacts const& rank) { return sum + rank.seconds.computing(); });
  return computing / static_cast<double>(facts_.training->tokens);
}

void RunReport::conclude(Outcome const& outcome) {
  facts_.state = outcome.state;
  facts_.best_step = outcome.best_step;
  facts_.best_valid_loss = outcome.best_valid_loss;
}

std::string RunReport::end(TrainingEngine& engine, Execution& execution, StepTimes const& times, double typical_length,
                           Outcome const& outcome) {
  own_traffic_ = traffic_of(setup_.parallel);  // before the report's own messages
  gather_energy();
  gather_ranks(engine, times);
  gather_traffic(times);
  measure_peak(execution);
  bool const both = facts_.model.stacks.size() > 1;
  auto const all = static_cast<double>(tokens_.all);
  auto const target = static_cast<double>(tokens_.target);
  facts_.training->operations =
      training_operations(facts_.model, facts_.vocabulary.target,
                          both ? std::vector{all - target, target} : std::vector{all}, typical_length);
  if (facts_.reference && facts_.reference->ranks < static_cast<std::int64_t>(facts_.hosts.size())) {
    facts_.computation_scaling = facts_.reference->computing_seconds_per_token / seconds_per_token();
  }
  conclude(outcome);
  std::vector<MemoryReport> memory;
  for (RankFacts const& rank : facts_.ranks) {
    memory.push_back(rank.memory);
  }
  return describe_memory(memory) +
         (facts_.hosts.size() > 1 ? describe_traffic("rank 0", own_traffic_, facts_.traffic) : "");
}

}  // namespace heddle
