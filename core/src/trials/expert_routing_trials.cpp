#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <heddle/core/operations/expert_routing.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/core/trials/trials.hpp>
#include <numeric>
#include <vector>

namespace heddle {

namespace {

struct Variant {
  char const* name;
  std::int64_t rows, experts, chosen, columns;
  ExpertScoring scoring = ExpertScoring::softmax;
  bool normalized = false;
  std::int64_t capacity = 0;
  std::int64_t guards = 0;  ///< elements between rows of matrices
  bool biased = false;
};

constexpr std::array variants{Variant{"one expert each", 11, 4, 1, 37},
                              Variant{"weights that sum to one", 11, 5, 2, 131, ExpertScoring::softmax, true},
                              Variant{"guards between rows", 7, 5, 3, 8, ExpertScoring::softmax, false, 0, 3},
                              Variant{"sigmoid", 9, 6, 2, 20, ExpertScoring::sigmoid},
                              Variant{"sigmoid, weights that sum to one", 9, 6, 3, 20, ExpertScoring::sigmoid, true},
                              Variant{"a capacity", 13, 3, 2, 12, ExpertScoring::softmax, true, 5},
                              Variant{"a capacity of one", 9, 4, 1, 12, ExpertScoring::softmax, false, 1},
                              Variant{"a bias", 12, 5, 2, 12, ExpertScoring::softmax, true, 6, 0, true},
                              Variant{"sigmoid, a bias", 9, 6, 3, 20, ExpertScoring::sigmoid, false, 0, 0, true},
                              Variant{"all experts", 5, 3, 3, 10, ExpertScoring::softmax, true},
                              Variant{"one expert in all", 4, 1, 1, 6},
                              Variant{"more experts than choices", 3, 40, 2, 300},
                              Variant{"no rows", 0, 4, 2, 6}};

constexpr ExpertLossFactors factors{.balance = 0.3, .z = 0.05};

/// The right results of a routing and the sum of its losses, by the definitions.
struct Expected {
  std::vector<double> scores, chosen, weights, row, place, load, counts;
  double loss = 0;
};

std::vector<double> scores_of(std::vector<double> const& logits, ExpertScoring scoring) {
  std::vector<double> scores;
  double sum = 0;
  for (double const logit : logits) {
    scores.push_back(scoring == ExpertScoring::softmax ? std::exp(logit) : 1 / (1 + std::exp(-logit)));
    sum += scores.back();
  }
  if (scoring == ExpertScoring::softmax) {
    std::ranges::for_each(scores, [sum](double& score) { score /= sum; });
  }
  return scores;
}

/// Logits that differ by at least a quarter in a row, so that small changes choose no other experts.
std::vector<double> make_logits(Variant const& variant) {
  std::vector<double> logits;
  for (std::int64_t row = 0; row < variant.rows; ++row) {
    std::int64_t const step = row % 2 == 0 ? 1 : variant.experts - 1;
    for (std::int64_t expert = 0; expert < variant.experts; ++expert) {
      std::int64_t const rank = (expert * step + row * row) % variant.experts;
      logits.push_back(0.25 * static_cast<double>((1 + row % 3) * rank) - 0.75);
    }
  }
  return logits;
}

/// A bias for each expert, by which the choice is another one than by the scores alone.
std::vector<double> make_bias(Variant const& variant) {
  std::vector<double> bias;
  for (std::int64_t expert = 0; variant.biased && expert < variant.experts; ++expert) {
    bias.push_back(0.37 * static_cast<double>((2 * expert + 1) % variant.experts) - 0.5);
  }
  return bias;
}

/// `place` and `row`, after chosen experts and counts are known.
void assign_places(Variant const& variant, Expected& expected) {
  std::vector<double> taken(static_cast<std::size_t>(variant.experts));
  std::vector<bool> kept(expected.chosen.size());
  auto const index_of = [&](std::int64_t r, std::int64_t j) {
    return static_cast<std::size_t>(r * variant.chosen + j);
  };
  for (std::int64_t j = 0; j < variant.chosen; ++j) {
    for (std::int64_t r = 0; r < variant.rows; ++r) {
      double& count = taken[static_cast<std::size_t>(expected.chosen[index_of(r, j)])];
      kept[index_of(r, j)] = variant.capacity == 0 || count < static_cast<double>(variant.capacity);
      count += kept[index_of(r, j)] ? 1 : 0;
    }
  }
  expected.counts = taken;
  expected.place.assign(expected.chosen.size(), -1);
  for (std::int64_t expert = 0; expert < variant.experts; ++expert) {
    for (std::int64_t r = 0; r < variant.rows; ++r) {
      for (std::int64_t j = 0; j < variant.chosen; ++j) {
        if (kept[index_of(r, j)] && expected.chosen[index_of(r, j)] == static_cast<double>(expert)) {
          expected.place[index_of(r, j)] = static_cast<double>(expected.row.size());
          expected.row.push_back(static_cast<double>(r));
        }
      }
    }
  }
  expected.row.resize(expected.chosen.size(), -1);
}

Expected expected_of(Variant const& variant, std::vector<double> const& logits) {
  std::vector<double> const bias = make_bias(variant);
  auto const experts = static_cast<std::size_t>(variant.experts);
  Expected expected;
  expected.load.assign(experts, 0);
  std::vector<double> shares(experts);  // sums over rows of the scores' shares
  for (auto begin = logits.begin(); begin != logits.end(); begin += variant.experts) {
    std::vector<double> const row(begin, begin + variant.experts);
    std::vector<double> const scores = scores_of(row, variant.scoring);
    expected.scores.insert(expected.scores.end(), scores.begin(), scores.end());
    std::vector<std::size_t> order(experts);
    std::iota(order.begin(), order.end(), std::size_t{0});
    auto const key = [&](std::size_t expert) { return bias.empty() ? row[expert] : scores[expert] + bias[expert]; };
    std::ranges::stable_sort(order, std::greater(), key);
    order.resize(static_cast<std::size_t>(variant.chosen));
    double const chosen_sum = std::accumulate(order.begin(), order.end(), 0.0,
                                              [&](double sum, std::size_t expert) { return sum + scores[expert]; });
    for (std::size_t const expert : order) {
      expected.chosen.push_back(static_cast<double>(expert));
      expected.weights.push_back(scores[expert] / (variant.normalized ? chosen_sum : 1));
      expected.load[expert] += 1;
    }
    double const sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    double exponentials = 0;
    for (std::size_t expert = 0; expert < experts; ++expert) {
      shares[expert] += scores[expert] / sum;
      exponentials += std::exp(row[expert]);
    }
    expected.loss += factors.z * std::log(exponentials) * std::log(exponentials);
  }
  auto const choices = static_cast<double>(variant.rows * variant.chosen);
  for (std::size_t expert = 0; choices > 0 && expert < experts; ++expert) {
    expected.loss += factors.balance * static_cast<double>(experts) * expected.load[expert] / choices * shares[expert];
  }
  assign_places(variant, expected);
  return expected;
}

Trial<ExpertRouting> make_trial(Variant const& variant, TrialTensors& tensors, DType dtype) {
  DType const real = statistics_dtype(dtype);
  Shape const choices{variant.rows, variant.chosen};
  tensors.strided(variant.guards);
  ExpertRoutingCall const call{tensors.given(real, {variant.rows, variant.experts}, make_logits(variant)),
                               variant.chosen,
                               variant.scoring,
                               variant.normalized,
                               variant.capacity,
                               variant.biased ? tensors.given(real, {variant.experts}, make_bias(variant)) : Tensor()};
  Expected const expected = expected_of(variant, to_doubles(call.logits));
  auto const integers = [&](Shape const& shape) {
    return tensors.updated(DType::int32, shape, std::vector<double>(static_cast<std::size_t>(shape.size()), -5));
  };
  ExpertRoutes const routes{.scores = tensors.output(real, call.logits.shape()),
                            .chosen = integers(choices),
                            .weights = tensors.output(real, choices),
                            .row = integers({choices.size()}),
                            .place = integers(choices),
                            .load = tensors.output(DType::float64, {variant.experts}),
                            .counts = integers({variant.experts}),
                            .host_counts = Tensor::allocate_on_host(DType::int32, {variant.experts})};
  auto const places = static_cast<std::int64_t>(std::accumulate(expected.counts.begin(), expected.counts.end(), 0.0));
  Shape const results{variant.rows, variant.columns};
  tensors.strided(variant.guards);
  Tensor const from = tensors.input(dtype, {places, variant.columns});
  tensors.strided(variant.guards);
  Tensor const to = tensors.output(dtype, results);
  Tensor const upstream = tensors.input(dtype, results);
  Tensor const loss = tensors.output(DType::float64, {1});
  Tensor const grad_weights = tensors.output(real, choices);
  Tensor const grad_from = tensors.output(dtype, from.shape());
  Tensor const grad_logits = tensors.output(dtype, call.logits.shape());
  Tensor const unweighted = tensors.output(dtype, results);

  Trial<ExpertRouting> trial{.problem = {dtype, variant.experts, variant.chosen}};
  trial.forward = [=](ExpertRouting& kernel, Execution& execution) {
    kernel.route(execution, call, routes);
    kernel.losses(execution, call, routes, factors, loss);
    kernel.combine(execution, routes.place, routes.weights, from, to);
    kernel.combine(execution, routes.place, Tensor(), from, unweighted);
  };
  trial.backward = [=](ExpertRouting& kernel, Execution& execution) {
    kernel.combine_backward(execution, routes, from, upstream, grad_from, grad_weights);
    kernel.backward(execution, call, routes, factors, grad_weights, grad_logits);
  };
  trial.outputs = {{.name = "scores", .value = routes.scores, .expected = expected.scores},
                   {.name = "experts", .value = routes.chosen, .expected = expected.chosen},
                   {.name = "weights", .value = routes.weights, .expected = expected.weights},
                   {.name = "rows", .value = routes.row, .expected = expected.row},
                   {.name = "places", .value = routes.place, .expected = expected.place},
                   {.name = "load", .value = routes.load, .expected = expected.load},
                   {.name = "counts", .value = routes.counts, .expected = expected.counts},
                   {.name = "counts on the host", .value = routes.host_counts, .expected = expected.counts},
                   {.name = "losses",
                    .value = loss,
                    .upstream = tensors.given(DType::float64, {1}, {1}),
                    .expected = {expected.loss}},
                   {.name = "combined rows", .value = to, .upstream = upstream},
                   {.name = "sums of rows", .value = unweighted}};
  trial.gradients = {{"logits", call.logits, grad_logits}, {"rows", from, grad_from}};
  return trial;
}

}  // namespace

void add_expert_routing_trials(KernelRegistries& registries) {
  auto& registry = registries.of<ExpertRouting>();
  for (Variant const& variant : variants) {
    registry.add_trial(fmt::format("{}, {} x {}, {} of {} experts", variant.name, variant.rows, variant.columns,
                                   variant.chosen, variant.experts),
                       std::bind_front(make_trial, variant));
  }
}

}  // namespace heddle
