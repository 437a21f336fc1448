#include "run_report.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/dist/report/mesh_report.hpp>
#include <heddle/dist/report/traffic_report.hpp>
#include <utility>

namespace heddle {

RunReport::RunReport(ParallelState const& parallel, MemoryPlan plan, std::string beginning)
    : parallel_(parallel), plan_(std::move(plan)), beginning_(std::move(beginning)) {}

RunReport RunReport::gather(Config const& config, Registries const& registries, ParallelState const& parallel,
                            VocabularySizes const& vocabulary) {
  ModelDescription const model = describe_model(config.model, registries.layers);
  std::string text = describe_mesh(config, model, parallel.mesh, vocabulary, gather_hosts(parallel.world));
  MemoryPlan plan;
  std::string failure;
  try {
    plan = plan_memory(config, parallel.mesh, vocabulary, registries);
  } catch (ConfigError const&) {
    throw;  // building the model would find it, too
  } catch (Error const& error) {
    // The prediction must not end a run that may succeed, because real micro-batches may be smaller.
    failure = fmt::format("memory of rank {} could not be predicted: {}\n", parallel.world.rank(), error.what());
  }
  text += describe_prediction(gather_memory(parallel.world, {.predicted = plan.use, .measured = {}})) + failure;
  return {parallel, std::move(plan), std::move(text)};
}

std::string RunReport::end(TrainingEngine& engine) const {
  TrafficByGroup const own = traffic_of(parallel_);  // before the report's own messages
  MemoryReport const memory{plan_.use, measure_memory(engine), peak_resident_bytes()};
  std::string text = describe_memory(gather_memory(parallel_.world, memory));
  if (parallel_.world.size() > 1) {
    text += describe_traffic("rank 0", own, sum_over_ranks(parallel_.world, own));
  }
  return text;
}

}  // namespace heddle
