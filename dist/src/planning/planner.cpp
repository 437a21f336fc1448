#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/model/pipeline_plan.hpp>

#include "planner_state.hpp"

namespace heddle {

namespace {

/// More micro-batches for each virtual stage than this need no more memory.
constexpr std::int64_t memory_micro_batches = 3;
/// Of the exact memory of a node, the least that an estimate comes to: a layout above that is not planned exactly.
constexpr double estimate_error = 1.25;
/// On more ranks than these a stage's work is composed of its layers', so that many layouts share rehearsals.
constexpr int most_ranks_rehearsed = 16;

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

std::int64_t tokens_of(Pack const& pack) {
  return pack.source_rows.tokens + pack.target_rows.tokens;
}

/// The bytes of the node whose ranks take most.
std::int64_t most_of_a_node(std::vector<MemoryUse> const& stages, LayoutChoice const& layout,
                            Machines const& machines) {
  int const ranks_of_stage = layout.ranks() / layout.size(MeshAxis::pipeline);
  std::int64_t most = 0;
  for (int node = 0; node < machines.nodes; ++node) {
    std::int64_t bytes = 0;
    for (int rank = node * machines.ranks_per_node; rank < (node + 1) * machines.ranks_per_node; ++rank) {
      bytes += stages[static_cast<std::size_t>(rank / ranks_of_stage)].total();
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace

Planner::Planner(PlanRequest const& request) : state_(std::make_unique<State>(request)) {}

Planner::~Planner() = default;

Planner::State::State(PlanRequest const& from)
    : request(from), model(describe_model(from.config.model, from.registries.layers)) {}

TypicalPack const& Planner::State::typical(std::int64_t most_tokens, int context) {
  auto [place, is_new] = packs.try_emplace({most_tokens, context});
  if (is_new) {
    constexpr std::int64_t looked_at = 8;
    auto const whole = request.samples.cut(0, {.most_tokens = most_tokens});
    std::int64_t const count = std::min(whole->count(), looked_at);
    std::vector<std::int64_t> tokens;
    double mean = 0;
    for (std::int64_t index = 0; index < count; ++index) {
      tokens.push_back(tokens_of(whole->micro_batch(index)));
      mean += static_cast<double>(tokens.back()) / static_cast<double>(count);
    }
    auto const nearest = std::ranges::min_element(
        tokens, {}, [&](std::int64_t one) { return std::abs(static_cast<double>(one) - mean); });
    // The last context rank is the one that is rehearsed; the one with most tokens is waited for.
    std::int64_t most = 0;
    for (int rank = 0; rank < context; ++rank) {
      auto const split = request.samples.cut(0, {.most_tokens = most_tokens, .context = {rank, context}});
      place->second.pack = split->micro_batch(nearest - tokens.begin());
      most = std::max(most, tokens_of(place->second.pack));
    }
    place->second.tokens = *nearest;
    place->second.most_share = static_cast<double>(most) / static_cast<double>(tokens_of(place->second.pack));
  }
  return place->second;
}

Load const& Planner::State::load(LayoutChoice const& layout) {
  int const data = layout.size(MeshAxis::data);
  bool const equal = layout.size(MeshAxis::pipeline) > 1;
  auto [place, is_new] = loads.try_emplace({layout.micro_batch_tokens, data, equal});
  if (is_new) {
    double tokens = 0;
    double count = 0;
    constexpr int looked_at = 4;
    int const batches = std::min(request.samples.batches(), looked_at);
    for (int batch = 0; batch < batches; ++batch) {
      auto const cut =
          request.samples.cut(batch, {.most_tokens = layout.micro_batch_tokens, .data = {0, data}, .equal = equal});
      tokens += static_cast<double>(cut->tokens().all) / data / batches;
      count += static_cast<double>(cut->count()) / batches;
    }
    place->second = {std::max<std::int64_t>(1, static_cast<std::int64_t>(count + 0.5)), tokens};
  }
  return place->second;
}

namespace {

/// The part of a work's key that does not depend on its layers.
std::string key_of(LayoutChoice const& layout) {
  int const context = layout.size(MeshAxis::context);
  return fmt::format("{} {} {} {} {}", layout.size(MeshAxis::tensor), context, layout.sequence_parallel,
                     context > 1 ? static_cast<int>(layout.context_mode) : 0, layout.micro_batch_tokens);
}

}  // namespace

RankWork const& Planner::work(LayoutChoice const& layout, int stage) {
  State& state = *state_;
  PipelinePlan const& plan = state.pipeline_plan(layout);
  auto const& parts = plan.parts[static_cast<std::size_t>(stage)];
  std::string const key = fmt::format("{} {} {}", key_of(layout), plan.stages(), signature(state.model, parts));
  auto const known = state.works.find(key);
  if (known != state.works.end()) {
    return known->second;
  }
  if (layout.ranks() > most_ranks_rehearsed) {
    return state.works.emplace(key, state.composed(layout, parts)).first->second;
  }
  PlanRequest const& request = state.request;
  LayoutChoice alone = layout;  // of the replicas, nothing but their number matters
  alone.sizes[static_cast<std::size_t>(MeshAxis::data)] = 1;
  return state.works
      .emplace(key,
               rehearse_stage(with_layout(request.config, alone), alone, stage, request.vocabulary, request.registries,
                              state.typical(layout.micro_batch_tokens, layout.size(MeshAxis::context)).pack))
      .first->second;
}

RankWork Planner::State::composed(LayoutChoice const& layout, std::vector<IndexRange> const& parts) {
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

RankWork const& Planner::State::layer_work(LayoutChoice const& layout, std::int64_t layer) {
  std::string const key = key_of(layout) + signature(model, {{layer, layer + 1}});
  auto const known = layer_works.find(key);
  if (known != layer_works.end()) {
    return known->second;
  }
  // A pipeline with a stage for each layer.
  LayoutChoice alone = layout;
  alone.sizes = {static_cast<int>(model.layers()), 1, layout.size(MeshAxis::context), layout.size(MeshAxis::tensor)};
  alone.pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  Config config = with_layout(request.config, alone);
  config.parallel.stage_layers.assign(static_cast<std::size_t>(model.layers()), 1);
  return layer_works
      .emplace(key, rehearse_stage(config, alone, static_cast<int>(layer), request.vocabulary, request.registries,
                                   typical(layout.micro_batch_tokens, layout.size(MeshAxis::context)).pack))
      .first->second;
}

Pack const& Planner::typical_pack(LayoutChoice const& layout) {
  return state_->typical(layout.micro_batch_tokens, layout.size(MeshAxis::context)).pack;
}

bool Planner::knows_times(LayoutChoice const& layout, bool exactly) {
  KernelTimes const& times = state_->request.times;
  auto const known = [&](KernelCalls const& calls) { return times.knows(calls.kind, calls.cost, exactly); };
  for (int stage = 0; stage < layout.size(MeshAxis::pipeline); ++stage) {
    RankWork const& work = this->work(layout, stage);
    for (auto const* const passes : {&work.forward, &work.backward}) {
      for (PassWork const& pass : *passes) {
        if (!std::ranges::all_of(pass.kernels, known)) {
          return false;
        }
      }
    }
  }
  return true;
}

PipelinePlan const& Planner::State::pipeline_plan(LayoutChoice const& layout) {
  auto const key = std::make_pair(layout.size(MeshAxis::pipeline), layout.pipeline_schedule);
  auto const known = pipeline_plans.find(key);
  return known != pipeline_plans.end()
             ? known->second
             : pipeline_plans
                   .emplace(key, plan_pipeline(model, with_layout(request.config, layout).parallel,
                                               request.vocabulary.target))
                   .first->second;
}

void Planner::plan_exactly(LayoutPlan& plan) const {
  PlanRequest const& request = state_->request;
  LayoutChoice const& layout = plan.layout;
  Config config = with_layout(request.config, layout);
  int const stages = layout.size(MeshAxis::pipeline);
  std::int64_t const data = layout.size(MeshAxis::data);
  config.train.batch_tokens =
      std::min(request.batch_tokens,
               data * layout.micro_batch_tokens * std::max<std::int64_t>(8, memory_micro_batches * stages));
  config.train.micro_batch_tokens = std::min(layout.micro_batch_tokens, config.train.batch_tokens);
  plan.stages.clear();
  for (int stage = 0; stage < stages; ++stage) {
    Mesh const mesh(layout.sizes, rehearsed_rank(layout, stage), layout.ranks());
    plan.stages.push_back(plan_memory(config, mesh, request.vocabulary, request.registries).use);
  }
  plan.node_bytes = most_of_a_node(plan.stages, layout, request.machines);
}

std::vector<MemoryUse> Planner::expected_memory(LayoutChoice const& layout) const {
  PlanRequest const& request = state_->request;
  Config const config = with_layout(request.config, layout);
  std::vector<MemoryUse> stages;
  for (int stage = 0; stage < layout.size(MeshAxis::pipeline); ++stage) {
    Mesh const mesh(layout.sizes, rehearsed_rank(layout, stage), layout.ranks());
    stages.push_back(plan_memory(config, mesh, request.vocabulary, request.registries, &request.samples).use);
  }
  return stages;
}

LayoutPlan Planner::estimate(LayoutChoice const& layout) {
  LayoutPlan plan = Estimate(*this, layout).run();
  plan.node_bytes = most_of_a_node(plan.stages, layout, state_->request.machines);
  return plan;
}

Plan Planner::best_layouts(std::size_t count) {
  PlanRequest const& request = state_->request;
  LayoutCandidates candidates =
      list_layouts(request.config, state_->model, request.machines, request.longest_sequence, request.batch_tokens);
  Plan plan{.rejections = std::move(candidates.rejections)};
  auto const too_large = [&](LayoutPlan const& found) {
    reject(plan.rejections, "the memory of a node",
           fmt::format("{}: {} of {}", describe(found.layout), readable_size(found.node_bytes),
                       readable_size(request.machines.node_memory)));
  };
  auto const limit = static_cast<double>(request.machines.node_memory);
  std::vector<LayoutPlan> plans;
  for (LayoutChoice const& layout : candidates.layouts) {
    try {
      LayoutPlan found = estimate(layout);
      if (static_cast<double>(found.node_bytes) > estimate_error * limit) {
        too_large(found);
      } else {
        plans.push_back(std::move(found));
      }
    } catch (ConfigError const&) {
      throw;
    } catch (Error const& error) {  // an arena is full
      reject(plan.rejections, "the memory of a node", fmt::format("{}: {}", describe(layout), error.what()));
    }
  }
  std::ranges::stable_sort(plans, {}, &LayoutPlan::step_seconds);
  for (LayoutPlan& found : plans) {
    if (plan.best.size() < count) {
      plan_exactly(found);
    }
    if (static_cast<double>(found.node_bytes) > limit) {
      too_large(found);
      continue;
    }
    ++plan.fitting;
    if (plan.best.size() < count) {
      plan.best.push_back(std::move(found));
    }
  }
  return plan;
}

}  // namespace heddle
