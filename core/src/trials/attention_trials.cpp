#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/core/trials/trials.hpp>
#include <numeric>

namespace heddle {

namespace {

using Lengths = std::vector<std::int32_t>;

/// A call, as far as it differs from bidirectional self-attention of three sequences in two heads of seven columns. A
/// new variant is a line of the list below.
struct Variant {
  char const* name;
  Lengths queries = {5, 1, 0, 67, 30};
  Lengths keys = {};  ///< empty: the queries' own
  std::int64_t heads = 2;
  std::int64_t head_dim = 7;
  std::int64_t kv_heads = 0;
  AttentionMask mask = {};
  ScoreKind score = ScoreKind::dot_product;
  double soft_cap = 0;
  double dropout = 0;
  std::int64_t bias_radius = -1;  ///< largest distance of the bias; below 0: there is no bias
  bool positions = false;         ///< positions are given and have gaps
  bool accumulate = false;
  bool state = false;                                   ///< linear scores with a state; forward only
  std::shared_ptr<AttentionScore const> function = {};  ///< of ScoreKind::function
};

std::vector<Variant> dot_product_variants() {
  constexpr AttentionMask causal = AttentionMask::causal();
  return {
      {.name = "self"},
      {.name = "self, dropout", .queries = {66, 9, 17}, .head_dim = 32, .dropout = 0.3},
      {.name = "causal", .queries = {70, 1, 64, 0, 33}, .head_dim = 16, .mask = causal},
      {.name = "causal, dropout", .queries = {1, 70, 5}, .heads = 3, .head_dim = 5, .mask = causal, .dropout = 0.45},
      {.name = "cross", .queries = {3, 67, 0, 5, 1}, .keys = {70, 2, 4, 0, 1}, .head_dim = 9},
      {.name = "cross, dropout", .queries = {3, 67, 20}, .keys = {70, 2, 21}, .head_dim = 33, .dropout = 0.1},
      {.name = "causal cross, more keys",
       .queries = {1, 65, 4},
       .keys = {40, 70, 4},
       .heads = 1,
       .head_dim = 8,
       .mask = causal,
       .dropout = 0.2},
      {.name = "causal cross, fewer keys", .queries = {9, 70, 3}, .keys = {4, 2, 0}, .head_dim = 8, .mask = causal},
      {.name = "one query", .queries = {1, 1, 0, 1}, .keys = {70, 3, 5, 0}, .heads = 4, .head_dim = 32, .kv_heads = 2},
      {.name = "one query, a head of two vectors", .queries = {1, 1}, .keys = {16, 33}, .head_dim = 64},
      {.name = "one query, a wide head", .queries = {1, 1}, .keys = {1, 17}, .head_dim = 128},
      {.name = "causal, many keys", .queries = {150}, .heads = 1, .head_dim = 8, .mask = causal},
      {.name = "causal, many keys, grouped queries",
       .queries = {140, 9},
       .head_dim = 32,
       .kv_heads = 1,
       .mask = causal},
      {.name = "many keys, a head of two vectors", .queries = {9, 130}, .heads = 1, .head_dim = 64},
      {.name = "causal window", .head_dim = 8, .mask = AttentionMask::window(9, 0)},
      {.name = "biases, causal", .queries = {70}, .head_dim = 8, .mask = causal, .bias_radius = 6},
      {.name = "given positions, causal", .queries = {71, 9}, .head_dim = 8, .mask = causal, .positions = true},
      {.name = "a wide head", .queries = {11, 70}, .heads = 1, .head_dim = 130, .mask = causal},
      {.name = "window", .head_dim = 8, .mask = AttentionMask::window(3, 2)},
      {.name = "causal window, dropout", .head_dim = 16, .mask = AttentionMask::window(9, 0), .dropout = 0.2},
      {.name = "window with global tokens", .head_dim = 8, .mask = AttentionMask::window(4, 3, 2)},
      {.name = "blocks", .head_dim = 8, .mask = AttentionMask::blocks(4, 1, 1)},
      {.name = "causal blocks with global tokens", .head_dim = 16, .mask = AttentionMask::blocks(8, 1, 0, 3)},
      {.name = "soft cap", .head_dim = 8, .soft_cap = 0.7},
      {.name = "soft cap, causal", .head_dim = 8, .mask = causal, .soft_cap = 0.7},
      {.name = "soft cap, grouped queries, dropout",
       .heads = 4,
       .head_dim = 8,
       .kv_heads = 2,
       .soft_cap = 0.7,
       .dropout = 0.2},
      {.name = "prefix", .head_dim = 8, .mask = AttentionMask::prefix()},
      {.name = "grouped queries", .heads = 4, .head_dim = 8, .kv_heads = 2},
      {.name = "one key head, causal", .heads = 3, .head_dim = 8, .kv_heads = 1, .mask = causal},
      {.name = "biases", .head_dim = 8, .bias_radius = 4},
      {.name = "biases, causal, dropout", .head_dim = 16, .mask = causal, .dropout = 0.2, .bias_radius = 6},
      {.name = "given positions", .queries = {1, 70, 0, 9}, .keys = {66, 71, 3, 0}, .head_dim = 8, .positions = true},
      {.name = "given positions, causal, dropout",
       .queries = {71, 0, 9},
       .head_dim = 8,
       .mask = causal,
       .dropout = 0.4,
       .positions = true},
      {.name = "added keys", .head_dim = 8, .accumulate = true},
      {.name = "added keys, given positions, causal",
       .queries = {9, 30},
       .keys = {11, 40},
       .head_dim = 8,
       .mask = causal,
       .positions = true,
       .accumulate = true},
  };
}

std::vector<Variant> variants() {
  using enum ScoreKind;
  constexpr AttentionMask causal = AttentionMask::causal();
  std::vector<Variant> all = dot_product_variants();
  std::vector<Variant> const others{
      {.name = "additive", .head_dim = 8, .score = additive},
      {.name = "additive, causal, biases, dropout",
       .queries = {40, 3},
       .head_dim = 8,
       .mask = causal,
       .score = additive,
       .dropout = 0.2,
       .bias_radius = 4},
      {.name = "linear", .head_dim = 8, .score = linear},
      {.name = "linear, causal", .head_dim = 8, .mask = causal, .score = linear},
      {.name = "linear, grouped queries", .heads = 4, .head_dim = 8, .kv_heads = 2, .score = linear},
      {.name = "linear, a state", .queries = {1, 1, 1}, .head_dim = 8, .score = linear, .state = true},
  };
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

/// Calls with a plug-in's function, whose name comes before theirs.
std::vector<Variant> function_variants() {
  constexpr auto function = ScoreKind::function;
  return {{.name = "", .head_dim = 8, .score = function},
          {.name = ", causal, biases, dropout",
           .queries = {70, 3},
           .head_dim = 8,
           .mask = AttentionMask::causal(),
           .score = function,
           .dropout = 0.2,
           .bias_radius = 4},
          {.name = ", window, grouped queries",
           .heads = 4,
           .head_dim = 8,
           .kv_heads = 2,
           .mask = AttentionMask::window(9, 3, 2),
           .score = function},
          {.name = ", given positions, accumulated",
           .queries = {9, 70},
           .keys = {11, 40},
           .head_dim = 8,
           .mask = AttentionMask::causal(),
           .score = function,
           .positions = true,
           .accumulate = true}};
}

std::int64_t total(Lengths const& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

/// Ascending in each sequence, in runs of five with gaps of three between them.
std::vector<std::int32_t> spread_positions(Lengths const& lengths, std::int32_t first) {
  std::vector<std::int32_t> positions;
  for (std::int32_t const length : lengths) {
    for (std::int32_t i = 0; i < length; ++i) {
      positions.push_back(first + i + 3 * (i / 5));
    }
    ++first;
  }
  return positions;
}

AttentionCall make_call(Variant const& variant, TrialTensors& tensors, DType dtype) {
  Lengths const& key_lengths = variant.keys.empty() ? variant.queries : variant.keys;
  std::int64_t const rows = total(variant.queries);
  std::int64_t const key_columns = (variant.kv_heads > 0 ? variant.kv_heads : variant.heads) * variant.head_dim;
  AttentionCall call;
  call.q = tensors.strided(5).input(dtype, {rows, variant.heads * variant.head_dim});
  call.k = tensors.strided(3).input(dtype, {total(key_lengths), key_columns});
  call.v = tensors.strided(3).input(dtype, {total(key_lengths), key_columns});
  call.queries = tensors.sequences(variant.queries);
  call.keys = tensors.sequences(key_lengths);
  call.heads = variant.heads;
  call.kv_heads = variant.kv_heads;
  call.scale = 1.5 / std::sqrt(static_cast<double>(variant.head_dim));
  call.score = variant.score;
  call.function = variant.function;
  call.soft_cap = variant.soft_cap;
  if (variant.score == ScoreKind::additive) {
    call.score_weight = tensors.input(statistics_dtype(dtype), {variant.heads, variant.head_dim});
  }
  call.mask = variant.mask;
  if (variant.mask.is(MaskKind::prefix)) {
    Lengths prefixes;
    for (std::int32_t const length : key_lengths) {
      prefixes.push_back(length / 3);
    }
    call.prefix_length = tensors.integers(prefixes);
  }
  if (variant.bias_radius >= 0) {
    call.bias = tensors.input(statistics_dtype(dtype), {variant.heads, 2 * variant.bias_radius + 1});
  }
  call.dropout = tensors.dropout(variant.dropout, rows);
  call.dropout.first_column = 2;
  if (variant.positions) {
    call.query_position = tensors.integers(spread_positions(variant.queries, 4));
    call.key_position = tensors.integers(spread_positions(key_lengths, 2));
  }
  call.accumulate = variant.accumulate;
  if (variant.state) {
    Shape const shape{call.keys.count, key_columns * (variant.head_dim + 1)};
    std::vector<double> const sums = to_doubles(tensors.input(DType::float64, shape, 0.1, 1));
    call.state = tensors.updated(statistics_dtype(dtype), shape, sums);
  }
  return call;
}

/// An output, or one that the call adds to: `before` everywhere.
Tensor result(TrialTensors& tensors, DType dtype, Shape const& shape, bool accumulate, double before) {
  return accumulate ? tensors.updated(dtype, shape, std::vector<double>(static_cast<std::size_t>(shape.size()), before))
                    : tensors.output(dtype, shape);
}

Trial<Attention> make_trial(Variant const& variant, TrialTensors& tensors, DType dtype) {
  AttentionCall const call = make_call(variant, tensors, dtype);
  Shape const outputs = call.q.shape();
  double const already = call.accumulate ? TrialTensors::start : 0;
  Tensor const output = result(tensors, dtype, outputs, call.accumulate, 0);
  Tensor const log_sum_exp =
      result(tensors, statistics_dtype(dtype), {outputs[0], call.heads}, call.accumulate, -INFINITY);
  Tensor const upstream = tensors.input(dtype, outputs);
  AttentionGradients const gradients{
      result(tensors.strided(5), dtype, outputs, call.accumulate, already),
      result(tensors.strided(3), dtype, call.k.shape(), call.accumulate, already),
      result(tensors.strided(3), dtype, call.v.shape(), call.accumulate, already),
      call.bias.empty() ? Tensor() : tensors.sums(call.bias.dtype(), call.bias.shape()),
      call.score_weight.empty() ? Tensor() : tensors.sums(call.score_weight.dtype(), call.score_weight.shape())};
  Trial<Attention> trial{.problem = call.problem()};
  trial.forward = [=](Attention& kernel, Execution& execution) {
    kernel.forward(execution, call, output, log_sum_exp);
  };
  if (variant.state) {
    trial.outputs = {{"output", output}, {"state", call.state}};  // there is no backward pass
    return trial;
  }
  trial.backward = [=](Attention& kernel, Execution& execution) {
    kernel.backward(execution, call, output, log_sum_exp, upstream, gradients);
  };
  trial.outputs = {{"output", output, upstream}, {"log_sum_exp", log_sum_exp}};
  trial.gradients = {
      {"q", call.q, gradients.q, already}, {"k", call.k, gradients.k, already}, {"v", call.v, gradients.v, already}};
  if (!call.bias.empty()) {
    trial.gradients.push_back({"bias", call.bias, gradients.bias, TrialTensors::start});
  }
  if (!call.score_weight.empty()) {
    trial.gradients.push_back({"score weight", call.score_weight, gradients.score_weight, TrialTensors::start});
  }
  return trial;
}

/// Calls the score with copies on the host, where it computes, of tensors that may be on a device.
template <class Real>
void apply(AttentionScore const& score, Tensor const& scores, Tensor const& values, Tensor const& slopes) {
  std::vector<double> const given = to_doubles(scores);
  std::vector<Real> own(given.begin(), given.end());
  std::vector<Real> slope(own.size());
  score.apply(scores.size(), own.data(), own.data(), slope.data());
  copy_from_doubles(values, std::vector<double>(own.begin(), own.end()));
  copy_from_doubles(slopes, std::vector<double>(slope.begin(), slope.end()));
}

/// A plug-in's function and its slopes. The loss is the sum of the values, whose gradients are the slopes.
Trial<AttentionScore> make_score_trial(std::string const& name, TrialTensors& tensors, DType dtype) {
  Shape const shape{61};
  Tensor const scores = tensors.input(dtype, shape, -6, 6);
  Tensor const values = tensors.output(dtype, shape);
  Tensor const slopes = tensors.output(dtype, shape);
  Trial<AttentionScore> trial{.problem = {dtype, name}};
  trial.forward = [=](AttentionScore& score, Execution&) {
    dtype == DType::float64 ? apply<double>(score, scores, values, slopes)
                            : apply<float>(score, scores, values, slopes);
  };
  trial.backward = trial.forward;
  Tensor const ones = tensors.given(dtype, shape, std::vector<double>(static_cast<std::size_t>(shape.size()), 1));
  trial.outputs = {{"value", values, ones}};
  trial.gradients = {{"score", scores, slopes}};
  return trial;
}

}  // namespace

void add_attention_trials(KernelRegistries& registries) {
  for (Variant const& variant : variants()) {
    registries.of<Attention>().add_trial(variant.name, std::bind_front(make_trial, variant));
  }
}

void add_attention_score(KernelRegistries& registries, std::shared_ptr<AttentionScore> const& score) {
  std::string const& name = score->name();
  if (std::ranges::find(built_in_scores, name) != built_in_scores.end()) {
    throw ConfigError("the score '{}' is built in; a plug-in's needs another name", name);
  }
  auto& scores = registries.of<AttentionScore>();
  scores.add(name, 0, score);
  scores.add_trial(name, std::bind_front(make_score_trial, name));
  for (Variant variant : function_variants()) {
    variant.function = score;
    registries.of<Attention>().add_trial(name + variant.name, std::bind_front(make_trial, variant));
  }
}

}  // namespace heddle
