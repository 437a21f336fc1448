#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/io/tensors/manifest.hpp>
#include <optional>
#include <span>
#include <vector>

#include "files/direct_file.hpp"
#include "parallel/run_collectively.hpp"

namespace heddle {

/// A new file that is written sequentially, and hashed from the same memory, by a thread that does nothing
/// else (no MPI, no HDF5) while its owner fills the next buffer.
class FileWriter {
 public:
  /// Throws Error if the file exists or cannot be made.
  explicit FileWriter(std::filesystem::path const& path);

  /// The bytes queued so far.
  std::int64_t position() const { return position_; }
  /// Memory for the next bytes. Without `queue` the next call returns the same.
  std::span<std::uint8_t> buffer(std::size_t bytes);
  /// Queues the bytes of the last `buffer`. Throws the error of bytes that were queued before.
  void queue();

  /// Waits until everything is written, then, if `durable`, until it is on the disk. Throws the first error of the
  /// writing.
  FileDigest finish(bool durable);

  /// After `finish`: seconds spent on hashing, and on writing and fsync.
  double digest_seconds() const { return digest_seconds_; }
  double write_seconds() const { return write_seconds_; }

 private:
  /// Bytes in a vector that does not shrink, so that its memory is used again.
  struct Buffer {
    std::vector<std::uint8_t> memory;
    std::size_t filled = 0;
  };

  /// Waits for the thread, and throws its error.
  void wait();
  /// Hands the buffer to a thread.
  void start();
  void write(std::span<std::uint8_t const> bytes);

  DirectFile file_;
  std::int64_t position_ = 0;
  Buffer filling_;
  std::size_t latest_ = 0;  ///< bytes of the last `buffer`

  // The thread's own, until it has ended.
  Buffer writing_;
  FileHash hash_;
  double digest_seconds_ = 0;
  double write_seconds_ = 0;

  std::optional<BackgroundThread> thread_;  ///< the last member: it ends before those that it uses
};

}  // namespace heddle
