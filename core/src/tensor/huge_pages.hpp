#pragma once

#include <cstddef>

namespace heddle {

/// Asks for huge pages where whole ones lie in [begin, begin + bytes) of host memory, best before it is touched: tables
/// of parameters are walked in strides that small pages make slow. Advice only: a system without them says no.
void advise_huge_pages(void* begin, std::size_t bytes);

}  // namespace heddle
