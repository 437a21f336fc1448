#include <algorithm>
#include <cmath>
#include <functional>
#include <heddle/core/parameters/choice_counts.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <numeric>

namespace heddle {

void balance(ChoiceCounts const& layer, std::span<double const> choices) {
  std::vector<double> bias = to_doubles(layer.bias->value);
  double const total = std::reduce(choices.begin(), choices.end());
  for (std::size_t expert = 0; expert < bias.size(); ++expert) {
    double const missing = total - static_cast<double>(bias.size()) * choices[expert];
    bias[expert] += missing == 0 ? 0 : std::copysign(layer.bias_rate, missing);
  }
  copy_from_doubles(layer.bias->value, bias);
  ++layer.bias->version;
}

void ExpertLoad::add(ExpertLoad const& more) {
  choices.resize(more.choices.size());
  std::ranges::transform(choices, more.choices, choices.begin(), std::plus());
  dropped += more.dropped;
}

double ExpertLoad::total() const {
  return std::reduce(choices.begin(), choices.end());
}

double ExpertLoad::entropy() const {
  double const all = total();
  double entropy = 0;
  for (double const count : choices) {
    entropy -= count > 0 ? count / all * std::log(count / all) : 0;
  }
  return choices.size() > 1 ? entropy / std::log(static_cast<double>(choices.size())) : 1;
}

}  // namespace heddle
