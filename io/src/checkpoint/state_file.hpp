#pragma once

#include <cstdint>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <span>
#include <string>
#include <vector>

/// The HDF5 file inside a checkpoint directory that holds everything but the tensors' elements;
/// docs/reference/checkpoint-format.md describes it.
namespace heddle {

inline constexpr char const* state_file_name = "state.h5";

/// The file's bytes, which HDF5 wrote in memory. Equal content makes equal bytes.
std::string state_file_bytes(CheckpointIndex const& index);

/// The largest state file that is read: the limits of its parts, of which reading it needs a few copies.
inline constexpr std::int64_t max_state_bytes = std::int64_t{320} << 20;

/// Reads the file from memory. Throws DataError, which names `path`, if it is not of this format, holds numbers that no
/// training leaves, or has a part that is larger than any model's. The places of tensors are checked against the files'
/// lengths, which they must fill.
CheckpointIndex read_state_file(std::span<std::uint8_t const> bytes, std::string const& path,
                                std::vector<std::int64_t> const& file_bytes);

}  // namespace heddle
