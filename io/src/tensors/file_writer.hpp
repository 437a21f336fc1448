#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <heddle/io/checkpoint/manifest.hpp>
#include <mutex>
#include <span>
#include <vector>

#include "files/direct_file.hpp"
#include "parallel/together.hpp"

namespace heddle {

/// A new file that is written sequentially, and hashed from the same memory, by a thread that does nothing
/// else (no MPI, no HDF5) while its owner fills the next buffer.
class FileWriter {
 public:
  /// Throws Error if the file exists or cannot be made.
  explicit FileWriter(std::filesystem::path const& path);
  /// Drops what is not yet written, if `finish` was not called.
  ~FileWriter();
  FileWriter(FileWriter const&) = delete;
  FileWriter& operator=(FileWriter const&) = delete;

  /// The bytes queued so far.
  std::int64_t position() const { return position_; }
  /// Memory for the next bytes; waits until one of a few buffers is free. Without `queue` the next call returns the
  /// same.
  std::span<std::uint8_t> buffer(std::size_t bytes);
  /// Queues the bytes of the last `buffer`.
  void queue();

  /// Waits until everything is written, then, if `durable`, until it is on the disk. Throws the first error of the
  /// writing.
  FileDigest finish(bool durable);

  /// After `finish`: seconds spent on hashing, and on writing and fsync.
  double digest_seconds() const { return digest_seconds_; }
  double write_seconds() const { return write_seconds_; }

 private:
  using Buffer = std::vector<std::uint8_t>;

  void work();
  void write(Buffer const& bytes);
  /// Ends the thread: after everything that is queued has been written, or at once.
  void stop(bool abandon);

  DirectFile file_;
  std::int64_t position_ = 0;
  Buffer filling_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Buffer> free_;
  std::deque<Buffer> queued_;
  bool ends_ = false;
  bool abandoned_ = false;
  std::exception_ptr error_;  ///< of the thread; it then drops what is queued

  // The thread's own, until it has ended.
  FileHash hash_;
  double digest_seconds_ = 0;
  double write_seconds_ = 0;

  BackgroundThread thread_;
};

}  // namespace heddle
