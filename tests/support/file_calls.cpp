// Faults and logs are in one file, because a program that uses one of them needs the functions below for both.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "file_faults.hpp"
#include "file_log.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t page = 4096;

struct Armed {
  bool armed = false;
  FileCall call{};
  FaultKind kind{};
  int calls_left = 0;
};

Armed& fault() {
  static Armed armed;
  return armed;
}

/// Whether it is a regular file or a directory: MPI's sockets and pipes never fail.
bool is_file(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
}

/// True for the one call that is to fail. One that is to take a while has then done so.
bool strikes(FileCall call, int file) {
  Armed& armed = fault();
  if (!armed.armed || armed.call != call || !is_file(file) || armed.calls_left-- != 0) {
    return false;
  }
  armed.armed = false;
  if (armed.kind == FaultKind::delay) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return armed.kind != FaultKind::delay;
}

template <class Function>
Function next(char const* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

int error_number() {
  return fault().kind == FaultKind::no_space ? ENOSPC : EIO;
}

/// A write of `count` bytes that fails in the way chosen.
template <class Write>
ssize_t failing_write(void const* bytes, std::size_t count, Write const& write) {
  switch (fault().kind) {
    case FaultKind::short_count:
      return write(bytes, (count + 1) / 2);
    case FaultKind::flipped_bit: {
      // Aligned as the original: O_DIRECT refuses others.
      std::vector<unsigned char> memory(count + page);
      void* aligned = memory.data();
      std::size_t room = memory.size();
      auto* const changed = static_cast<unsigned char*>(std::align(page, count, aligned, room));
      std::memcpy(changed, bytes, count);
      changed[count / 2] ^= 16;
      return write(changed, count);
    }
    default:
      errno = error_number();
      return -1;
  }
}

}  // namespace

FileFault::FileFault(FileCall call, FaultKind kind, int number) {
  fault() = {true, call, kind, number};
}

FileFault::~FileFault() {
  fault().armed = false;
}

bool FileFault::happened() const {
  return !fault().armed;
}

namespace {

std::atomic<std::chrono::milliseconds::rep> read_milliseconds{0};

}  // namespace

SlowReads::SlowReads(std::chrono::milliseconds each) {
  read_milliseconds = each.count();
}

SlowReads::~SlowReads() {
  read_milliseconds = 0;
}

namespace {

struct Renames {
  bool plain = false;
  int calls_left = 0;
};

Renames& renames() {
  static Renames one;
  return one;
}

}  // namespace

PlainRenames::PlainRenames(int number) {
  renames() = {true, number};
}

PlainRenames::~PlainRenames() {
  renames() = {};
}

bool PlainRenames::happened() const {
  return renames().calls_left < 0;
}

namespace {

using Kind = FileEvent::Kind;

struct Log {
  bool on = false;
  fs::path directory;
  std::vector<FileEvent> events;
};

Log& log() {
  static Log one;
  return one;
}

/// The path below the logged directory; nothing outside it.
std::optional<std::string> inside(fs::path const& path) {
  fs::path const below = fs::absolute(path).lexically_normal().lexically_relative(log().directory);
  if (below.empty() || *below.begin() == "..") {
    return std::nullopt;
  }
  return below == "." ? "" : below.string();
}

fs::path path_of(int file) {
  std::array<char, 4096> name{};
  ssize_t const length = ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), name.data(), name.size());
  return std::string(name.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
}

void add(Kind kind, fs::path const& path, std::string other = {}, std::int64_t number = 0) {
  if (auto const below = inside(path)) {
    log().events.push_back({kind, *below, std::move(other), number});
  }
}

int log_rename(int result, char const* from, char const* to) {
  if (log().on && result == 0) {
    add(Kind::rename, from, inside(to).value_or(""));
  }
  return result;
}

int log_removal(int result, fs::path const& path) {
  if (log().on && result == 0) {
    add(Kind::remove, path);
  }
  return result;
}

}  // namespace

FileLog::FileLog(fs::path directory) {
  log() = {true, fs::absolute(std::move(directory)).lexically_normal(), {}};
}

FileLog::~FileLog() {
  log().on = false;
}

void FileLog::mark(std::int64_t number) {
  log().events.push_back({Kind::mark, "", "", number});
}

std::vector<FileEvent> const& FileLog::events() const {
  return log().events;
}

/// An offset: the bytes end at the file's position.
constexpr off_t at_position = -1;

void log_write(int file, off_t offset, void const* bytes, ssize_t written) {
  if (log().on && written > 0) {
    off_t const begin = offset == at_position ? ::lseek(file, 0, SEEK_CUR) - written : offset;
    add(Kind::write, path_of(file), std::string(static_cast<char const*>(bytes), static_cast<std::size_t>(written)),
        begin);
  }
}

void log_fsync(int file, int result) {
  if (log().on && result == 0) {
    add(Kind::fsync, path_of(file));
  }
}

namespace {

/// Reads with `real(bytes, count)`, or fails in the way chosen.
template <class Read>
ssize_t read_or_fail(FileCall call, int file, void* bytes, std::size_t count, Read const& real) {
  if (auto const delay = read_milliseconds.load(); delay > 0 && is_file(file)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
  }
  if (!strikes(call, file)) {
    return real(bytes, count);
  }
  FaultKind const kind = fault().kind;
  if (kind != FaultKind::short_count && kind != FaultKind::flipped_bit) {
    errno = error_number();
    return -1;
  }
  ssize_t const got = real(bytes, kind == FaultKind::short_count ? (count + 1) / 2 : count);
  if (kind == FaultKind::flipped_bit && got > 0) {
    static_cast<unsigned char*>(bytes)[got / 2] ^= 16;
  }
  return got;
}

}  // namespace

}  // namespace heddle

using namespace heddle;

extern "C" ssize_t pread(int file, void* bytes, std::size_t count, off_t offset) {
  static auto const real = next<ssize_t (*)(int, void*, std::size_t, off_t)>("pread");
  return read_or_fail(FileCall::pread, file, bytes, count,
                      [&](void* to, std::size_t some) { return real(file, to, some, offset); });
}

extern "C" ssize_t read(int file, void* bytes, std::size_t count) {
  static auto const real = next<ssize_t (*)(int, void*, std::size_t)>("read");
  return read_or_fail(FileCall::read, file, bytes, count,
                      [&](void* to, std::size_t some) { return real(file, to, some); });
}

extern "C" ssize_t pwrite(int file, void const* bytes, std::size_t count, off_t offset) {
  static auto const real = next<ssize_t (*)(int, void const*, std::size_t, off_t)>("pwrite");
  auto const write = [&](void const* from, std::size_t some) {
    ssize_t const written = real(file, from, some, offset);
    log_write(file, offset, from, written);
    return written;
  };
  return strikes(FileCall::pwrite, file) ? failing_write(bytes, count, write) : write(bytes, count);
}

extern "C" ssize_t write(int file, void const* bytes, std::size_t count) {
  static auto const real = next<ssize_t (*)(int, void const*, std::size_t)>("write");
  auto const write = [&](void const* from, std::size_t some) {
    ssize_t const written = real(file, from, some);
    log_write(file, at_position, from, written);
    return written;
  };
  return strikes(FileCall::write, file) ? failing_write(bytes, count, write) : write(bytes, count);
}

extern "C" int fsync(int file) {
  static auto const real = next<int (*)(int)>("fsync");
  if (strikes(FileCall::fsync, file)) {
    errno = error_number();
    return -1;
  }
  int const result = real(file);
  log_fsync(file, result);
  return result;
}

extern "C" int mkdir(char const* path, mode_t mode) noexcept {
  static auto const real = next<int (*)(char const*, mode_t)>("mkdir");
  int const result = real(path, mode);
  if (log().on && result == 0) {
    add(Kind::mkdir, path);
  }
  return result;
}

extern "C" int rename(char const* from, char const* to) noexcept {
  static auto const real = next<int (*)(char const*, char const*)>("rename");
  if (renames().plain && renames().calls_left-- == 0) {
    errno = EIO;
    return -1;
  }
  return log_rename(real(from, to), from, to);
}

extern "C" int renameat2(int from_directory, char const* from, int to_directory, char const* to,
                         unsigned flags) noexcept {
  static auto const real = next<int (*)(int, char const*, int, char const*, unsigned)>("renameat2");
  if (renames().plain && flags != 0) {
    errno = EINVAL;
    return -1;
  }
  return log_rename(real(from_directory, from, to_directory, to, flags), from, to);
}

extern "C" int symlink(char const* target, char const* path) noexcept {
  static auto const real = next<int (*)(char const*, char const*)>("symlink");
  int const result = real(target, path);
  if (log().on && result == 0) {
    add(Kind::symlink, path, target);
  }
  return result;
}

extern "C" int remove(char const* path) noexcept {
  static auto const real = next<int (*)(char const*)>("remove");
  return log_removal(real(path), path);
}

extern "C" int unlink(char const* path) noexcept {
  static auto const real = next<int (*)(char const*)>("unlink");
  return log_removal(real(path), path);
}

extern "C" int rmdir(char const* path) noexcept {
  static auto const real = next<int (*)(char const*)>("rmdir");
  return log_removal(real(path), path);
}

extern "C" int unlinkat(int directory, char const* path, int flags) noexcept {
  static auto const real = next<int (*)(int, char const*, int)>("unlinkat");
  std::filesystem::path const place = log().on && directory != AT_FDCWD ? path_of(directory) : "";
  return log_removal(real(directory, path, flags), place / path);
}
