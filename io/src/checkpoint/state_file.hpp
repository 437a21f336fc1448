#pragma once

#include <cstdint>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <span>
#include <string>
#include <vector>

/// The HDF5 file inside a checkpoint directory that holds everything but the tensors' elements;
/// docs/checkpoint-format.md describes it.
namespace heddle {

inline constexpr char const* state_file_name = "state.h5";

/// The file's bytes, which HDF5 wrote in memory. Equal content makes equal bytes.
std::string state_file_bytes(CheckpointIndex const& index);

/// Reads the file from memory. Throws DataError, which names `path`, if it is not of this format, or holds numbers that
/// no training leaves. The places of tensors are checked against the files' lengths.
CheckpointIndex read_state_file(std::span<std::uint8_t const> bytes, std::string const& path,
                                std::vector<std::int64_t> const& file_bytes);

}  // namespace heddle
