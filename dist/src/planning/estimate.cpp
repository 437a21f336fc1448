#include <algorithm>
#include <heddle/dist/planning/pipeline_simulation.hpp>
#include <heddle/dist/planning/planner.hpp>
#include <map>
#include <string>

namespace heddle {

namespace {

using enum TrafficGroup::Index;

double as_double(std::int64_t number) {
  return static_cast<double>(number);
}

/// Bytes of a rank's optimizer buckets, by one collective each.
Traffic in_buckets(std::int64_t elements, std::int64_t element_bytes, std::int64_t bucket_elements) {
  return {(elements + bucket_elements - 1) / bucket_elements, elements * element_bytes};
}

std::vector<GroupTraffic> no_traffic(std::array<GroupTopology, traffic_groups> const& places) {
  std::vector<GroupTraffic> groups;
  for (std::size_t group = 0; group < traffic_groups; ++group) {
    groups.push_back({std::string(traffic_group_name(group)), places[group]});
  }
  return groups;
}

/// Keeps each group's traffic of the stage that waits longest.
void take_longest(std::vector<GroupTraffic>& into, std::vector<GroupTraffic> const& from) {
  for (std::size_t group = 0; group < into.size(); ++group) {
    if (from[group].seconds > into[group].seconds) {
      into[group] = from[group];
    }
  }
}

}  // namespace

class Planner::Estimate {
 public:
  Estimate(Planner& planner, LayoutChoice const& layout)
      : planner_(planner),
        layout_(layout),
        load_(planner.load(layout)),
        full_tokens_(as_double(planner.typical(layout).tokens)),
        scale_(planner.typical(layout).max_share * load_.tokens / as_double(load_.micro_batches) / full_tokens_),
        places_(group_places(layout, planner.request_.machines)) {}

  LayoutPlan run() {
    LayoutPlan plan{.layout = layout_, .micro_batches = load_.micro_batches};
    plan.groups = no_traffic(places_);
    std::vector<StageTimes> times;
    std::vector<double> first_extra, reductions;
    std::map<RankWork const*, Stage> known;
    double update_seconds = 0;
    KernelSeconds busiest;
    for (int index = 0; index < layout_.size(MeshAxis::pipeline); ++index) {
      RankWork const& work = planner_.work(layout_, index);
      plan.stages.push_back(memory(work, index));
      auto [place, is_new] = known.try_emplace(&work);
      if (is_new) {
        place->second = stage_of(work);
        take_longest(plan.groups, place->second.groups);
      }
      Stage const& here = place->second;
      times.push_back(here.passes);
      first_extra.push_back(here.first_extra);
      reductions.push_back(here.reduction);
      update_seconds = std::max(update_seconds, here.update);
      busiest = here.kernels.usual > busiest.usual ? here.kernels : busiest;
    }
    plan.kernel_seconds = busiest.usual;
    if (busiest.usual > 0) {
      plan.assumed_share = busiest.assumed / busiest.usual;
      plan.spread = busiest.spread / busiest.usual;
    }
    SimulatedPipeline const simulated = passes(times, first_extra);
    double last = 0;
    for (std::size_t index = 0; index < times.size(); ++index) {
      last = std::max(last, simulated.ends[index] + reductions[index]);
    }
    plan.bubble = simulated.bubble;
    plan.reading_seconds = planner_.request_.reading_seconds_per_token * load_.tokens;
    plan.step_seconds = plan.reading_seconds + last + update_seconds;
    std::erase_if(plan.groups, [](GroupTraffic const& group) { return group.place.ranks == 1 || group.seconds == 0; });
    return plan;
  }

 private:
  /// A stage's times; equal stages have the same.
  struct Stage {
    StageTimes passes;
    double first_extra = 0;
    double reduction = 0;
    double update = 0;
    KernelSeconds kernels;
    std::vector<GroupTraffic> groups;
  };

  Stage stage_of(RankWork const& work) const {
    Stage stage;
    stage.groups = no_traffic(places_);
    stage.passes = stage_times(work, stage.groups, stage.kernels);
    // On a busy machine the calls after an update may have been measured to be the faster ones.
    stage.first_extra = std::max(0.0, stage.kernels.first_extra);
    // Gradients become final in the last pass that adds to them.
    auto const& last = stage.passes.weights.empty() ? stage.passes.backward : stage.passes.weights;
    stage.reduction = reduction(work, last.front(), stage.groups);
    stage.update = update(work, stage.groups, stage.kernels);
    return stage;
  }

  /// The end of each stage's passes, and the bubble.
  SimulatedPipeline passes(std::vector<StageTimes> const& times, std::vector<double> const& first_extra) const {
    std::int64_t const count = load_.micro_batches;
    auto const stages = static_cast<std::int64_t>(times.size());
    if (planner_.request_.config.train.deterministic) {  // one micro-batch at a time passes the pipeline
      SimulatedPipeline result = simulate_pipeline(times, 1, first_extra);
      for (double& end : result.ends) {
        end *= as_double(count);
      }
      return result;
    }
    // Beyond this number every further group of micro-batches takes the same time.
    std::int64_t const simulated = 6 * stages;
    if (count <= simulated + stages) {
      return simulate_pipeline(times, count, first_extra);
    }
    SimulatedPipeline const shorter = simulate_pipeline(times, simulated, first_extra);
    SimulatedPipeline result = simulate_pipeline(times, simulated + stages, first_extra);
    double const more = as_double(count - simulated - stages) / as_double(stages);
    double worked = 0;
    result.seconds = 0;
    for (std::size_t stage = 0; stage < times.size(); ++stage) {
      result.ends[stage] += more * (result.ends[stage] - shorter.ends[stage]);
      result.busy[stage] += more * (result.busy[stage] - shorter.busy[stage]);
      result.seconds = std::max(result.seconds, result.ends[stage]);
      worked += result.busy[stage];
    }
    result.bubble = 1 - worked / (result.seconds * as_double(stages));
    return result;
  }

  double add(std::vector<GroupTraffic>& groups, std::size_t group, CollectiveOp collective, Traffic const& traffic,
             SumKind sums = SumKind::float32) const {
    double const seconds = heddle::seconds_of(planner_.request_.network, places_[group], collective, traffic, sums);
    if (places_[group].ranks > 1) {
      groups[group].bytes += traffic.bytes;
      groups[group].seconds += seconds;
    }
    return seconds;
  }

  /// Adds the traffic of `times` such passes to the groups, and returns the seconds of one.
  /// Replicas exchange parameters and gradients in a pass, which do not depend on the number of tokens.
  double messages(TrafficByGroup const& traffic, double times, std::vector<GroupTraffic>& groups) const {
    SumKind const sums =
        planner_.request_.config.train.precision == Precision::bfloat16 ? SumKind::bfloat16 : SumKind::float32;
    double seconds = 0;
    for (std::size_t group = 0; group < traffic_groups; ++group) {
      for (std::size_t collective = 0; collective < collectives; ++collective) {
        Traffic const one = traffic[group][collective];
        double const scale = group == replicas ? 1 : scale_;
        Traffic const scaled{one.operations, static_cast<std::int64_t>(as_double(one.bytes) * scale)};
        seconds += heddle::seconds_of(planner_.request_.network, places_[group], static_cast<CollectiveOp>(collective),
                                      scaled, sums);
        if (one.operations > 0) {
          Traffic const all{static_cast<std::int64_t>(as_double(scaled.operations) * times),
                            static_cast<std::int64_t>(as_double(scaled.bytes) * times)};
          add(groups, group, static_cast<CollectiveOp>(collective), all, sums);
        }
      }
    }
    return seconds;
  }

  StageTimes stage_times(RankWork const& work, std::vector<GroupTraffic>& groups, KernelSeconds& kernels) const {
    StageTimes times;
    auto const count = as_double(load_.micro_batches);
    PassSeconds const& of_passes = planner_.pass_seconds(work);
    auto const pass = [&](PassWork const& of, KernelSeconds const& seconds) {
      kernels.usual += seconds.usual * scale_ * count + seconds.first_extra;
      kernels.first_extra += seconds.first_extra;
      kernels.assumed += seconds.assumed * scale_ * count;
      kernels.spread += seconds.spread * scale_ * count;
      return seconds.usual * scale_ + messages(of.traffic, count, groups);
    };
    std::int64_t input_bytes = 0;
    for (std::size_t part = 0; part < work.forward.size(); ++part) {
      times.forward.push_back(pass(work.forward[part], of_passes.forward[part]));
      times.backward.push_back(pass(work.backward[part], of_passes.backward[part]));
      if (!work.weights.empty()) {
        times.weights.push_back(pass(work.weights[part], of_passes.weights[part]));
      }
      input_bytes = std::max(input_bytes, work.input_bytes[part]);
    }
    if (layout_.size(MeshAxis::pipeline) > 1) {
      // A message and its header; each stage sends one for each pass.
      Traffic const one{2, static_cast<std::int64_t>(as_double(input_bytes) * scale_)};
      auto const passes = 2 * load_.micro_batches * static_cast<std::int64_t>(work.forward.size());
      times.message = heddle::seconds_of(planner_.request_.network, places_[pipeline], CollectiveOp::receive, one);
      add(groups, pipeline, CollectiveOp::receive, {passes * one.operations, passes * one.bytes});
    }
    return times;
  }

  std::int64_t bucket_elements() const {
    return planner_.request_.bucket_elements.value_or(GradientReducer::bucket_for(layout_.replicas()));
  }

  /// The reduction of a stage's gradients, as far as the last pass does not hide it.
  double reduction(RankWork const& work, double last_pass, std::vector<GroupTraffic>& groups) const {
    auto const element = work.element_bytes();
    Traffic const buckets = in_buckets(work.trained() - work.divided_gradients, element, bucket_elements());
    double seconds = 0;
    if (layout_.replicas() > 1) {
      double const whole =
          add(groups, replicas, layout_.shard_optimizer ? CollectiveOp::reduce_scatter : CollectiveOp::all_reduce,
              buckets, SumKind::gradients);
      // Inside a node the cores that compute also move the bytes; a network moves them during the last pass,
      // except for the last bucket.
      seconds = places_[replicas].inside_node
                    ? whole
                    : std::max(whole - last_pass, whole / as_double(std::max<std::int64_t>(1, buckets.operations)));
    }
    if (work.copied_gradients > 0) {
      seconds += add(groups, copies, CollectiveOp::all_reduce, {1, work.copied_gradients * element});
    }
    // Where a grid divides sequences by an axis that splits the other grid's heads, all its gradients are partial.
    auto const partial = !layout_.shape.has_grids()           ? tensor
                         : layout_.context(Grid::encoder) > 1 ? encoder_context
                                                              : context;
    seconds += add(groups, partial, CollectiveOp::all_reduce,
                   {work.partial_elements > 0 ? 1 : 0, work.partial_elements * element});
    if (work.max_holders > 1) {
      Traffic const tables = in_buckets(work.shared_elements, element, bucket_elements());
      std::int64_t const others = work.max_holders - 1;
      seconds += add(groups, pipeline, CollectiveOp::receive, {2 * tables.operations * others, tables.bytes * others});
    }
    constexpr Traffic losses{1, 2 * sizeof(double)};  // smoothed and not
    return seconds + add(groups, replicas, CollectiveOp::all_reduce, losses) +
           add(groups, pipeline, CollectiveOp::all_reduce, losses);
  }

  int owners() const { return layout_.shard_optimizer ? layout_.replicas() : 1; }

  /// Adds the functions of rules over matrices, and returns the seconds of their messages.
  double matrix_updates(RankWork const& work, std::vector<GroupTraffic>& groups, KernelSeconds& kernels) const {
    std::int64_t const dealt = layout_.replicas();
    double seconds = 0;
    for (auto const& [rule, update] : work.updates) {
      KernelSeconds const own =
          planner_.seconds_of({{"functions of matrices", 1 / as_double(dealt) * update.functions, 1}});
      kernels.usual += own.usual;
      kernels.assumed += own.assumed;
      auto const bytes = [&](std::int64_t elements) { return elements * work.element_bytes(); };
      if (update.split_elements > 0) {  // there and back
        Traffic const slices{2 * update.matrices / dealt, 2 * bytes(update.split_elements) / dealt};
        seconds += add(groups, tensor, CollectiveOp::receive, slices);
      }
      if (update.matrices > 0 && dealt > 1 && !layout_.shard_optimizer) {
        seconds += add(groups, replicas, CollectiveOp::broadcast, {update.matrices, bytes(update.elements)});
      }
    }
    return seconds;
  }

  double update(RankWork const& work, std::vector<GroupTraffic>& groups, KernelSeconds& kernels) const {
    KernelSeconds own = planner_.seconds_of(update_kernels(work, owners()));
    double const of_matrices = matrix_updates(work, groups, own);
    kernels.usual += own.usual;
    kernels.assumed += own.assumed;
    constexpr Traffic number{1, sizeof(double)};
    double seconds = own.usual + of_matrices + add(groups, tensor, CollectiveOp::all_reduce, number) +
                     add(groups, pipeline, CollectiveOp::all_reduce, number);
    if (layout_.shard_optimizer && layout_.replicas() > 1) {
      seconds += add(groups, replicas, CollectiveOp::all_reduce, number);
      auto const element = work.element_bytes();
      seconds += add(groups, replicas, CollectiveOp::all_gather,
                     in_buckets(work.trained() - work.divided_values, element, bucket_elements()));
    }
    return seconds;
  }

  MemoryUse memory(RankWork const& work, int stage) const {
    auto const element = work.element_bytes();
    std::int64_t const elsewhere = work.divided_gradients - work.divided_gradients / layout_.replicas();
    MemoryUse use{.parameters = work.parameter_bytes() + work.gathered_values,
                  .gradients = (work.trained() - elsewhere) * element + work.gathered_gradients,
                  .state = 0,
                  .kernels = work.kept_by_kernels};
    for (auto const& [rule, update] : work.updates) {
      std::int64_t const directions = update.matrices > 0 ? 1 : 0;
      use.state += (update.state + directions) * ((update.elements + owners() - 1) / owners()) * element +
                   update.split_elements / layout_.replicas() * element;
    }
    auto const actions = training_actions(
        {stage, layout_.size(MeshAxis::pipeline), static_cast<int>(work.forward.size()), !work.weights.empty()},
        planner_.request_.config.train.deterministic ? 1 : load_.micro_batches);
    // An arena that holds passes of several parts is as large as the largest.
    std::int64_t const largest = *std::ranges::max_element(work.activations);
    std::int64_t const messages = *std::ranges::max_element(work.input_bytes);
    std::int64_t const in_flight = max_in_flight(actions);
    // A run plans with both sides of its largest micro-batches full.
    std::int64_t const more = layout_.size(MeshAxis::pipeline) > 1 ? planner_.request_.longest_sequence : 0;
    double const full = 2.0 * as_double(layout_.micro_batch_tokens + more) / full_tokens_;
    use.activations =
        static_cast<std::int64_t>(full * as_double(in_flight * largest + (in_flight + 2) * messages + work.temporary));
    return use;
  }

  Planner& planner_;
  LayoutChoice layout_;
  Load load_;
  double full_tokens_;  ///< tokens of the dry-run micro-batch, on all context ranks
  double scale_;  ///< tokens of a micro-batch, of the rank that has the most, divided by those of the dry-run pack
  std::array<GroupTopology, traffic_groups> places_;
};

LayoutPlan Planner::times_of(LayoutChoice const& layout) {
  return Estimate(*this, layout).run();
}

Planner::KernelSeconds Planner::seconds_of(std::vector<KernelCalls> const& kernels) const {
  KernelTimes const& times = request_.times;
  KernelSeconds sum;
  for (KernelCalls const& each : kernels) {
    if (auto const time = times.time(each.kind, each.cost)) {
      sum.usual += each.calls * time->seconds;
      sum.spread += each.calls * time->seconds * time->spread;
      sum.first_extra += each.calls * (time->first_seconds - time->seconds);
    } else {
      double const seconds = each.calls * request_.rates.seconds(each.cost);
      sum.usual += seconds;
      sum.assumed += seconds;
    }
  }
  return sum;
}

Planner::PassSeconds const& Planner::pass_seconds(RankWork const& work) {
  if (seconds_revision_ != request_.times.revision()) {
    pass_seconds_.clear();
    seconds_revision_ = request_.times.revision();
  }
  auto [place, is_new] = pass_seconds_.try_emplace(&work);
  if (is_new) {
    for (PassWork const& pass : work.forward) {
      place->second.forward.push_back(seconds_of(pass.kernels));
    }
    for (PassWork const& pass : work.backward) {
      place->second.backward.push_back(seconds_of(pass.kernels));
    }
    for (PassWork const& pass : work.weights) {
      place->second.weights.push_back(seconds_of(pass.kernels));
    }
  }
  return place->second;
}

}  // namespace heddle
