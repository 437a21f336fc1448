#pragma once

#include <chrono>

/// Faults of the operating system's file functions, for tests only: a program that uses them gets `read`, `pread`,
/// `pwrite`, `write` and `fsync` from here in place of the C library's. Only calls for regular files and directories
/// are counted and fail, not those for MPI's sockets.
namespace heddle {

enum class FileCall { read, pread, pwrite, write, fsync };
/// The call fails with the error, moves half of its bytes, moves all of them with one bit changed, or takes a while.
enum class FaultKind { no_space, io_error, short_count, flipped_bit, delay };

/// Makes the `number`-th call of a function in this process fail, from 0; afterwards everything works again. One at a
/// time.
class FileFault {
 public:
  FileFault(FileCall call, FaultKind kind, int number);
  ~FileFault();
  FileFault(FileFault const&) = delete;
  FileFault& operator=(FileFault const&) = delete;

  /// True if there were so many calls.
  bool happened() const;
};

/// A slow disk: while it lives, each `read` and `pread` of a file takes this long. One at a time.
class SlowReads {
 public:
  explicit SlowReads(std::chrono::milliseconds each);
  ~SlowReads();
  SlowReads(SlowReads const&) = delete;
  SlowReads& operator=(SlowReads const&) = delete;
};

/// While it lives, `renameat2` has no flags, as on NFS, and the `number`-th call of `rename` fails, from 0. One at a
/// time.
class PlainRenames {
 public:
  explicit PlainRenames(int number);
  ~PlainRenames();
  PlainRenames(PlainRenames const&) = delete;
  PlainRenames& operator=(PlainRenames const&) = delete;

  /// True if there were so many calls.
  bool happened() const;
};

}  // namespace heddle
