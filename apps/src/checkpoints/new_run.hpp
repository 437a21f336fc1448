#pragma once

#include <filesystem>
#include <heddle/core/parallel/tensor_stream.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>

namespace heddle {

/// Throws UsageError, which names --out, where there is a run or anything but an empty directory.
void require_new_run(std::filesystem::path const& run);

/// The directory of a new run: it is removed again, with the parents that it had not, unless it is kept.
class NewPlace {
 public:
  explicit NewPlace(std::filesystem::path directory);
  ~NewPlace();
  NewPlace(NewPlace const&) = delete;
  NewPlace& operator=(NewPlace const&) = delete;

  void keep() { made_.clear(); }

 private:
  std::filesystem::path made_;
};

/// The contents of a run's first checkpoint that is made of another run's: its configuration, vocabulary and origin,
/// without anything of its training.
CheckpointContents contents_of_new_run(std::filesystem::path const& run, Checkpoint const& from);

/// Writes a run that was not trained here but made: its only checkpoint and beside it the configuration, config.toml,
/// and the vocabulary, source.model and target.model. Returns the checkpoint's directory. Throws as
/// CheckpointStore::commit does. For one rank.
std::filesystem::path write_new_run(std::filesystem::path const& run, CheckpointContents const& contents,
                                    TensorStream& tensors);

}  // namespace heddle
