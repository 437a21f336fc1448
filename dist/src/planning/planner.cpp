#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/dist/planning/planner.hpp>

namespace heddle {

namespace {

/// A layout whose estimate is above this share of a node's memory is not planned exactly.
constexpr double estimate_error = 1.25;
/// On more ranks than these a stage's work is composed of its layers', so that many layouts share dry runs.
constexpr int max_dry_run_ranks = 16;

/// The layers of a stage by content: stages with equal signatures do equal work.
std::string signature(ModelDescription const& model, std::vector<IndexRange> const& parts) {
  bool const alike = std::ranges::all_of(model.stacks, [&](StackDescription const& stack) {
    return (model.keys.*stack_kind(stack.name).config).overrides.empty();
  });
  std::string text;
  for (IndexRange const& part : parts) {
    text += fmt::format("|{}", part.end == model.layers() ? "loss" : "");
    for (std::size_t stack = 0; stack < model.stacks.size(); ++stack) {
      IndexRange const range = model.range_in(stack, part);
      text += fmt::format(" {}{}{}", model.has_entry(stack, part) ? "<" : "", alike ? range.count() : 0,
                          model.has_exit(stack, part) ? ">" : "");
      text += alike ? "" : fmt::format("{}-{}", range.begin, range.end);
    }
  }
  return text;
}

/// Tokens of both sides on this rank, the source's as the encoder has them.
std::int64_t tokens_of(Pack const& pack) {
  return (pack.encoder ? pack.encoder->pack : pack).source_rows.tokens + pack.target_rows.tokens;
}

/// The bytes of the node whose ranks need the most.
std::int64_t max_node_bytes(std::vector<MemoryNeed> const& ranks, Machines const& machines) {
  std::int64_t max_bytes = 0;
  for (std::size_t first = 0; first < ranks.size(); first += static_cast<std::size_t>(machines.ranks_per_node)) {
    std::size_t const end = std::min(first + static_cast<std::size_t>(machines.ranks_per_node), ranks.size());
    std::int64_t bytes = 0;
    for (std::size_t rank = first; rank < end; ++rank) {
      bytes += ranks[rank].total();
    }
    max_bytes = std::max(max_bytes, bytes);
  }
  return max_bytes;
}

std::size_t stage_of(int rank, LayoutChoice const& layout) {
  return static_cast<std::size_t>(layout.shape.coordinate(MeshAxis::pipeline, rank));
}

void reject_too_large(LayoutPlan const& plan, Machines const& machines, std::vector<Rejection>& rejections) {
  reject(rejections, memory_limit,
         fmt::format("{}: {} of {}", describe(plan.layout), readable_size(plan.node_bytes),
                     readable_size(machines.node_memory)));
}

/// Sorts layouts in the order of their times: those that are as fast as the first one within the error of its estimate
/// come first, by simplicity.
void put_simplest_first(std::vector<LayoutPlan>::iterator first, std::vector<LayoutPlan>::iterator end) {
  if (first == end) {
    return;
  }
  double const limit = first->step_seconds * (1 + first->error());
  auto const slower = std::find_if(first, end, [&](LayoutPlan const& plan) { return plan.step_seconds > limit; });
  std::stable_sort(first, slower, [](LayoutPlan const& one, LayoutPlan const& other) {
    return complexity(one.layout) < complexity(other.layout);
  });
}

/// The data ranks of a dry run: they matter only where they divide parameters.
int dry_run_data(LayoutChoice const& layout) {
  return layout.shard_parameters || layout.expert > 1 ? layout.size(MeshAxis::data) : 1;
}

/// The part of a work's key that does not depend on its layers.
std::string key_of(LayoutChoice const& layout) {
  MeshShape const inner = layout.shape.with(MeshAxis::pipeline, 1).with(MeshAxis::data, 1);
  bool const ulysses = layout.context_mode == ContextMode::ulysses && inner != MeshShape(1, 1, 1, inner.ranks());
  return fmt::format("{} {} {} {} {} {} {}", inner.to_string(), layout.sequence_parallel, layout.zero_bubble,
                     layout.shard_parameters ? layout.size(MeshAxis::data) : 0,
                     fmt::format("{}/{}/{}", layout.expert, layout.shard_ranks, dry_run_data(layout)), ulysses,
                     layout.micro_batch_tokens);
}

/// The value of a key, which make() computes once.
template <class Map, class Make>
typename Map::mapped_type const& cached(Map& map, typename Map::key_type const& key, Make const& make) {
  auto const known = map.find(key);
  return known != map.end() ? known->second : map.emplace(key, make()).first->second;
}

}  // namespace

double LayoutPlan::error() const {
  constexpr double usual = 0.05;
  constexpr double of_assumed = 0.1;
  constexpr double max_error = 0.25;
  return std::min(max_error, usual + spread + of_assumed * assumed_share);
}

Planner::Planner(PlanRequest const& request)
    : request_(request), model_(describe_model(request.config.model, request.registries.layers)) {}

Planner::TypicalPack const& Planner::typical(LayoutChoice const& layout) {
  std::int64_t const max_tokens = layout.micro_batch_tokens;
  MeshShape const inner = layout.shape.with(MeshAxis::pipeline, 1).with(MeshAxis::data, 1);
  int const tensor = inner.size(MeshAxis::tensor);
  return cached(packs_, {max_tokens, inner.with(MeshAxis::tensor, 1)}, [&] {
    constexpr std::int64_t looked_at = 8;
    auto const whole = request_.samples.cut(0, {.max_tokens = max_tokens, .passes = request_.config.train.passes()});
    std::int64_t const count = std::min(whole->count(), looked_at);
    std::vector<std::int64_t> tokens;
    double mean = 0;
    for (std::int64_t index = 0; index < count; ++index) {
      tokens.push_back(tokens_of(whole->micro_batch(index)));
      mean += static_cast<double>(tokens.back()) / static_cast<double>(count);
    }
    auto const nearest = std::ranges::min_element(
        tokens, {}, [&](std::int64_t one) { return std::abs(static_cast<double>(one) - mean); });
    // The last rank is the one of the dry run; the others wait for the one with the most tokens.
    TypicalPack typical;
    typical.tokens = *nearest;
    std::int64_t max = 0;
    for (int rank = 0; rank < inner.ranks(); rank += tensor) {
      auto const split = request_.samples.cut(0, {.max_tokens = max_tokens,
                                                  .context = context_split(Mesh(inner, rank, inner.ranks())),
                                                  .passes = request_.config.train.passes()});
      typical.pack = split->micro_batch(nearest - tokens.begin());
      max = std::max(max, tokens_of(typical.pack));
    }
    typical.max_share = static_cast<double>(max) / static_cast<double>(tokens_of(typical.pack));
    return typical;
  });
}

Planner::Load const& Planner::load(LayoutChoice const& layout) {
  int const data = layout.size(MeshAxis::data);
  bool const equal = layout.size(MeshAxis::pipeline) > 1;
  return cached(loads_, {layout.micro_batch_tokens, data, equal}, [&] {
    constexpr int batches_looked_at = 4;
    constexpr int ranks_looked_at = 16;
    int const batches = std::min(request_.samples.batches(), batches_looked_at);
    int const ranks = std::min(data, ranks_looked_at);
    double tokens = 0;
    double count = 0;
    for (int batch = 0; batch < batches; ++batch) {
      // All ranks wait for the one with the most tokens.
      BatchShare max;
      for (int rank = 0; rank < ranks; ++rank) {
        BatchShare const share = request_.samples.share_of(batch, {.max_tokens = layout.micro_batch_tokens,
                                                                   .data = {rank * data / ranks, data},
                                                                   .equal = equal,
                                                                   .passes = request_.config.train.passes()});
        max.tokens = std::max(max.tokens, share.tokens);
        max.micro_batches = std::max(max.micro_batches, share.micro_batches);
      }
      tokens += static_cast<double>(max.tokens) / batches;
      count += static_cast<double>(max.micro_batches) / batches;
    }
    return Load{std::max<std::int64_t>(1, static_cast<std::int64_t>(count + 0.5)), tokens};
  });
}

RankWork const& Planner::work(LayoutChoice const& layout, int stage) {
  PipelinePlan const& plan = pipeline_plan(layout);
  auto const& parts = plan.parts[static_cast<std::size_t>(stage)];
  return cached(works_, fmt::format("{} {} {}", key_of(layout), plan.stages(), signature(model_, parts)), [&] {
    if (layout.ranks() > max_dry_run_ranks) {
      return composed(layout, parts);
    }
    LayoutChoice alone = layout;  // only the number of replicas matters
    alone.shape = alone.shape.with(MeshAxis::data, dry_run_data(layout));
    return dry_run_stage(with_layout(request_.config, alone), alone, stage, request_.vocabulary, request_.registries,
                         typical(layout).pack);
  });
}

RankWork Planner::composed(LayoutChoice const& layout, std::vector<IndexRange> const& parts) {
  std::vector<std::vector<LayerGroup>> groups;
  for (IndexRange const& part : parts) {
    std::vector<LayerGroup>& alike = groups.emplace_back();
    for (std::int64_t layer = part.begin; layer < part.end; ++layer) {
      RankWork const& work = layer_work(layout, layer);
      if (alike.empty() || alike.back().layer != &work) {
        alike.push_back({&work, 0});
      }
      ++alike.back().count;
    }
  }
  return sum_of_layers(groups, layout.size(MeshAxis::pipeline));
}

RankWork const& Planner::layer_work(LayoutChoice const& layout, std::int64_t layer) {
  return cached(layer_works_, key_of(layout) + signature(model_, {{layer, layer + 1}}), [&] {
    // A pipeline with a stage for each layer.
    LayoutChoice alone = layout;
    alone.shape = layout.shape.with(MeshAxis::pipeline, static_cast<int>(model_.layers()))
                      .with(MeshAxis::data, dry_run_data(layout));
    alone.pipeline_schedule = PipelineSchedule::one_forward_one_backward;
    Config config = with_layout(request_.config, alone);
    config.parallel.stage_layers.assign(static_cast<std::size_t>(model_.layers()), 1);
    return dry_run_stage(config, alone, static_cast<int>(layer), request_.vocabulary, request_.registries,
                         typical(layout).pack);
  });
}

bool Planner::has_times(LayoutChoice const& layout, bool exactly) {
  auto const known = [&](KernelCalls const& calls) { return request_.times.knows(calls.kind, calls.cost, exactly); };
  auto const all_known = [&](PassWork const& pass) { return std::ranges::all_of(pass.kernels, known); };
  for (int stage = 0; stage < layout.size(MeshAxis::pipeline); ++stage) {
    RankWork const& work = this->work(layout, stage);
    for (auto const* const passes : {&work.forward, &work.backward, &work.weights}) {
      if (!std::ranges::all_of(*passes, all_known)) {
        return false;
      }
    }
  }
  return true;
}

PipelinePlan const& Planner::pipeline_plan(LayoutChoice const& layout) {
  return cached(pipeline_plans_, {layout.size(MeshAxis::pipeline), layout.pipeline_schedule}, [&] {
    return plan_pipeline(model_, with_layout(request_.config, layout).parallel, request_.vocabulary.target);
  });
}

std::vector<MemoryNeed> Planner::memory_of_ranks(LayoutChoice const& layout, bool first_batches) const {
  Config const config = with_layout(request_.config, layout);
  std::map<int, MemoryNeed> known;
  std::vector<MemoryNeed> ranks;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    int const planned =
        layout.ranks() <= max_ranks_planned ? rank : dry_run_rank(layout, static_cast<int>(stage_of(rank, layout)));
    ranks.push_back(cached(known, planned, [&]() -> MemoryNeed {
      Mesh const mesh(layout.shape, planned, layout.ranks());
      PlannedPacks const packs =
          first_batches ? request_.samples.of_batches(config, mesh) : request_.samples.largest(config, mesh);
      return plan_memory(config, mesh, request_.vocabulary, request_.registries, packs);
    }));
  }
  return ranks;
}

std::vector<MemoryNeed> Planner::plan_exactly(LayoutPlan& plan) const {
  std::vector<MemoryNeed> ranks = memory_of_ranks(plan.layout, false);
  plan.stages.assign(static_cast<std::size_t>(plan.layout.size(MeshAxis::pipeline)), {});
  for (int rank = 0; rank < plan.layout.ranks(); ++rank) {
    MemoryUse& stage = plan.stages[stage_of(rank, plan.layout)];
    stage = combined(stage, ranks[static_cast<std::size_t>(rank)].use,
                     [](std::int64_t one, std::int64_t other) { return std::max(one, other); });
  }
  plan.node_bytes = max_node_bytes(ranks, request_.machines);
  return ranks;
}

LayoutPlan Planner::estimate(LayoutChoice const& layout) {
  LayoutPlan plan = times_of(layout);
  std::vector<MemoryNeed> ranks;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    ranks.push_back({.use = plan.stages[stage_of(rank, layout)]});
  }
  plan.node_bytes = max_node_bytes(ranks, request_.machines);
  return plan;
}

std::vector<LayoutPlan> Planner::estimate_all(std::vector<LayoutChoice> const& layouts,
                                              std::vector<Rejection>& rejections) {
  auto const limit = static_cast<double>(request_.machines.node_memory);
  std::vector<LayoutPlan> plans;
  for (LayoutChoice const& layout : layouts) {
    try {
      LayoutPlan found = estimate(layout);
      if (static_cast<double>(found.node_bytes) > estimate_error * limit) {
        reject_too_large(found, request_.machines, rejections);
      } else {
        plans.push_back(std::move(found));
      }
    } catch (ConfigError const&) {
      throw;
    } catch (Error const& error) {  // an arena is full
      reject(rejections, memory_limit, fmt::format("{}: {}", describe(layout), error.what()));
    }
  }
  std::ranges::stable_sort(plans, {}, &LayoutPlan::step_seconds);
  return plans;
}

std::string undivided_reason(Config const& config, KernelRegistries const& kernels) {
  std::vector<std::string> rules{config.optimizer.name};
  for (ParameterGroup const& group : config.optimizer.groups) {
    if (!group.rule.frozen && !group.rule.name.empty()) {
      rules.push_back(group.rule.name);
    }
  }
  for (std::string const& rule : rules) {
    if (rule_definition(kernels, rule, "optimizer.name").whole()) {
      return fmt::format("the rule {} updates whole parameters, which no rank would have", rule);
    }
  }
  TrainConfig const& train = config.train;
  bool const translates = train.validate_every > 0 && (train.validate_bleu || !train.validate_metrics.empty());
  return translates ? "validation translates (train.validate_bleu, validate_metrics), and no rank would have the model"
                    : "";
}

Plan Planner::best_layouts(std::size_t count) {
  LayoutCandidates candidates =
      list_layouts(request_.config, model_, request_.machines, request_.longest_sequence, request_.batch_tokens,
                   undivided_reason(request_.config, request_.registries.kernels));
  Plan plan{.rejections = std::move(candidates.rejections)};
  std::vector<LayoutPlan> plans = estimate_all(candidates.layouts, plan.rejections);
  auto const fits = [&](LayoutPlan& found, bool exactly) {
    if (exactly) {
      plan_exactly(found);
    }
    bool const enough = found.node_bytes <= request_.machines.node_memory;
    if (!enough) {
      reject_too_large(found, request_.machines, plan.rejections);
    }
    return enough;
  };
  auto place = plans.begin();
  while (place != plans.end() && !fits(*place, true)) {
    ++place;
  }
  std::optional<LayoutChoice> const fastest = place == plans.end() ? std::nullopt : std::optional(place->layout);
  put_simplest_first(place, plans.end());
  for (; place != plans.end(); ++place) {
    bool const listed = plan.best.size() < count;
    if (!fits(*place, listed && place->layout != fastest)) {  // the fastest is planned exactly already
      continue;
    }
    ++plan.fitting;
    if (listed) {
      plan.best.push_back(std::move(*place));
    }
  }
  return plan;
}

std::vector<NodesPlan> Planner::best_by_nodes() {
  Machines const all = request_.machines;
  std::vector<NodesPlan> plans;
  for (int nodes = 1;; nodes = std::min(2 * nodes, all.nodes)) {
    request_.machines.nodes = nodes;
    Plan found = best_layouts(1);
    plans.push_back({.nodes = nodes});
    if (!found.best.empty()) {
      plans.back().best = std::move(found.best.front());
    }
    if (nodes == all.nodes) {
      break;
    }
  }
  request_.machines = all;
  return plans;
}

}  // namespace heddle
