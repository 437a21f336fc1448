#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

/// Bits of bfloat16 values. Their file is compiled for x86-64-v4 where the build has levels of instruction sets, and
/// its functions then need such a processor. It uses no inline function of a header: the linker could take it for
/// code that runs on any processor.
using BFloat16Bits = std::uint16_t;

/// result = the sum of `ranks` lists, at least two, of `count` elements, added in their order in float32 and rounded
/// once. `result` may be one of the lists.
void add_bfloat16_with_v4(BFloat16Bits const* const* lists, std::size_t ranks, BFloat16Bits* result,
                          std::int64_t count);

}  // namespace heddle
