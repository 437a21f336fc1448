#include "comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <limits>

#include "checkpoint.hpp"

namespace heddle {

namespace {

/// Sums over the elements of two tensors, in float64. All elements are finite: no other checkpoint is committed.
struct Sums {
  double max = 0;
  double squares_of_a = 0;
  double squares_of_difference = 0;

  void add(std::vector<float> const& a, std::vector<float> const& b) {
    for (std::size_t index = 0; index < a.size(); ++index) {
      double const own = a[index];
      double const difference = own - static_cast<double>(b[index]);
      max = std::max(max, std::abs(difference));
      squares_of_a += own * own;
      squares_of_difference += difference * difference;
    }
  }
  void add(Sums const& other) {
    max = std::max(max, other.max);
    squares_of_a += other.squares_of_a;
    squares_of_difference += other.squares_of_difference;
  }
  double relative() const {
    return squares_of_difference == 0 ? 0
           : squares_of_a == 0        ? std::numeric_limits<double>::infinity()
                                      : std::sqrt(squares_of_difference / squares_of_a);
  }
};

Sums compare_values(Checkpoint const& a, Checkpoint const& b, TensorInfo const& tensor) {
  Sums sums;
  for (TensorSlice const& slice : slabs_of(tensor)) {
    sums.add(a.read(slice), b.read(slice));
  }
  return sums;
}

/// The names of the parameters of `one` that `other` lacks.
std::vector<std::string> missing(Checkpoint const& one, Checkpoint const& other) {
  std::vector<std::string> names;
  for (TensorInfo const& tensor : one.tensors()) {
    if (!other.contains(tensor.name)) {
      names.push_back(tensor.name);
    }
  }
  return names;
}

}  // namespace

CheckpointDifference compare(Checkpoint const& a, Checkpoint const& b) {
  CheckpointDifference found{.config = differences(stored_config(a), stored_config(b)),
                             .vocabulary = a.contents().source_model != b.contents().source_model ||
                                           a.contents().target_model != b.contents().target_model,
                             .only_in_a = missing(a, b),
                             .only_in_b = missing(b, a)};
  Sums all;
  for (TensorInfo const& tensor : a.tensors()) {
    if (!b.contains(tensor.name)) {
      continue;
    }
    if (auto const& other = b.tensor(tensor.name).shape; other != tensor.shape) {
      found.shapes.push_back(
          fmt::format("{}: {} and {}", tensor.name, Shape(tensor.shape).to_string(), Shape(other).to_string()));
      continue;
    }
    Sums const sums = compare_values(a, b, tensor);
    found.all.name = sums.max > all.max ? tensor.name : found.all.name;
    all.add(sums);
    ++found.compared;
    if (sums.max > 0) {
      found.values.push_back({tensor.name, tensor.shape, sums.max, sums.relative()});
    }
  }
  found.all.max = all.max;
  found.all.relative = all.relative();
  return found;
}

std::string describe(CheckpointDifference const& difference) {
  std::string text;
  for (ConfigDifference const& key : difference.config) {
    text += fmt::format("{} = {} in a, {} in b\n", key.key, key.before, key.after);
  }
  text += difference.vocabulary ? "the vocabularies differ\n" : "";
  for (std::string const& name : difference.only_in_a) {
    text += fmt::format("only in a: {}\n", name);
  }
  for (std::string const& name : difference.only_in_b) {
    text += fmt::format("only in b: {}\n", name);
  }
  for (std::string const& shapes : difference.shapes) {
    text += fmt::format("shapes differ: {}\n", shapes);
  }
  std::size_t width = 0;
  for (TensorDifference const& tensor : difference.values) {
    width = std::max(width, tensor.name.size());
  }
  for (TensorDifference const& tensor : difference.values) {
    text += fmt::format("{:<{}}  max |a - b| {:<11.4g} relative norm {:<11.4g} {}\n", tensor.name, width, tensor.max,
                        tensor.relative, Shape(tensor.shape).to_string());
  }
  if (difference.none()) {
    return fmt::format("no difference in {} tensors\n", readable_count(difference.compared));
  }
  text += fmt::format("{} of {} tensors of equal shape differ", readable_count(std::ssize(difference.values)),
                      readable_count(difference.compared));
  return text + (difference.values.empty()
                     ? "\n"
                     : fmt::format(", at most by {:.4g} in {}; relative norm over all: {:.4g}\n", difference.all.max,
                                   difference.all.name, difference.all.relative));
}

}  // namespace heddle
