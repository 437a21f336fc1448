#include "run_facts.hpp"

#include <fmt/format.h>

#include <heddle/core/base/index_range.hpp>
#include <heddle/core/base/readable.hpp>
#include <numeric>

namespace heddle {

namespace {

namespace json = boost::json;

/// null where a number is not known.
json::value known(std::optional<double> const& value) {
  return value ? json::value(*value) : json::value(nullptr);
}

json::array range(IndexRange const& of) {
  return {of.begin, of.end};
}

json::object layout(RunFacts const& facts) {
  json::object object{{"ranks", facts.hosts.size()}};
  for (MeshAxis const axis : {MeshAxis::pipeline, MeshAxis::data, MeshAxis::context, MeshAxis::tensor}) {
    object[name_of(axis)] = facts.mesh.size(axis);
  }
  ParallelConfig const& parallel = facts.config.parallel;
  object["pipeline_schedule"] = name_of(parallel.pipeline_schedule);
  object["context_mode"] = name_of(parallel.context_mode);
  object["sequence_parallel"] = parallel.sequence_parallel;
  object["shard_optimizer"] = parallel.shard_optimizer;
  return object;
}

json::array stages(RunFacts const& facts) {
  std::vector<double> const shares = cost_shares(facts.plan, facts.model, facts.vocabulary.target);
  json::array array;
  for (std::size_t stage = 0; stage < facts.plan.parts.size(); ++stage) {
    json::array parts;
    json::array words;
    for (IndexRange const& layers : facts.plan.parts[stage]) {
      json::object part;
      for (std::size_t stack = 0; stack < facts.model.stacks.size(); ++stack) {
        part[facts.model.stacks[stack].name] = range(facts.model.range_in(stack, layers));
      }
      parts.emplace_back(std::move(part));
      words.emplace_back(describe(layers, facts.model));
    }
    array.push_back(json::object{{"parts", parts}, {"words", words}, {"cost_share", shares[stage]}});
  }
  return array;
}

json::object bytes(MemoryUse const& use) {
  return {{"parameters", use.parameters}, {"gradients", use.gradients},     {"moments", use.moments},
          {"kernels", use.kernels},       {"activations", use.activations}, {"total", use.total()}};
}

json::object memory(RunFacts const& facts, MemoryReport const& report) {
  bool const measured = facts.training.has_value();
  json::value const none(nullptr);
  return {{"planned", bytes(report.predicted)},
          {"measured", measured ? json::value(bytes(report.measured)) : none},
          {"resident", measured && report.resident > 0 ? json::value(report.resident) : none}};
}

json::object communication(RankFacts const& rank) {
  json::object object;
  for (std::size_t group = 0; group < traffic_groups; ++group) {
    if (GroupFacts const& own = rank.communication[group]; own.bytes > 0) {
      object[traffic_group_name(group)] = json::object{{"bytes", own.bytes}, {"seconds", known(own.seconds)}};
    }
  }
  return object;
}

json::object rank_object(RunFacts const& facts, int rank) {
  RankFacts const& own = facts.ranks[static_cast<std::size_t>(rank)];
  Mesh const& mesh = facts.mesh;
  Mesh const place({mesh.size(MeshAxis::pipeline), mesh.size(MeshAxis::data), mesh.size(MeshAxis::context),
                    mesh.size(MeshAxis::tensor)},
                   rank, static_cast<int>(facts.hosts.size()));
  json::object object{{"rank", rank}, {"host", facts.hosts[static_cast<std::size_t>(rank)]}};
  for (MeshAxis const axis : {MeshAxis::pipeline, MeshAxis::data, MeshAxis::context, MeshAxis::tensor}) {
    object[name_of(axis)] = place.coordinate(axis);
  }
  auto const part = [&](std::int64_t count) {
    return range(share(count, place.coordinate(MeshAxis::tensor), place.size(MeshAxis::tensor)));
  };
  object["heads"] = part(facts.config.model.heads);
  object["d_ff"] = part(facts.config.model.d_ff);
  object["source_vocabulary"] = part(facts.vocabulary.source);
  object["target_vocabulary"] = part(facts.vocabulary.target);
  int const context = place.size(MeshAxis::context);
  int const chunk = place.coordinate(MeshAxis::context);
  object["chunks"] = context > 1 ? json::value(json::array{chunk, 2 * context - 1 - chunk}) : json::value(nullptr);
  object["memory"] = memory(facts, own.memory);
  object["seconds"] = !facts.training ? json::value(nullptr)
                                      : json::value(json::object{{"steps", own.seconds.all},
                                                                 {"computing", own.seconds.computing()},
                                                                 {"communicating", own.seconds.communicating},
                                                                 {"data", own.seconds.data}});
  object["communication"] = communication(own);
  return object;
}

json::object all_communication(RunFacts const& facts) {
  json::object object;
  for (std::size_t group = 0; group < traffic_groups; ++group) {
    for (std::size_t verb = 0; verb < verbs; ++verb) {
      Traffic const& traffic = facts.traffic[group][verb];
      if (traffic.operations > 0) {
        object[fmt::format("{}.{}", traffic_group_name(group), name_of(static_cast<Verb>(verb)))] =
            json::object{{"operations", traffic.operations},
                         {"bytes", traffic.bytes},
                         {"seconds", known(facts.seconds[group][verb])}};
      }
    }
  }
  return object;
}

json::array kernels(RunFacts const& facts) {
  json::array array;
  for (SelectedKernel const& kernel : facts.kernels) {
    array.push_back(json::object{
        {"operation", kernel.operation}, {"problem", kernel.problem}, {"implementation", kernel.implementation}});
  }
  return array;
}

json::value training(RunFacts const& facts) {
  if (!facts.training) {
    return nullptr;
  }
  TrainingFacts const& steps = *facts.training;
  return json::object{{"first_step", steps.first_step},
                      {"last_step", steps.last_step},
                      {"tokens", steps.tokens},
                      {"seconds", steps.seconds},
                      {"tokens_per_second", steps.tokens_per_second()}};
}

json::value efficiency(RunFacts const& facts) {
  if (!facts.efficiency) {
    return nullptr;
  }
  Efficiency const& found = *facts.efficiency;
  TrainingFacts const& steps = *facts.training;
  json::object object{
      {"load_balance", found.load_balance},
      {"communication", found.communication},
      {"parallel", found.parallel},
      {"computation_scaling", known(facts.computation_scaling)},
      {"model_operations_per_second", steps.operations / steps.seconds},
      {"peak_operations_per_second", known(facts.peak() > 0 ? std::optional(facts.peak()) : std::nullopt)},
      {"model_utilisation", known(facts.model_utilisation())}};
  object["slowest"] = json::object{{"rank", found.slowest},
                                   {"host", facts.hosts[static_cast<std::size_t>(found.slowest)]},
                                   {"seconds", found.waited_less}};
  return object;
}

std::optional<double> joules_per_million_tokens(RunFacts const& facts) {
  if (!facts.joules) {
    return std::nullopt;
  }
  return 1e6 * *facts.joules / static_cast<double>(facts.training->tokens - facts.training->tokens_of_first);
}

json::value slurm(RunFacts const& facts) {
  if (!facts.slurm) {
    return nullptr;
  }
  std::string const& step = facts.slurm->step;
  return json::object{{"job", facts.slurm->job}, {"step", step.empty() ? json::value(nullptr) : json::value(step)}};
}

json::value energy(RunFacts const& facts) {
  if (!facts.training) {
    return nullptr;
  }
  json::value const none(nullptr);
  return json::object{{"joules", known(facts.joules)},
                      {"joules_per_million_tokens", known(joules_per_million_tokens(facts))},
                      {"source", facts.joules ? json::value(facts.energy_source) : none},
                      {"reason", facts.joules ? none : json::value(facts.no_energy)}};
}

}  // namespace

double TrainingFacts::tokens_per_second() const {
  bool const warm = steps() > 1;
  return static_cast<double>(tokens - (warm ? tokens_of_first : 0)) / (seconds - (warm ? seconds_of_first : 0));
}

double RunFacts::peak() const {
  double sum = 0;
  for (RankFacts const& rank : ranks) {
    if (rank.peak <= 0) {
      return 0;
    }
    sum += rank.peak;
  }
  return sum;
}

std::optional<double> RunFacts::model_utilisation() const {
  double const of_all = peak();
  return of_all > 0 ? std::optional(training->operations / training->seconds / of_all) : std::nullopt;
}

json::object to_json(RunFacts const& facts) {
  json::array ranks;
  for (std::size_t rank = 0; rank < facts.hosts.size(); ++rank) {
    ranks.emplace_back(rank_object(facts, static_cast<int>(rank)));
  }
  json::object object{{"version", 1},
                      {"program", facts.program},
                      {"command", facts.command},
                      {"started", facts.started},
                      {"state", facts.state},
                      {"slurm", slurm(facts)},
                      {"parameters", facts.parameters},
                      {"layout", layout(facts)},
                      {"stages", stages(facts)},
                      {"ranks", std::move(ranks)},
                      {"communication", all_communication(facts)},
                      {"kernels", kernels(facts)},
                      {"training", training(facts)},
                      {"efficiency", efficiency(facts)},
                      {"energy", energy(facts)}};
  object["reference"] =
      !facts.reference
          ? json::value(nullptr)
          : json::value(json::object{{"ranks", facts.reference->ranks},
                                     {"computing_seconds_per_token", facts.reference->computing_seconds_per_token}});
  object["best"] = facts.best_step == 0
                       ? json::value(nullptr)
                       : json::value(json::object{{"step", facts.best_step}, {"valid_loss", facts.best_valid_loss}});
  return object;
}

std::string describe_speed(RunFacts const& facts) {
  TrainingFacts const& steps = *facts.training;
  Efficiency const& found = *facts.efficiency;
  std::string text = fmt::format(
      "speed: {} tokens/s; matrix products of the model: {} GFLOP/s, {}\n", readable_count(steps.tokens_per_second()),
      readable_decimal(1e-9 * steps.operations / steps.seconds, 1),
      facts.peak() > 0 ? fmt::format("{:.1f} % of the peak", 100 * *facts.model_utilisation())
                       : "of an unknown peak (it is measured after a minute of training)");
  if (facts.hosts.size() > 1) {
    text += fmt::format(
        "parallel efficiency: {:.1f} % = load balance {:.1f} % x communication {:.1f} %; computation scaling: {}\n"
        "slowest: rank {} on {}; the other ranks waited {:.1f} s more than it, on average\n",
        100 * found.parallel, 100 * found.load_balance, 100 * found.communication,
        facts.computation_scaling ? fmt::format("{:.1f} %", 100 * *facts.computation_scaling)
                                  : "unknown (no start with fewer ranks)",
        found.slowest, facts.hosts[static_cast<std::size_t>(found.slowest)], found.waited_less);
  }
  return text + (facts.joules
                     ? fmt::format("energy: {} J, {} J per million tokens ({})\n", readable_count(*facts.joules),
                                   readable_decimal(*joules_per_million_tokens(facts), 1), facts.energy_source)
                     : fmt::format("energy: unknown ({})\n", facts.no_energy));
}

}  // namespace heddle
