#pragma once

#include <filesystem>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parallel/tensor_stream.hpp>
#include <heddle/io/checkpoint/manifest.hpp>
#include <string_view>
#include <vector>

#include "tensor_files.hpp"

namespace heddle {

/// The ranks that write the tensors' files, ascending: `wanted` of them, evenly spread, or if that is 0 the first one
/// on each host. Collective over `world`.
std::vector<int> choose_writers(Communicator const& world, std::int64_t wanted);

/// Streams the tensors to their writers, each of which writes its file in `directory`, syncs it, reads it back and
/// compares it with the digests of what was in memory. Returns the digests of all files, on every rank. If a writer
/// fails, or a number is one that must not be kept (ExitCode::loss_not_finite), all ranks throw the same Error. A rank
/// needs memory for some chunks of at most 4 MiB. Calls `reached` on writers only. Collective over `world`.
std::vector<FileDigest> write_tensor_files(Communicator const& world, std::vector<int> const& writers,
                                           TensorFiles const& planned, TensorStream& tensors,
                                           std::filesystem::path const& directory,
                                           std::function<void(std::string_view)> const& reached);

}  // namespace heddle
