#pragma once

#include <heddle/core/base/cpu_level.hpp>

#include "int8_products.hpp"

namespace heddle::int8 {

/// The fastest code for the level.
Functions const& functions_for(CpuLevel level);

}  // namespace heddle::int8
