#pragma once

#include <span>
#include <string_view>

namespace heddle {

/// The names of Heddle's operations, in the order in which they are shown. An operation `name` has
/// core/operations/name.hpp (its interface, problem and front end) with a source, trials in core/src/trials/
/// name_trials.cpp, from which this list is made, and in kernels/src/name a reference.cpp with `add_name_kernels` and
/// a kokkos.cpp with `add_portable_name_kernels`. Plug-ins add operations that are not in this list.
std::span<std::string_view const> operation_names();

}  // namespace heddle
