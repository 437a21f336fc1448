#pragma once

#include <filesystem>
#include <heddle/core/parallel/tensor_stream.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>

namespace heddle {

/// The contents of a run's first checkpoint that is made of another run's: its configuration, vocabulary and origin,
/// without anything of its training.
CheckpointContents contents_of_new_run(std::filesystem::path const& run, Checkpoint const& from);

/// Writes a run that was not trained here but made: its only checkpoint and beside it the configuration, config.toml,
/// and the vocabulary, source.model and target.model. `directory` is a PendingDirectory's. Returns the checkpoint's
/// directory, relative to the run's. Throws DataError where the tensors cannot be read, else as CheckpointStore::commit
/// does. For one rank.
std::filesystem::path write_new_run(std::filesystem::path const& directory, CheckpointContents const& contents,
                                    TensorStream& tensors);

}  // namespace heddle
