#pragma once

#include <cstdint>
#include <memory>

namespace heddle {

/// A checkpoint on its way from the memory of the hosts to the disk, while training goes on: each rank that wrote files
/// there copies them in a thread that calls neither MPI nor HDF5. CheckpointStore starts and finishes it; destroying an
/// unfinished one stops it and removes what it wrote.
class BackgroundCommit {
 public:
  struct Parts;

  explicit BackgroundCommit(std::unique_ptr<Parts> parts);
  ~BackgroundCommit();
  BackgroundCommit(BackgroundCommit const&) = delete;
  BackgroundCommit& operator=(BackgroundCommit const&) = delete;

  std::int64_t step() const;
  /// True once this rank's thread has ended, also if it failed.
  bool done() const;
  Parts& parts() { return *parts_; }

 private:
  std::unique_ptr<Parts> parts_;
};

}  // namespace heddle
