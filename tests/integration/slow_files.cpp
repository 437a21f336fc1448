// A library for LD_PRELOAD that makes a disk slow and bad. HEDDLE_SLOW_FILES is "DIRECTORY MS EVERY READS WRITES": of
// the calls for regular files below the directory, each EVERY-th takes MS milliseconds longer, each READS-th that reads
// fails, and each WRITES-th that writes or syncs, with EIO (0: none). At its end a process prints what it did.
// slow_disk.sh uses it.
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>

namespace {

template <class Function>
Function next(char const* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

struct Disk {
  Disk() {
    if (char const* const text = std::getenv("HEDDLE_SLOW_FILES")) {
      std::istringstream words(text);
      words >> directory >> milliseconds >> every >> reads >> writes;
      directory = std::filesystem::weakly_canonical(directory + "/.").string();
      directory += directory.ends_with("/") ? "" : "/";
    }
  }
  ~Disk() {
    if (calls > 0) {
      std::fprintf(stderr, "slow_files: %ld calls, %ld slow, %ld failed\n", calls.load(), slow.load(), failed.load());
    }
  }
  Disk(Disk const&) = delete;
  Disk& operator=(Disk const&) = delete;

  std::string directory;
  long milliseconds = 0, every = 0, reads = 0, writes = 0;
  std::atomic<long> calls{0}, reading{0}, writing{0}, slow{0}, failed{0};
};

Disk& disk() {
  static Disk one;
  return one;
}

bool is_here(int file) {
  struct stat status {};
  if (disk().directory.empty() || ::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    return false;
  }
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), ignored)
      .string()
      .starts_with(disk().directory);
}

bool is_turn(std::atomic<long>& count, long every) {
  return ++count % (every > 0 ? every : 1) == 0 && every > 0;
}

/// Whether this call fails, after its delay.
bool fails(int file, bool reads) {
  if (!is_here(file)) {
    return false;
  }
  if (is_turn(disk().calls, disk().every)) {
    ++disk().slow;
    std::this_thread::sleep_for(std::chrono::milliseconds(disk().milliseconds));
  }
  bool const struck = reads ? is_turn(disk().reading, disk().reads) : is_turn(disk().writing, disk().writes);
  if (struck) {
    ++disk().failed;
    errno = EIO;
  }
  return struck;
}

}  // namespace

extern "C" {

ssize_t read(int file, void* bytes, std::size_t count) {
  static auto const real = next<ssize_t (*)(int, void*, std::size_t)>("read");
  return fails(file, true) ? -1 : real(file, bytes, count);
}

ssize_t pread(int file, void* bytes, std::size_t count, off_t offset) {
  static auto const real = next<ssize_t (*)(int, void*, std::size_t, off_t)>("pread");
  return fails(file, true) ? -1 : real(file, bytes, count, offset);
}

ssize_t write(int file, void const* bytes, std::size_t count) {
  static auto const real = next<ssize_t (*)(int, void const*, std::size_t)>("write");
  return fails(file, false) ? -1 : real(file, bytes, count);
}

ssize_t writev(int file, iovec const* parts, int count) {
  static auto const real = next<ssize_t (*)(int, iovec const*, int)>("writev");
  return fails(file, false) ? -1 : real(file, parts, count);
}

ssize_t pwrite(int file, void const* bytes, std::size_t count, off_t offset) {
  static auto const real = next<ssize_t (*)(int, void const*, std::size_t, off_t)>("pwrite");
  return fails(file, false) ? -1 : real(file, bytes, count, offset);
}

int fsync(int file) {
  static auto const real = next<int (*)(int)>("fsync");
  return fails(file, false) ? -1 : real(file);
}

}  // extern "C"
