// A library for LD_PRELOAD under which no file system has locks. run_directory.sh uses it.
#include <cerrno>

extern "C" int flock(int /*file*/, int /*operation*/) {
  errno = EOPNOTSUPP;
  return -1;
}
