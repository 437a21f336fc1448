#pragma once

#include <cstdint>
#include <functional>
#include <heddle/core/checks/check.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Numbers from [-range, range), the same ones for the same name.
std::vector<double> random_numbers(std::int64_t count, std::string_view name, double range = 1);

/// The largest |actual - expected| / (1 + |expected|) of a tensor, and the element that has it.
struct Difference {
  double error = 0;
  std::string text;  ///< "output: element 3 is 1.5 instead of 1"
};

/// Infinities must be equal; NaN never is, and gives an infinite error.
Difference difference(std::string const& name, std::vector<double> const& actual, std::vector<double> const& expected);

/// A variable of a function, and the gradient to check.
struct Directional {
  std::string name;
  std::vector<double> point;     ///< the variable's values
  std::vector<double> gradient;  ///< at that point
  /// The function's value where the variable has other values.
  std::function<double(std::vector<double> const& values)> value_at;
};

/// Compares the gradient with central differences of the function, along two random directions: every element of the
/// variable is changed at once, so that an error of any element is found in two evaluations for each direction.
Difference central_difference(Directional const& directional);

/// Takes a comparison into a result: into its output_error or gradient_error, which is the largest so far, and, where
/// it exceeds the tolerance, into the fault, which is the first.
void note(Difference const& here, double CheckResult::*error, CheckResult& found);

/// Σ weights ∘ values.
double weighted_sum(std::vector<double> const& weights, std::vector<double> const& values);

}  // namespace heddle
