#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <heddle/core/base/error.hpp>
#include <system_error>

#include "system_memory.hpp"

namespace heddle {

ArenaBlock map_addresses(std::size_t wanted) {
  void* const begin = mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    throw Error(fmt::format("the system refuses {} bytes of address space: {}; lift `ulimit -v`", wanted,
                            std::generic_category().message(errno)));
  }
  return {static_cast<std::byte*>(begin), wanted};
}

void unmap_addresses(ArenaBlock const& block) {
  munmap(block.begin, block.bytes);
}

}  // namespace heddle
