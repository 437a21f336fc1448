#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/model/pipeline_plan.hpp>
#include <limits>
#include <numeric>

namespace heddle {
namespace {

std::int64_t layer_cost(std::vector<std::string> const& sublayers, ModelConfig const& model) {
  std::int64_t cost = 0;
  for (std::string const& sublayer : sublayers) {
    bool const attends = sublayer.find("attention") != std::string::npos;
    cost += attends ? 4 * model.d_model * model.d_model : 2 * model.d_model * model.d_ff;
  }
  return cost;
}

/// The best way to cut the first so many layers.
struct Cut {
  std::int64_t dearest = std::numeric_limits<std::int64_t>::max();
  double squares = 0;           ///< of the parts' costs: of equally good cuts the more even one
  std::int64_t last_begin = 0;  ///< where the last part begins

  bool operator<(Cut const& other) const {
    return dearest != other.dearest ? dearest < other.dearest : squares < other.squares;
  }
};

/// The best cuts of each number of first layers into one part more than `fewer` has. ends[i]: cost of the first i;
/// `beside`: of what the part's stage has to do besides.
std::vector<Cut> one_part_more(std::vector<Cut> const& fewer, std::vector<std::int64_t> const& ends,
                               std::int64_t beside) {
  std::vector<Cut> more(ends.size());
  for (std::size_t end = 1; end < ends.size(); ++end) {
    for (std::size_t begin = end; begin-- > 0;) {
      std::int64_t const cost = ends[end] - ends[begin] + beside;
      if (cost > more[end].dearest) {
        break;  // and so is every longer part
      }
      Cut const& before = fewer[begin];
      if (before.dearest != Cut{}.dearest) {
        double const square = static_cast<double>(cost) * static_cast<double>(cost);
        more[end] = std::min(
            more[end], Cut{std::max(before.dearest, cost), before.squares + square, static_cast<std::int64_t>(begin)});
      }
    }
  }
  return more;
}

/// Cuts `layers` into as many non-empty parts as `beside` has entries, so that the dearest stage, a part and what
/// stands beside it, is as cheap as can be. There are at least as many layers.
std::vector<IndexRange> cut_by_cost(IndexRange const& layers, std::vector<std::int64_t> const& beside,
                                    ModelConfig const& model, std::int64_t vocabulary) {
  std::vector<std::int64_t> ends{0};
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
    ends.push_back(ends.back() + estimate_part_cost({layer, layer + 1}, model, vocabulary));
  }
  std::vector<std::vector<Cut>> best{std::vector<Cut>(ends.size())};
  best.front().front().dearest = 0;
  for (std::int64_t const cost : beside) {
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

/// Why stage_layers cannot be followed.
[[noreturn]] void refuse(ParallelConfig const& parallel, std::string const& right) {
  throw ConfigError(
      fmt::format("parallel.stage_layers = [{}] cannot be followed: {}; or leave it empty, for cuts by cost",
                  fmt::join(parallel.stage_layers, ", "), right));
}

void require_count(ParallelConfig const& parallel, std::size_t count, char const* entries) {
  if (parallel.stage_layers.size() != count) {
    refuse(parallel, fmt::format("parallel.pipeline = {} takes {}: {} of them", parallel.pipeline, entries, count));
  }
}

std::vector<IndexRange> cut_whole(ModelConfig const& model, ParallelConfig const& parallel, std::int64_t vocabulary) {
  IndexRange const all{0, model.encoder_layers + model.decoder_layers};
  if (parallel.pipeline > all.count()) {
    throw ConfigError(fmt::format(
        "parallel.pipeline = {} is more stages than the model has layers, {} of the encoder and {} of the decoder; "
        "{} or less would do",
        parallel.pipeline, model.encoder_layers, model.decoder_layers, all.count()));
  }
  if (parallel.stage_layers.empty()) {
    return cut_by_cost(all, std::vector<std::int64_t>(static_cast<std::size_t>(parallel.pipeline)), model, vocabulary);
  }
  require_count(parallel, static_cast<std::size_t>(parallel.pipeline), "the layers of each stage");
  if (sum(parallel.stage_layers) != all.count()) {
    refuse(parallel, fmt::format("its sum is {}, but the encoder's {} and the decoder's {} layers are {}",
                                 sum(parallel.stage_layers), model.encoder_layers, model.decoder_layers, all.count()));
  }
  return cut_as_told(0, parallel.stage_layers);
}

/// The encoder's parts, then the decoder's.
std::vector<IndexRange> cut_stacks(ModelConfig const& model, ParallelConfig const& parallel, std::int64_t vocabulary) {
  std::int64_t const most = std::min(model.encoder_layers, model.decoder_layers);
  if (parallel.pipeline > most) {
    throw ConfigError(fmt::format(
        "parallel.pipeline = {} with parallel.pipeline_schedule = \"interleaved\" needs so many layers in the encoder "
        "and in the decoder, which have {} and {}; {} or less would do, or \"1f1b\" with {} or less",
        parallel.pipeline, model.encoder_layers, model.decoder_layers, most,
        model.encoder_layers + model.decoder_layers));
  }
  IndexRange const encoder{0, model.encoder_layers};
  IndexRange const decoder{encoder.end, encoder.end + model.decoder_layers};
  if (parallel.stage_layers.empty()) {
    // The decoder's parts first, which come in coarser steps; the encoder's then even the stages out.
    std::vector<std::int64_t> beside(static_cast<std::size_t>(parallel.pipeline));
    std::vector<IndexRange> const rest = cut_by_cost(decoder, beside, model, vocabulary);
    std::transform(rest.begin(), rest.end(), beside.begin(),
                   [&](IndexRange const& part) { return estimate_part_cost(part, model, vocabulary); });
    std::vector<IndexRange> ranges = cut_by_cost(encoder, beside, model, vocabulary);
    ranges.insert(ranges.end(), rest.begin(), rest.end());
    return ranges;
  }
  require_count(parallel, 2 * static_cast<std::size_t>(parallel.pipeline),
                "with \"interleaved\" the encoder layers, then the decoder layers of each stage");
  auto const middle = parallel.stage_layers.begin() + parallel.pipeline;
  std::int64_t const first = sum({parallel.stage_layers.begin(), middle});
  std::int64_t const second = sum({middle, parallel.stage_layers.end()});
  if (first != encoder.count() || second != decoder.count()) {
    refuse(parallel, fmt::format("its halves' sums are {} and {}, but the encoder has {} layers and the decoder {}",
                                 first, second, encoder.count(), decoder.count()));
  }
  return cut_as_told(0, parallel.stage_layers);
}

std::string describe_side(char const* side, std::int64_t begin, std::int64_t end) {
  return end - begin == 1 ? fmt::format("{} layer {}", side, begin)
                          : fmt::format("{} layers {} to {}", side, begin, end - 1);
}

}  // namespace

PipelinePlan plan_pipeline(ModelConfig const& model, ParallelConfig const& parallel, std::int64_t vocabulary) {
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

std::int64_t estimate_part_cost(IndexRange const& layers, ModelConfig const& model, std::int64_t vocabulary) {
  std::int64_t const decoder_layers =
      std::max(layers.end, model.encoder_layers) - std::max(layers.begin, model.encoder_layers);
  std::int64_t const cost = (layers.count() - decoder_layers) * layer_cost(model.encoder_sublayers, model) +
                            decoder_layers * layer_cost(model.decoder_sublayers, model);
  bool const gives_logits = layers.end == model.encoder_layers + model.decoder_layers;
  return cost + (gives_logits ? vocabulary * model.d_model : 0);
}

std::vector<double> cost_shares(PipelinePlan const& plan, ModelConfig const& model, std::int64_t vocabulary) {
  std::vector<double> shares;
  for (std::vector<IndexRange> const& stage : plan.parts) {
    double cost = 0;
    for (IndexRange const& layers : stage) {
      cost += static_cast<double>(estimate_part_cost(layers, model, vocabulary));
    }
    shares.push_back(cost);
  }
  double const whole = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) {
    share /= whole;
  }
  return shares;
}

std::string describe(IndexRange const& layers, ModelConfig const& model) {
  std::string text;
  if (layers.begin < model.encoder_layers) {
    text = describe_side("encoder", layers.begin, std::min(layers.end, model.encoder_layers));
  }
  if (layers.end > model.encoder_layers) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ",
                        describe_side("decoder", std::max(layers.begin, model.encoder_layers) - model.encoder_layers,
                                      layers.end - model.encoder_layers));
  }
  return text;
}

}  // namespace heddle
