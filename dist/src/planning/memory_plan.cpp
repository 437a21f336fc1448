#include <algorithm>
#include <functional>
#include <heddle/core/model/model.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/dist/planning/dry_run.hpp>
#include <heddle/dist/planning/memory_plan.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <set>
#include <utility>

namespace heddle {

namespace {

/// Micro-batches for each stage of a dry-run step, after which every arena has been used, and where a stage has
/// several parts, for every one of them.
constexpr std::int64_t dry_run_per_stage = 4;
constexpr std::int64_t dry_run_per_stage_of_parts = 16;
constexpr std::int64_t min_margin = std::int64_t{32} << 20;
constexpr std::int64_t margin_share = 20;

/// Micro-batches that are there already.
class PackList final : public MicroBatchSource {
 public:
  explicit PackList(std::vector<Pack> const& packs) : packs_(packs) {}

  std::int64_t count() const override { return std::ssize(packs_); }
  BatchTokens tokens() const override { return {}; }  // a dry run divides nothing by them
  Pack micro_batch(std::int64_t index) const override { return packs_[static_cast<std::size_t>(index)]; }

 private:
  std::vector<Pack> const& packs_;
};

/// The maximum of a step's passes in flight, and its micro-batches.
struct Demand {
  std::int64_t in_flight = 1;
  std::int64_t micro_batches = 1;

  auto operator<=>(Demand const&) const = default;
};

Demand demand_of(PipelinePosition const& place, std::int64_t micro_batches) {
  return {max_in_flight(training_actions(place, micro_batches)), micro_batches};
}

/// The demand of a dry-run step that needs as much memory as one with `number` micro-batches. How many of an
/// interleaved schedule are in flight, and of which parts, depends on the remainder of their number by the stages, too.
Demand dry_run_demand(PipelinePosition const& place, std::int64_t number) {
  std::int64_t const max = (place.parts > 1 ? dry_run_per_stage_of_parts : dry_run_per_stage) * place.stages;
  return demand_of(place, number <= max ? number : max + number % place.stages);
}

std::int64_t scaled(std::int64_t bytes, double scale) {
  return static_cast<std::int64_t>(static_cast<double>(bytes) * scale);
}

/// An upper bound of the host memory of a rank's samples: a step's samples, which are read at once, those of the next
/// step, which are read ahead, and the message to the ranks that train on the same ones; and packs of the micro-batches
/// in flight, each in a slab that may be twice as large as its arrays (see PackWriter).
std::int64_t pack_bytes(PlannedPacks const& packs, Mesh const& mesh, std::int64_t in_flight) {
  constexpr std::int64_t id = sizeof(std::int32_t);
  constexpr std::int64_t arrays_of_a_side = 5;
  constexpr std::int64_t arrays_of_context = 6;
  constexpr std::int64_t grown = 2;  // a vector or a slab that has just grown
  constexpr std::int64_t ids_of_a_sample_token = 3;
  int const context = std::max(mesh.shape().size(MeshShape::context_axes(Grid::encoder)),
                               mesh.shape().size(MeshShape::context_axes(Grid::decoder)));
  std::int64_t whole = 0;
  auto const take = [&](std::vector<Pack> const& list) {
    for (Pack const& pack : list) {
      whole = std::max(whole, context * (pack.source_rows.tokens + pack.target_rows.tokens));
    }
  };
  take(packs.training);
  take(packs.validation);
  std::ranges::for_each(packs.steps, take);
  std::int64_t const arrays = arrays_of_a_side + (context > 1 ? arrays_of_context : 0) +
                              (mesh.shape().has_grids() ? arrays_of_a_side + arrays_of_context : 0);
  std::int64_t const slabs = scaled(grown * id * arrays * whole * (in_flight + 2), packs.scale);
  std::int64_t const copies = mesh.shape().ranks() > mesh.size(MeshAxis::data) ? 3 : 2;
  return slabs + copies * grown * id * ids_of_a_sample_token * packs.step_tokens;
}

/// Steps of one rank, and validations.
class PlanDryRun {
 public:
  PlanDryRun(Config const& config, Mesh const& mesh, VocabularySizes const& vocabulary, Registries const& registries)
      : config_(config),
        registries_(registries),
        rank_(config, mesh, vocabulary, registries),
        element_(static_cast<std::int64_t>(size_of(parameter_dtype(dtype_of(config.train.precision))))) {}

  MemoryPlan run(PlannedPacks const& packs) {
    // Frozen parameters need no gradient, but some kernels scratch instead: each layer needs most either frozen or not.
    if (std::ranges::any_of(rank_.parameters.all(), &Parameter::still_frozen)) {
      dry_run_training(packs);
      rank_.unfreeze_all(registries_);
    }
    MemoryUse use{.parameters = rank_.parameters.values().bytes() + rank_.parameters.rounded().bytes() +
                                rank_.teacher_elements() * element_,
                  .gradients = rank_.parameters.gradients().bytes(),
                  .state = state_elements() * element_};
    std::int64_t const in_flight = dry_run_training(packs);
    std::int64_t const evaluated = dry_run_validation(packs);
    PipelineMemory pipeline = scaled_memory(rank_.pipeline.peak_memory(), packs.scale);
    use.activations = activations_of(pipeline);
    if (rank_.gathered) {
      use.parameters += rank_.gathered->value_bytes();
      use.gradients += rank_.gathered->gradient_bytes();
    }
    use.kernels = rank_.calls.kept_bytes();  // once the step has made its calls
    return {{.use = use,
             .packs = pack_bytes(packs, rank_.parallel.mesh, std::max(in_flight, evaluated)),
             .scratch = std::max(scaled(rank_.calls.largest_call(), packs.scale), matrix_scratch())},
            std::move(pipeline),
            rank_.calls.selections()};
  }

 private:
  std::int64_t state_elements() const {
    ParameterSet const& parameters = rank_.parameters;
    Communicator const& replicas = rank_.parallel.replicas;
    BufferShards const parts(parameters, GradientReducer::bucket_for(replicas.size()), replicas.size());
    bool const divided = shards_optimizer(config_.parallel) && replicas.size() > 1;
    auto const own = shards_optimizer(config_.parallel) ? parts.parts_of(replicas.rank())
                                                        : std::vector<IndexRange>{{0, parameters.gradient_size()}};
    std::int64_t elements = 0;
    for (auto const& [rule_range, first] : rule_ranges(parameters)) {
      // A parameter that is updated whole has no padding, and a direction that begins on a cache line.
      IndexRange const range = first->updated_whole() ? elements_of(*first) : rule_range;
      for (IndexRange const& kept : intersection({range}, own)) {
        elements += kept.count() * (std::ssize(first->state) - std::ssize(first->whole_state));
        elements += first->updated_whole() ? rounded_up(kept.count(), line_elements) : 0;
      }
    }
    return elements + MatrixUpdates::elements_for(parameters, rank_.parallel.mesh, divided ? &parts : nullptr);
  }

  std::int64_t matrix_scratch() const {
    std::int64_t bytes = 0;
    for (Parameter const& parameter : rank_.parameters.all()) {
      if (parameter.matrix_cost > 0) {
        RuleDefinition const rule = rule_definition(registries_.kernels, parameter.rule.name, "optimizer.name");
        bytes = std::max(bytes, rule.matrices.scratch_bytes(matrix_of(parameter, rule, parameter_dtype(rank_.dtype))));
      }
    }
    return bytes;
  }

  /// Returns the number of micro-batches in flight.
  std::int64_t dry_run_training(PlannedPacks const& packs) {
    std::int64_t max = 1;
    for (std::vector<Pack> const& list : packs.steps) {
      rank_.pipeline.train(PackList(list), step({0, std::ssize(list)}));
      max = std::max(max, demand_of(rank_.pipeline.place(), std::ssize(list)).in_flight);
    }
    if (packs.training.empty()) {
      return max;
    }
    Demand demand;
    for (std::int64_t const number : packs.micro_batches) {
      demand = std::max(demand, dry_run_demand(rank_.pipeline.place(), number));
    }
    for (Pack const& pack : packs.training) {
      rank_.pipeline.train(RepeatedPack(pack, demand.micro_batches), step({0, demand.micro_batches}));
    }
    return demand.in_flight;
  }

  std::int64_t dry_run_validation(PlannedPacks const& packs) {
    std::int64_t const ahead = 2 * rank_.parallel.pipeline.size();  // see Pipeline
    if (!packs.steps.empty()) {
      rank_.pipeline.evaluate(PackList(packs.validation), step({0, std::ssize(packs.validation)}));
      return ahead;
    }
    for (Pack const& pack : packs.validation) {
      rank_.pipeline.evaluate(RepeatedPack(pack, ahead), step({0, ahead}));
    }
    return ahead;
  }

  /// The arenas' bytes. In a pipeline messages decide which arena is free first, and so which micro-batches it meets,
  /// and whether another one is needed: runs used up to 2 % more than their dry runs. With a bit more than that the
  /// plan is no less than what is used, but arenas need no more than the largest of their kind.
  std::int64_t activations_of(PipelineMemory const& memory) const {
    auto const bytes = static_cast<std::int64_t>(memory.total());
    if (rank_.parallel.pipeline.size() == 1) {
      return bytes;
    }
    std::int64_t equal = static_cast<std::int64_t>(memory.temporary);
    for (std::vector<std::size_t> const* const arenas : {&memory.activations, &memory.messages}) {
      std::size_t const largest = arenas->empty() ? 0 : std::ranges::max(*arenas);
      equal += std::ssize(*arenas) * static_cast<std::int64_t>(largest);
    }
    constexpr double by_chance = 1.03;
    return std::min(equal, scaled(bytes, by_chance));
  }

  static PipelineMemory scaled_memory(PipelineMemory memory, double scale) {
    for (std::vector<std::size_t>* const arenas : {&memory.activations, &memory.messages}) {
      for (std::size_t& bytes : *arenas) {
        bytes = static_cast<std::size_t>(static_cast<double>(bytes) * scale);
      }
    }
    memory.temporary = static_cast<std::size_t>(static_cast<double>(memory.temporary) * scale);
    return memory;
  }

  PipelineStep step(IndexRange const& micro_batches) {
    return {.micro_batches = micro_batches,
            .loss = {.label_smoothing = config_.train.label_smoothing,
                     .z_loss = config_.train.z_loss,
                     .r_drop = config_.train.r_drop},
            .seed = config_.train.seed,
            .step = 0,
            .row_split = row_split_of(rank_.parallel),
            .access = rank_.access()};
  }

  Config const& config_;
  Registries const& registries_;
  DryRunRank rank_;
  std::int64_t element_;
};

}  // namespace

std::int64_t MemoryNeed::margin() const {
  return std::max((use.total() + packs + scratch) / margin_share, min_margin);
}

void MemorySum::add(MemoryNeed const& more) {
  ++ranks;
  use = combined(use, more.use, std::plus());
  packs += more.packs;
  scratch += more.scratch;
  margin += more.margin();
}

BatchShare BatchSamples::share_of(int batch, MicroBatchCut const& cut) const {
  auto const source = this->cut(batch, cut);
  BatchShare share{source->count()};
  for (std::int64_t index = 0; index < share.micro_batches; ++index) {
    Pack const pack = source->micro_batch(index);
    share.tokens += pack.source_rows.tokens + pack.target_rows.tokens;
  }
  return share;
}

PlannedPacks BatchSamples::of_batches(Config const& config, Mesh const& mesh) const {
  MicroBatchCut const cut = micro_batch_cut(config.train, idle_parallel_state(mesh, config.parallel));
  PlannedPacks packs;
  std::set<std::int64_t> numbers;
  LargestPacks largest;
  std::vector<Pack> all;
  for (int batch = 0; batch < batches(); ++batch) {
    auto const micro_batches = this->cut(batch, cut);
    IndexRange mine{0, micro_batches->count()};
    if (config.train.deterministic) {
      mine = share(mine.count(), mesh.coordinate(MeshAxis::data), mesh.size(MeshAxis::data));
    }
    numbers.insert(config.train.deterministic ? 1 : mine.count());
    for (std::int64_t index = mine.begin; index < mine.end; ++index) {
      all.push_back(micro_batches->micro_batch(index));
      std::int64_t const source = all.back().source_rows.tokens;
      std::int64_t const target = all.back().target_rows.tokens;
      largest.add({source, target, source + target}, std::ssize(all) - 1);
    }
  }
  for (std::int64_t const place : largest.places()) {
    packs.training.push_back(all[static_cast<std::size_t>(place)]);
  }
  packs.micro_batches.assign(numbers.begin(), numbers.end());
  return packs;
}

MemoryPlan plan_memory(Config const& config, Mesh const& mesh, VocabularySizes const& vocabulary,
                       Registries const& registries, PlannedPacks const& packs) {
  return PlanDryRun(config, mesh, vocabulary, registries).run(packs);
}

MemoryUse measure_memory(TrainingEngine& engine) {
  std::int64_t parameters = engine.parameters().values().bytes() + engine.parameters().rounded().bytes();
  for (Teacher& teacher : engine.teachers()) {
    parameters += teacher.parameters().values().bytes();
  }
  std::int64_t gradients = engine.parameters().gradients().bytes();
  if (GatheredParameters* const gathered = engine.gathered()) {
    parameters += gathered->value_bytes();
    gradients += gathered->gradient_bytes();
  }
  return {.parameters = parameters,
          .gradients = gradients,
          .state = engine.optimizer().state_bytes(),
          .kernels = static_cast<std::int64_t>(engine.kernels().kept_bytes()),
          .activations = static_cast<std::int64_t>(engine.pipeline().peak_memory().total())};
}

}  // namespace heddle
