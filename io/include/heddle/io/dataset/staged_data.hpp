#pragma once

#include <filesystem>
#include <functional>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Datasets' files that each host of a run has in a directory of its own.
struct StagedData {
  DatasetCopies copies{};               ///< of this host
  std::string summary{};                ///< what was copied, in what time
  std::vector<std::string> warnings{};  ///< why a host reads a file in place
};

/// Copies files into a directory of every host, DIRECTORY/heddle-datasets-UID: the first rank of the host does, the
/// others wait. A copy's name has the file's size, time and digest in it, so that a later start and other jobs use it;
/// only one process of a host copies at a time. The bytes of a new copy are compared, by SHA-256, with what was read
/// from the file, as they come back from the disk; a copy that was there has the size and the dataset's digest of the
/// file, and each block of it is compared with its digest when it is read. A host that cannot copy a file reads the
/// file itself, which is a warning. Calls `progress` again and again while it copies or waits. Throws nothing of files.
/// Collective over `world`.
StagedData stage_datasets(std::vector<std::string> const& files, std::filesystem::path const& directory,
                          Communicator const& world, std::function<void()> const& progress);

}  // namespace heddle
