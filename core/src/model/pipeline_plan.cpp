#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/model/pipeline_plan.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <limits>
#include <numeric>

namespace heddle {
namespace {

/// The best way to cut the first layers into parts.
struct Cut {
  double highest = std::numeric_limits<double>::infinity();
  double squares = 0;           ///< the sum of squares of the parts' costs, which decides between equally good cuts
  std::int64_t last_begin = 0;  ///< where the last part begins

  bool operator<(Cut const& other) const {
    return highest != other.highest ? highest < other.highest : squares < other.squares;
  }
};

/// The best cuts of each number of first layers into one part more than `fewer` has. ends[i]: cost of the first i;
/// `beside`: the cost of the other work of the part's stage; where an entry of fewer is not finite, no part begins.
std::vector<Cut> one_part_more(std::vector<Cut> const& fewer, std::vector<double> const& ends, double beside) {
  std::vector<Cut> more(ends.size());
  for (std::size_t end = 1; end < ends.size(); ++end) {
    for (std::size_t begin = end; begin-- > 0;) {
      double const cost = ends[end] - ends[begin] + beside;
      if (cost > more[end].highest) {
        break;  // and so is every longer part
      }
      Cut const& before = fewer[begin];
      if (before.highest != Cut{}.highest) {
        more[end] = std::min(more[end], Cut{std::max(before.highest, cost), before.squares + cost * cost,
                                            static_cast<std::int64_t>(begin)});
      }
    }
  }
  return more;
}

/// Cuts `layers` into as many non-empty parts as `beside` has entries, so that the most expensive stage (a part and
/// the work beside it) costs as little as possible. There are at least as many layers.
std::vector<IndexRange> cut_by_cost(IndexRange const& layers, std::vector<double> const& beside,
                                    ModelDescription const& model, std::int64_t vocabulary) {
  std::vector<double> ends{0};
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
    ends.push_back(ends.back() + part_cost({layer, layer + 1}, model, vocabulary).operations);
  }
  std::vector<std::vector<Cut>> best{std::vector<Cut>(ends.size())};
  best.front().front().highest = 0;
  for (double const cost : beside) {
    best.push_back(one_part_more(best.back(), ends, cost));
    for (std::int64_t end = 1; end < layers.count(); ++end) {
      if (model.divides_tied_layers(layers.begin + end)) {
        best.back()[static_cast<std::size_t>(end)] = Cut();
      }
    }
  }
  std::vector<IndexRange> ranges(beside.size());
  std::int64_t end = layers.count();
  for (std::size_t part = ranges.size(); part-- > 0;) {
    std::int64_t const begin = best[part + 1][static_cast<std::size_t>(end)].last_begin;
    ranges[part] = {layers.begin + begin, layers.begin + end};
    end = begin;
  }
  return ranges;
}

/// The ranges that are each cut into all stages: all layers, or when interleaved those of each stack that has some.
std::vector<IndexRange> cut_ranges(ModelDescription const& model, bool interleaved) {
  if (!interleaved) {
    return {{0, model.layers()}};
  }
  std::vector<IndexRange> ranges;
  for (std::size_t stack = 0; stack < model.stacks.size(); ++stack) {
    if (model.stacks[stack].count() > 0) {
      ranges.push_back(model.range(stack));
    }
  }
  return ranges;
}

/// The parts into which a range can be cut: tied layers are in one.
std::int64_t possible_parts(ModelDescription const& model, IndexRange const& range) {
  std::int64_t parts = range.count() > 0 ? 1 : 0;
  for (std::int64_t layer = range.begin + 1; layer < range.end; ++layer) {
    parts += model.divides_tied_layers(layer) ? 0 : 1;
  }
  return parts;
}

void require_enough_layers(ModelDescription const& model, ParallelConfig const& parallel,
                           std::vector<IndexRange> const& whole, bool interleaved) {
  std::vector<std::int64_t> possible;
  std::ranges::transform(whole, std::back_inserter(possible),
                         [&](IndexRange const& range) { return possible_parts(model, range); });
  std::int64_t const max = std::ranges::min(possible);
  if (parallel.pipeline <= max) {
    return;
  }
  std::string const place = parallel.places.of("pipeline");
  if (parallel.pipeline <= std::ranges::min_element(whole, {}, &IndexRange::count)->count()) {
    throw ConfigError(
        "{} = {}: tied layers have their parameters on one stage, and {} can be cut into {} part{}; expected "
        "{} or less",
        place, parallel.pipeline, model.describe(), max, max == 1 ? "" : "s", max);
  }
  throw ConfigError(
      interleaved
          ? fmt::format("{} = {} with parallel.pipeline_schedule = \"interleaved\" needs as many layers in each stack, "
                        "and there are {}; expected {} or less, or \"1f1b\" with {} or less",
                        place, parallel.pipeline, model.describe(), max, model.layers())
          : fmt::format("{} = {} is more stages than {}; expected {} or less", place, parallel.pipeline,
                        model.describe(), max));
}

/// Cuts each range into the parts that stage_layers gives, which has one entry for each range and stage.
std::vector<IndexRange> cut_as_given(ModelDescription const& model, ParallelConfig const& parallel,
                                     std::vector<IndexRange> const& whole) {
  auto const refuse = [&](std::string const& reason) {
    throw ConfigError("{} = [{}] cannot be followed: {}; or leave it empty, for cuts by cost",
                      parallel.places.of("stage_layers"), fmt::join(parallel.stage_layers, ", "), reason);
  };
  auto const stages = static_cast<std::size_t>(parallel.pipeline);
  if (parallel.stage_layers.size() != whole.size() * stages) {
    refuse(fmt::format("parallel.pipeline = {} takes the layers of each stage{}: {} of them", parallel.pipeline,
                       whole.size() > 1 ? " for each stack" : "", whole.size() * stages));
  }
  std::vector<IndexRange> parts;
  std::vector<std::int64_t> sums(whole.size());
  for (std::size_t part = 0; part < parallel.stage_layers.size(); ++part) {
    std::int64_t const begin = parts.empty() ? 0 : parts.back().end;
    parts.push_back({begin, begin + parallel.stage_layers[part]});
    sums[part / stages] += parts.back().count();
  }
  if (!std::ranges::equal(sums, whole, {}, {}, &IndexRange::count)) {
    refuse(fmt::format("it adds up to {}, but there are {}", fmt::join(sums, " and "), model.describe()));
  }
  for (IndexRange const& part : parts) {
    if (model.divides_tied_layers(part.begin)) {
      refuse(fmt::format("a stage would begin with {}, and tied layers have their parameters on one stage",
                         describe({part.begin, part.begin + 1}, model)));
    }
  }
  return parts;
}

/// Cuts each range so that the stages' parts together cost about the same. The last range is cut first, because its
/// parts are coarser; those of the ranges before then even the stages out.
std::vector<IndexRange> cut_by_cost(ModelDescription const& model, ParallelConfig const& parallel,
                                    std::vector<IndexRange> const& whole, std::int64_t vocabulary) {
  std::vector<double> beside(static_cast<std::size_t>(parallel.pipeline));
  std::vector<IndexRange> ranges;
  for (auto range = whole.rbegin(); range != whole.rend(); ++range) {
    std::vector<IndexRange> const parts = cut_by_cost(*range, beside, model, vocabulary);
    for (std::size_t stage = 0; stage < parts.size(); ++stage) {
      beside[stage] += part_cost(parts[stage], model, vocabulary).operations;
    }
    ranges.insert(ranges.begin(), parts.begin(), parts.end());
  }
  return ranges;
}

}  // namespace

PipelinePlan plan_pipeline(ModelDescription const& model, ParallelConfig const& parallel, std::int64_t vocabulary) {
  bool const interleaved = parallel.pipeline_schedule == PipelineSchedule::interleaved && parallel.pipeline > 1;
  std::vector<IndexRange> const whole = cut_ranges(model, interleaved);
  require_enough_layers(model, parallel, whole, interleaved);
  std::vector<IndexRange> const ranges = parallel.stage_layers.empty() ? cut_by_cost(model, parallel, whole, vocabulary)
                                                                       : cut_as_given(model, parallel, whole);
  PipelinePlan plan;
  plan.parts.resize(static_cast<std::size_t>(parallel.pipeline));
  for (std::size_t virtual_stage = 0; virtual_stage < ranges.size(); ++virtual_stage) {
    plan.parts[virtual_stage % plan.parts.size()].push_back(ranges[virtual_stage]);
  }
  return plan;
}

namespace {

/// The name of the output's table, without .weight, by which it can be told whether it is frozen. A tied one has one of
/// two names, which the vocabularies decide, and patterns match the one that it has.
std::string output_table(ModelDescription const& model) {
  FrozenParameters const& frozen = model.keys.frozen;
  std::string const of_stack = model.stacks.back().name + ".embedding";
  bool const is_exception = is_frozen(frozen, of_stack + ".weight") == frozen.trained.empty();
  return !model.keys.tie_embeddings ? "output" : is_exception ? of_stack : "embedding";
}

/// The products of the output: the transform before it, where there is one, and the projection.
Cost output_cost(ModelDescription const& model, std::int64_t vocabulary, LayerLoad const& load) {
  ModelConfig const& keys = *model.stacks.back().keys;
  Cost const projection = projection_cost(keys, load, output_table(model), keys.d_model, vocabulary);
  return keys.output_transform
             ? projection + projection_cost(keys, load, "output.transform", keys.d_model, keys.d_model)
             : projection;
}

}  // namespace

Cost part_cost(IndexRange const& layers, ModelDescription const& model, std::int64_t vocabulary,
               LayerLoad const& load) {
  Cost sum;
  if (layers.end == model.layers()) {
    SoftmaxCrossEntropyProblem const loss{
        .dtype = load.dtype, .local_vocabulary = vocabulary, .global_vocabulary = vocabulary};
    sum += output_cost(model, vocabulary, load) + cost(loss, load.tokens);
  }
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
    sum += model.layer(layer).cost(load);
  }
  return sum;
}

double training_operations(ModelDescription const& model, std::int64_t vocabulary, std::vector<double> const& tokens,
                           double sequence) {
  double forward = output_cost(model, vocabulary, {.tokens = tokens.back()}).operations;
  for (std::size_t stack = 0; stack < model.stacks.size(); ++stack) {
    LayerLoad const load{.tokens = tokens[stack], .sequence = sequence};
    for (LayerDescription const& layer : model.stacks[stack].layers) {
      for (SublayerDescription const& sublayer : layer.sublayers) {
        forward += sublayer.cost(load).operations;
      }
    }
  }
  return 3 * forward;
}

std::vector<double> cost_shares(PipelinePlan const& plan, ModelDescription const& model, std::int64_t vocabulary) {
  std::vector<double> shares;
  for (std::vector<IndexRange> const& stage : plan.parts) {
    double cost = 0;
    for (IndexRange const& layers : stage) {
      cost += part_cost(layers, model, vocabulary).operations;
    }
    shares.push_back(cost);
  }
  double const whole = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) {
    share /= whole;
  }
  return shares;
}

std::string describe(IndexRange const& layers, ModelDescription const& model) {
  std::vector<std::string> parts;
  for (std::size_t stack = 0; stack < model.stacks.size(); ++stack) {
    IndexRange const range = model.range_in(stack, layers);
    if (range.count() == 1) {
      parts.push_back(fmt::format("{} layer {}", model.stacks[stack].name, range.end));
    } else if (range.count() > 1) {
      parts.push_back(fmt::format("{} layers {} to {}", model.stacks[stack].name, range.begin + 1, range.end));
    }
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace heddle
