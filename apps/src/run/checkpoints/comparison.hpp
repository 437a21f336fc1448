#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The values of a parameter that two checkpoints have with one shape.
struct TensorDifference {
  std::string name;
  std::vector<std::int64_t> shape;
  double max = 0;       ///< the largest |a - b|
  double relative = 0;  ///< the norm of a - b, divided by that of a; infinite where only a is zero
};

struct CheckpointDifference {
  std::vector<ConfigDifference> config;
  bool vocabulary = false;                  ///< whether the vocabularies differ
  std::vector<std::string> only_in_a = {};  ///< names of parameters
  std::vector<std::string> only_in_b = {};
  std::vector<std::string> shapes = {};       ///< "NAME: [2, 3] and [3, 2]"
  std::vector<TensorDifference> values = {};  ///< of parameters whose values differ, in the order of `a`
  TensorDifference all = {};  ///< over all parameters with one shape; its name is that of the largest |a - b|
  std::int64_t compared = 0;  ///< the number of these parameters

  bool none() const {
    return config.empty() && !vocabulary && only_in_a.empty() && only_in_b.empty() && shapes.empty() && values.empty();
  }
};

/// Compares configurations, vocabularies and the values of parameters, which are read in blocks: the memory needed does
/// not grow with the model. Throws as Checkpoint::read and stored_config do.
CheckpointDifference compare(Checkpoint const& a, Checkpoint const& b);

/// The difference in lines of text, "no difference in 12 tensors" where there is none.
std::string describe(CheckpointDifference const& difference);

}  // namespace heddle
