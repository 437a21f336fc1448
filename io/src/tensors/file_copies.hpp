#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <heddle/io/checkpoint/manifest.hpp>
#include <memory>
#include <thread>
#include <vector>

#include "block_reader.hpp"

namespace heddle {

/// Copies files in a thread of its own, which calls neither MPI nor HDF5: each block is compared with its digest in the
/// memory from which it is written, each file is synced, read back and compared again.
class FileCopies {
 public:
  struct Item {
    std::unique_ptr<BlockReader> from;  ///< used by the thread only; the file may be unlinked meanwhile
    FileDigest digest;
    std::filesystem::path to;  ///< a new file
  };

  /// Starts the thread, which gets no signals.
  explicit FileCopies(std::vector<Item> items);
  FileCopies(FileCopies const&) = delete;
  FileCopies& operator=(FileCopies const&) = delete;
  /// Stops after the block that is being copied.
  ~FileCopies();

  bool done() const { return done_.load(std::memory_order_acquire); }
  /// Waits for the end, and throws what the thread has thrown.
  void finish();

 private:
  void run();
  void copy(Item const& item);

  std::vector<Item> items_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> done_ = false;
  std::exception_ptr error_;  ///< the thread's, until it has been joined
  std::thread thread_;
};

}  // namespace heddle
