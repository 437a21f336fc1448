#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/io/hdf5/hdf5.hpp>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// The state of a training run apart from its parameters. Random numbers are counter-based: their whole state is seed
/// and step.
struct TrainingState {
  std::int64_t step = 0;      ///< optimizer steps done
  std::int64_t epoch = 0;     ///< of the next batch
  std::int64_t position = 0;  ///< the next sentence pair in that epoch's order
  std::int64_t tokens = 0;    ///< real source and target tokens seen so far
  std::uint64_t seed = 0;
  double seconds = 0;  ///< spent in training so far, over all restarts
  double best_valid_loss = 0;
  std::int64_t best_step = 0;
  std::int64_t validations_without_improvement = 0;
};

/// A parameter to be written: whole, unsharded, row major, with Adam's moments (both empty: left out).
struct CheckpointTensor {
  std::string name;  ///< "encoder.layers.0.self_attention.q.weight"; without '/'
  std::vector<std::int64_t> shape;
  std::span<float const> value, first_moment, second_moment;
};

struct CheckpointContents {
  TrainingState state;
  std::string config;                      ///< the resolved configuration, TOML
  std::string source_model, target_model;  ///< SentencePiece models' bytes
  std::string instruction_set = {};        ///< of the kernels that computed it, in words; empty: unknown
  std::vector<CheckpointTensor> tensors;
};

struct TensorInfo {
  std::string name;
  std::vector<std::int64_t> shape;
  bool has_moments = false;
};

/// The content of a state file except its tensors' elements.
struct CheckpointIndex {
  TrainingState state;
  std::string config, source_model, target_model, instruction_set;
  std::vector<TensorInfo> tensors;  ///< in the order of their names
};

/// A checkpoint directory whose bytes have all been verified against its manifest, open for reading. Not collective:
/// any process may open any checkpoint; if ranks must agree, one of them chooses and verifies.
class Checkpoint {
 public:
  enum class Part { value, first_moment, second_moment };

  /// Verifies every byte, then opens. Throws DataError with the name of the file and the error.
  static Checkpoint open(std::filesystem::path const& directory);

  /// Opens a checkpoint that another process of this job has just verified; checks only the manifest and the files'
  /// lengths.
  static Checkpoint open_verified_elsewhere(std::filesystem::path const& directory);

  std::filesystem::path const& directory() const { return directory_; }
  TrainingState const& state() const { return index_.state; }
  std::string const& config() const { return index_.config; }
  std::string const& source_model() const { return index_.source_model; }
  std::string const& target_model() const { return index_.target_model; }
  /// The instruction set of the kernels that computed it, in words; empty if unknown.
  std::string const& instruction_set() const { return index_.instruction_set; }
  std::vector<TensorInfo> const& tensors() const { return index_.tensors; }
  bool contains(std::string const& name) const { return by_name_.contains(name); }
  /// Throws DataError if the checkpoint has no such tensor.
  TensorInfo const& tensor(std::string const& name) const;

  /// Reads the whole tensor, row major. Throws DataError if it is missing, or if it is a moment and the model was
  /// exported without.
  std::vector<float> read(std::string const& name, Part part) const;

  /// Reads `count` indices from `begin` along `axis`, all of the other axes, row major; axis -1 reads the whole
  /// tensor.
  std::vector<float> read(std::string const& name, Part part, int axis, std::int64_t begin, std::int64_t count) const;

 private:
  Checkpoint(std::filesystem::path directory, std::int64_t step);

  std::filesystem::path directory_;
  hdf5::File file_;
  CheckpointIndex index_;
  std::map<std::string, std::size_t> by_name_;
};

}  // namespace heddle
