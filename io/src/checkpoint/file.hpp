#pragma once

#include <filesystem>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/checkpoint/manifest.hpp>

/// The HDF5 file inside a checkpoint directory; docs/checkpoint-format.md describes it.
namespace heddle {

inline constexpr char const* state_file_name = "state.h5";

char const* part_name(Checkpoint::Part part);

/// Throws DataError (with the difference) unless names, shapes and lengths match.
void check_contents(CheckpointContents const& contents);

/// Writes and closes a new file; it is not yet synced.
void write_state_file(std::filesystem::path const& path, CheckpointContents const& contents);

/// Reads everything but the tensors' elements. Throws DataError if the file is not of this format.
CheckpointIndex read_index(hdf5::File const& file);

/// Reads the file back, compares all bytes with memory and returns their digest: the elements as raw bytes in the
/// blocks that are hashed, everything else through HDF5. Throws DataError at the first difference.
FileDigest read_back_state_file(std::filesystem::path const& path, CheckpointContents const& contents);

}  // namespace heddle
