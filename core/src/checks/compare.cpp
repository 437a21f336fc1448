#include "compare.hpp"

#include <fmt/format.h>

#include <cmath>
#include <heddle/core/base/random.hpp>
#include <limits>
#include <numeric>

namespace heddle {

namespace {

double error_of(double actual, double expected) {
  if (actual == expected) {
    return 0;
  }
  double const error = std::abs(actual - expected) / (1 + std::abs(expected));
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

/// -1 or 1 for each element.
std::vector<double> random_direction(std::size_t size, std::uint64_t seed) {
  std::vector<double> direction(size);
  for (std::size_t i = 0; i < size; ++i) {
    direction[i] = (Philox::words(seed, {static_cast<std::uint32_t>(i), 0, 0, 0})[0] & 1U) != 0 ? 1 : -1;
  }
  return direction;
}

}  // namespace

Difference difference(std::string const& name, std::vector<double> const& actual, std::vector<double> const& expected) {
  if (actual.size() != expected.size()) {
    return {std::numeric_limits<double>::infinity(),
            fmt::format("{}: {} elements instead of {}", name, actual.size(), expected.size())};
  }
  Difference worst;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    double const error = error_of(actual[i], expected[i]);
    if (error > worst.error) {
      worst = {error, fmt::format("{}: element {} is {:.6g} instead of {:.6g}", name, i, actual[i], expected[i])};
    }
  }
  return worst;
}

Difference central_difference(Directional const& directional) {
  constexpr double step = 1e-5;
  constexpr std::uint64_t directions = 2;
  Difference worst;
  for (std::uint64_t seed = 1; seed <= directions; ++seed) {
    std::vector<double> const direction = random_direction(directional.point.size(), seed);
    auto const value = [&](double distance) {
      std::vector<double> values = directional.point;
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] += distance * direction[i];
      }
      return directional.value_at(values);
    };
    double const expected = (value(step) - value(-step)) / (2 * step);
    double const actual = weighted_sum(directional.gradient, direction);
    double const error = error_of(actual, expected);
    if (error > worst.error) {
      worst = {error, fmt::format("{}: along a direction {:.9g} instead of the central difference {:.9g}",
                                  directional.name, actual, expected)};
    }
  }
  return worst;
}

double weighted_sum(std::vector<double> const& weights, std::vector<double> const& values) {
  return std::inner_product(weights.begin(), weights.end(), values.begin(), 0.0);
}

}  // namespace heddle
