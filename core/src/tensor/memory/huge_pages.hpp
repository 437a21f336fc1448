#pragma once

#include <cstddef>

namespace heddle {

/// Requests huge pages for the whole ones in [begin, begin + bytes) of host memory, best before it is touched: strided
/// access to parameter tables is slow with small pages. This is only advice: a system without huge pages ignores it.
void advise_huge_pages(void* begin, std::size_t bytes);

}  // namespace heddle
