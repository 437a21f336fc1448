#pragma once

#include <heddle/io/checkpoint/checkpoint.hpp>
#include <span>
#include <vector>

#include "new_run.hpp"

namespace heddle {

/// Checkpoints of one model, often only one, and the mean of their parameters.
class AveragedModel {
 public:
  /// `weights` has a number above 0 for each checkpoint, whose part in the mean is its share of their sum; empty: all
  /// count the same. Throws ConfigError where a key of [model] differs between the checkpoints, DataError for other
  /// parameters, shapes or vocabularies.
  explicit AveragedModel(std::vector<Checkpoint> checkpoints, std::vector<double> weights = {});

  /// The first one, whose configuration, vocabulary and origin are those of the model.
  Checkpoint const& first() const { return checkpoints_.front(); }

  /// Whether all of them read the parameter from the same base.
  bool in_base(std::string const& name) const;

  /// The mean of these elements of the parameters' values, summed in float64; of one checkpoint its own numbers. Throws
  /// as Checkpoint::read does.
  std::vector<float> read(TensorSlice const& slice) const;
  /// The same for many slices, which are of all elements.
  void read(std::span<SliceInto const> wanted) const;

 private:
  std::vector<Checkpoint> checkpoints_;
  std::vector<double> weights_;
};

/// The parameters of `model`, to which it keeps a reference, to write a checkpoint without optimizer state. `dtype` is
/// the dtype of the written files. Throws as AveragedModel::read does.
MadeTensors averaged_tensors(AveragedModel const& model, DType dtype = DType::float32);

}  // namespace heddle
