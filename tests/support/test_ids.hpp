#pragma once

#include <heddle/core/tensor/pack.hpp>

namespace heddle {

/// Special ids for tests' sentences, whose tokens have ids above them.
inline constexpr SideIds test_ids{.source = {.end = 2}, .target = {.begin = 1, .end = 2}};

}  // namespace heddle
