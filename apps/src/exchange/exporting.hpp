#pragma once

#include <boost/json/object.hpp>
#include <filesystem>
#include <heddle/io/families/family.hpp>
#include <heddle/io/formats/safetensors.hpp>
#include <heddle/model.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

struct Execution;

struct ExportOptions {
  TrainedModelOptions model;
  std::string format = "huggingface";  ///< or "safetensors" (Heddle's own names), "heddle", "marian", "ctranslate2",
                                       ///< "peft" (the adapters alone)
  bool merge = false;                  ///< adapters are folded into the weights
  std::string family;     ///< model_type of config.json; "": the one that it came from, or the first that fits
  std::string base = {};  ///< for "peft": the base model's name; "": the one that it had where it was imported
  std::int64_t max_shard_bytes = SafetensorsWriter::default_shard_bytes;  ///< of a file of tensors
  std::string dtype = "float32";  ///< of the tensors: float32, bfloat16 or, except in "heddle", float16; for
                                  ///< CTranslate2 also int8 or int16
  std::filesystem::path directory;
};

struct ExportedModel {
  std::filesystem::path checkpoint;
  std::string family;
  std::int64_t tensors = 0;
  /// The difference of a logit of the probe, between the checkpoint and the files as read back; nothing where Heddle
  /// does not read them.
  std::optional<double> largest_difference = {};
};

/// The first family with the model's stacks that has all of its keys, else the one with the fewest obstacles, and
/// these. Families that cannot have the vocabulary come after the others. Null where no family has these stacks.
std::pair<Family const*, std::vector<std::string>> nearest_family(Config const& config, Vocabulary const& vocabulary);

/// A family, and a model as the family has it.
struct FamilyForm {
  Family const& family;
  Config config;  ///< in_form_of
  boost::json::object config_json;
};

/// The family to export to: `wanted`, or the one that the model came from, or the first that has it. Throws
/// ConfigError, with all keys that stand in the way, where it does not fit: those of the nearest family where none has
/// it.
FamilyForm choose_family(std::string wanted, Checkpoint const& checkpoint, Config const& config);
/// Throws ConfigError where the family's form is another one: adapters are exchanged as they are.
void require_same_form(FamilyForm const& chosen, Config const& config);

/// Writes a checkpoint's model so that transformers, Marian or CTranslate2 reads it, or for Heddle itself as a
/// checkpoint that has only the model. It appears in its directory when it is complete, on the disk and, except for
/// CTranslate2, read back: it gives the same logits on a probe batch. Throws
/// UsageError for an unknown format and for options that it has not, ConfigError where the directory exists and for a
/// model that no family has, which names the keys that stand in the way, or with adapters that are not merged, Error
/// where the logits differ. For one rank.
ExportedModel export_model(Execution& execution, ExportOptions const& options);

}  // namespace heddle
