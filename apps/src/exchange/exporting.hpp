#pragma once

#include <filesystem>
#include <string>

#include "inference/trained_model.hpp"

namespace heddle {

struct Execution;

struct ExportOptions {
  TrainedModelOptions model;
  std::string family;             ///< model_type of config.json; "": the one that it came from, or the first that fits
  std::string dtype = "float32";  ///< of the tensors: float32, bfloat16 or float16
  std::filesystem::path directory;
};

struct ExportedModel {
  std::filesystem::path checkpoint;
  std::string family;
  std::int64_t tensors = 0;
  double largest_difference = 0;  ///< of a logit of the probe, between the checkpoint and the files as read back
};

/// Writes a checkpoint's model so that transformers reads it. It appears in its directory only when it has been read
/// back and gives the same logits on a probe batch. Throws ConfigError for a model that no family has, which names the
/// key that stands in the way, Error where the directory exists or the logits differ.
ExportedModel export_model(Execution& execution, ExportOptions const& options);

}  // namespace heddle
