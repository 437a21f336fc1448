#pragma once

#include <string>

namespace heddle {

/// Names the Heddle, Kokkos, compiler and execution space of this build. A plug-in must have been compiled with the
/// same ones.
std::string abi_tag();

/// The function `name` of the shared library `file` in the directory of libheddle_core.so; it stays loaded for the life
/// of the process. Throws ConfigError where there is none.
void* function_beside_core(std::string const& file, char const* name);

}  // namespace heddle
