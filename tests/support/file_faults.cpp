#include "file_faults.hpp"

#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <vector>

namespace heddle::test {

namespace {

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

/// True for the one call that is to fail.
bool strikes(FileCall call) {
  Armed& armed = fault();
  if (!armed.armed || armed.call != call || armed.calls_left-- != 0) {
    return false;
  }
  armed.armed = false;
  return true;
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
      auto const* const begin = static_cast<unsigned char const*>(bytes);
      std::vector<unsigned char> changed(begin, begin + count);
      changed[count / 2] ^= 16;
      return write(changed.data(), count);
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

}  // namespace heddle::test

using heddle::test::FaultKind;
using heddle::test::FileCall;

extern "C" ssize_t pread(int file, void* bytes, std::size_t count, off_t offset) {
  auto const real = heddle::test::next<ssize_t (*)(int, void*, std::size_t, off_t)>("pread");
  if (!heddle::test::strikes(FileCall::pread)) {
    return real(file, bytes, count, offset);
  }
  FaultKind const kind = heddle::test::fault().kind;
  if (kind != FaultKind::short_count && kind != FaultKind::flipped_bit) {
    errno = heddle::test::error_number();
    return -1;
  }
  ssize_t const got = real(file, bytes, kind == FaultKind::short_count ? (count + 1) / 2 : count, offset);
  if (kind == FaultKind::flipped_bit && got > 0) {
    static_cast<unsigned char*>(bytes)[got / 2] ^= 16;
  }
  return got;
}

extern "C" ssize_t pwrite(int file, void const* bytes, std::size_t count, off_t offset) {
  auto const real = heddle::test::next<ssize_t (*)(int, void const*, std::size_t, off_t)>("pwrite");
  auto const write = [&](void const* from, std::size_t some) { return real(file, from, some, offset); };
  return heddle::test::strikes(FileCall::pwrite) ? heddle::test::failing_write(bytes, count, write)
                                                 : write(bytes, count);
}

extern "C" ssize_t write(int file, void const* bytes, std::size_t count) {
  auto const real = heddle::test::next<ssize_t (*)(int, void const*, std::size_t)>("write");
  auto const write = [&](void const* from, std::size_t some) { return real(file, from, some); };
  return heddle::test::strikes(FileCall::write) ? heddle::test::failing_write(bytes, count, write)
                                                : write(bytes, count);
}

extern "C" int fsync(int file) {
  if (heddle::test::strikes(FileCall::fsync)) {
    errno = heddle::test::error_number();
    return -1;
  }
  return heddle::test::next<int (*)(int)>("fsync")(file);
}
