#include "huge_pages.hpp"

#include <sys/mman.h>

#include <memory>

namespace heddle {

void advise_huge_pages(void* begin, std::size_t bytes) {
  constexpr std::size_t huge_page = std::size_t{1} << 21;
  if (std::align(huge_page, huge_page, begin, bytes) != nullptr) {
    static_cast<void>(madvise(begin, bytes / huge_page * huge_page, MADV_HUGEPAGE));
  }
}

}  // namespace heddle
