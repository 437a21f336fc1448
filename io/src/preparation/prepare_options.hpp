#pragma once

#include <heddle/io/preparation/prepare.hpp>

namespace heddle {

/// Throws UsageError for options of `prepare` that conflict, are missing or are out of range.
void check_options(PrepareOptions const& options);

}  // namespace heddle
