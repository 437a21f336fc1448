#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/random.hpp>
#include <heddle/core/checks/compare.hpp>
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

/// The usual reasons for NaN in a result.
constexpr char const* unwritten = "it was not written, or was computed from memory outside of the tensors";

std::string describe(std::string const& name, std::size_t element, double actual, double expected) {
  std::string const which = fmt::format("{}: element {}", name, element);
  if (std::isnan(actual)) {
    return std::isnan(expected) ? fmt::format("{} is not a number, neither here nor in float64: {}", which, unwritten)
                                : fmt::format("{} is not a number instead of {:.6g}: {}", which, expected, unwritten);
  }
  if (std::isnan(expected)) {
    return fmt::format("{} is {:.6g}, but not a number in float64, with which it is compared", which, actual);
  }
  return fmt::format("{} is {:.6g} instead of {:.6g}", which, actual, expected);
}

std::string describe(std::string const& name, double along, double central_difference) {
  if (std::isnan(along)) {
    return fmt::format("{}: an element is not a number: {}", name, unwritten);
  }
  if (std::isnan(central_difference)) {
    return fmt::format("{}: there is no central difference, because forward gives an element that is not a number: {}",
                       name, unwritten);
  }
  return fmt::format("{}: along a direction {:.9g} instead of the central difference {:.9g}", name, along,
                     central_difference);
}

std::vector<double> random_direction(std::size_t size, std::uint64_t seed) {
  std::vector<double> direction(size);
  for (std::size_t i = 0; i < size; ++i) {
    direction[i] = (Philox::words(seed, {static_cast<std::uint32_t>(i), 0, 0, 0})[0] & 1U) != 0 ? 1 : -1;
  }
  return direction;
}

}  // namespace

std::vector<double> random_numbers(std::int64_t count, std::string_view name, double range) {
  std::uint64_t const key = random_key(0, name);
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t const word = Philox::words(key, {static_cast<std::uint32_t>(i), 0, 0, 0})[0];
    numbers.push_back(range * (word / 2147483648.0 - 1));
  }
  return numbers;
}

Difference difference(std::string const& name, std::vector<double> const& actual, std::vector<double> const& expected) {
  if (actual.size() != expected.size()) {
    return {std::numeric_limits<double>::infinity(),
            fmt::format("{}: {} elements instead of {}", name, actual.size(), expected.size())};
  }
  Difference worst;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    double const error = error_of(actual[i], expected[i]);
    if (error > worst.error) {
      worst = {error, describe(name, i, actual[i], expected[i])};
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
      worst = {error, describe(directional.name, actual, expected)};
    }
  }
  return worst;
}

void note(Difference const& here, double CheckResult::*error, CheckResult& found) {
  found.*error = std::max(found.*error, here.error);
  if (here.error <= found.tolerance || !found.fault.empty()) {
    return;
  }
  found.fault = here.text;
  if (std::isfinite(here.error)) {
    found.fault += fmt::format(": an error of {:.3g}, more than the tolerance {:.3g}", here.error, found.tolerance);
  }
}

double weighted_sum(std::vector<double> const& weights, std::vector<double> const& values) {
  return std::inner_product(weights.begin(), weights.end(), values.begin(), 0.0);
}

}  // namespace heddle
