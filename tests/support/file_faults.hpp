#pragma once

/// Faults of the operating system's file functions, for tests only: a program that uses them gets `pread`, `pwrite`,
/// `write` and `fsync` from here in place of the C library's.
namespace heddle::test {

enum class FileCall { pread, pwrite, write, fsync };
/// The call fails with the error, moves half of its bytes, or moves all of them with one bit changed.
enum class FaultKind { no_space, io_error, short_count, flipped_bit };

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

}  // namespace heddle::test
