#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/model/pipeline_plan.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <limits>
#include <numeric>

namespace heddle {
namespace {

/// The best way to cut the first layers into parts.
struct Cut {
  double highest = std::numeric_limits<double>::infinity();
  double squares = 0;           ///< of the parts' costs: decides between equally good cuts
  std::int64_t last_begin = 0;  ///< where the last part begins

  bool operator<(Cut const& other) const {
    return highest != other.highest ? highest < other.highest : squares < other.squares;
  }
};

/// The best cuts of each number of first layers into one part more than `fewer` has. ends[i]: cost of the first i;
/// `beside`: the cost of the other work of the part's stage.
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

std::int64_t sum(std::vector<std::int64_t> const& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::vector<IndexRange> cut_as_told(std::int64_t begin, std::vector<std::int64_t> const& counts) {
  std::vector<IndexRange> ranges;
  for (std::int64_t const count : counts) {
    ranges.push_back({begin, begin + count});
    begin += count;
  }
  return ranges;
}

/// The reason why stage_layers is not possible.
[[noreturn]] void refuse(ParallelConfig const& parallel, std::string const& right) {
  throw ConfigError(fmt::format("{} = [{}] cannot be followed: {}; or leave it empty, for cuts by cost",
                                parallel.places.of("stage_layers"), fmt::join(parallel.stage_layers, ", "), right));
}

void require_count(ParallelConfig const& parallel, std::size_t count, char const* entries) {
  if (parallel.stage_layers.size() != count) {
    refuse(parallel, fmt::format("parallel.pipeline = {} takes {}: {} of them", parallel.pipeline, entries, count));
  }
}

std::vector<IndexRange> cut_whole(ModelDescription const& model, ParallelConfig const& parallel,
                                  std::int64_t vocabulary) {
  IndexRange const all{0, model.layers()};
  if (parallel.pipeline > all.count()) {
    throw ConfigError(fmt::format("{} = {} is more stages than {}; {} or less would do", parallel.places.of("pipeline"),
                                  parallel.pipeline, model.describe(), all.count()));
  }
  if (parallel.stage_layers.empty()) {
    return cut_by_cost(all, std::vector<double>(static_cast<std::size_t>(parallel.pipeline)), model, vocabulary);
  }
  require_count(parallel, static_cast<std::size_t>(parallel.pipeline), "the layers of each stage");
  if (sum(parallel.stage_layers) != all.count()) {
    refuse(parallel,
           fmt::format("its sum is {}, but {} are {}", sum(parallel.stage_layers), model.describe(), all.count()));
  }
  return cut_as_told(0, parallel.stage_layers);
}

/// The stacks that have layers, in the one list.
std::vector<IndexRange> ranges_of_stacks(ModelDescription const& model) {
  std::vector<IndexRange> ranges;
  for (std::size_t stack = 0; stack < model.stacks.size(); ++stack) {
    if (model.stacks[stack].count() > 0) {
      ranges.push_back(model.range(stack));
    }
  }
  return ranges;
}

/// stage_layers has one entry for each stage and stack, a stack's side by side.
std::vector<IndexRange> cut_stacks_as_told(ModelDescription const& model, ParallelConfig const& parallel,
                                           std::vector<IndexRange> const& stacks) {
  auto const stages = static_cast<std::size_t>(parallel.pipeline);
  require_count(parallel, stacks.size() * stages, "with \"interleaved\" each stack's layers of each stage");
  std::vector<std::int64_t> sums;
  bool follows = true;
  for (std::size_t stack = 0; stack < stacks.size(); ++stack) {
    auto const begin = parallel.stage_layers.begin() + static_cast<std::ptrdiff_t>(stack * stages);
    sums.push_back(sum({begin, begin + parallel.pipeline}));
    follows = follows && sums.back() == stacks[stack].count();
  }
  if (!follows) {
    refuse(parallel,
           fmt::format("its sums for each stack are {}, but there are {}", fmt::join(sums, " and "), model.describe()));
  }
  return cut_as_told(0, parallel.stage_layers);
}

/// The first stack's parts, then the second's.
std::vector<IndexRange> cut_stacks(ModelDescription const& model, ParallelConfig const& parallel,
                                   std::int64_t vocabulary) {
  std::vector<IndexRange> const stacks = ranges_of_stacks(model);
  std::int64_t const max =
      std::min_element(stacks.begin(), stacks.end(), [](auto& a, auto& b) { return a.count() < b.count(); })->count();
  if (parallel.pipeline > max) {
    throw ConfigError(
        fmt::format("{} = {} with parallel.pipeline_schedule = \"interleaved\" needs as many layers in each stack, and "
                    "there are {}; {} or less would do, or \"1f1b\" with {} or less",
                    parallel.places.of("pipeline"), parallel.pipeline, model.describe(), max, model.layers()));
  }
  if (!parallel.stage_layers.empty()) {
    return cut_stacks_as_told(model, parallel, stacks);
  }
  // The last stack is cut first, because its parts are coarser; those of the stacks before then even the stages out.
  std::vector<double> beside(static_cast<std::size_t>(parallel.pipeline));
  std::vector<IndexRange> ranges;
  for (auto stack = stacks.rbegin(); stack != stacks.rend(); ++stack) {
    std::vector<IndexRange> const parts = cut_by_cost(*stack, beside, model, vocabulary);
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
  std::vector<IndexRange> const ranges =
      interleaved ? cut_stacks(model, parallel, vocabulary) : cut_whole(model, parallel, vocabulary);
  PipelinePlan plan;
  plan.parts.resize(static_cast<std::size_t>(parallel.pipeline));
  for (std::size_t virtual_stage = 0; virtual_stage < ranges.size(); ++virtual_stage) {
    plan.parts[virtual_stage % plan.parts.size()].push_back(ranges[virtual_stage]);
  }
  return plan;
}

Cost part_cost(IndexRange const& layers, ModelDescription const& model, std::int64_t vocabulary,
               LayerLoad const& load) {
  Cost sum;
  if (layers.end == model.layers()) {
    SoftmaxCrossEntropyProblem const loss{
        .dtype = load.dtype, .local_vocabulary = vocabulary, .global_vocabulary = vocabulary};
    sum += linear_cost(load, model.keys.d_model, vocabulary) + cost(loss, load.tokens);
  }
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
    sum += model.layer(layer).cost(load);
  }
  return sum;
}

double training_operations(ModelDescription const& model, std::int64_t vocabulary, std::vector<double> const& tokens,
                           double sequence) {
  double forward = linear_cost({.tokens = tokens.back()}, model.keys.d_model, vocabulary).operations;
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
