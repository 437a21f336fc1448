#pragma once

#include <filesystem>
#include <functional>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parallel/tensor_stream.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <string_view>
#include <vector>

#include "tensor_files.hpp"

namespace heddle {

/// The files that write_tensor_files writes, and how.
struct TensorWriting {
  std::vector<int> const& writers;  ///< the ranks that write the files, in their order: ascending
  TensorFiles const& planned;
  std::filesystem::path directory;  ///< each writer's own
  bool durable = true;              ///< files are synced to the disk and read back
  std::function<void(std::string_view)> reached = [](std::string_view) {};
};

/// Seconds of the slowest rank.
struct WriteTimes {
  double all = 0;        ///< from the first chunk to the end of fsync
  double write = 0;      ///< writing and fsync, while chunks arrive
  double digest = 0;     ///< hashing, in the same thread
  double read_back = 0;  ///< reading back and comparing
};

struct WrittenTensors {
  std::vector<FileDigest> files;
  WriteTimes times;
};

/// Streams the tensors to their writers, each of which writes its file in its directory, syncs it, reads it back and
/// compares it with the digests of what was in memory. Returns the digests of all files and the times, on every rank.
/// If a writer fails, or a number is one that must not be kept (ExitCode::loss_not_finite), all ranks throw the same
/// Error. A rank needs memory for some chunks of at most 4 MiB. Calls `reached` on writers only. Collective over
/// `world`.
WrittenTensors write_tensor_files(Communicator const& world, TensorWriting const& writing, TensorStream& tensors);

}  // namespace heddle
