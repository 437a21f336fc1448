#pragma once

#include <string>

namespace heddle {

/// Names the Heddle, Kokkos, compiler and execution space of this build. A plug-in must have been compiled with the
/// same ones.
std::string abi_tag();

}  // namespace heddle
