#pragma once

namespace heddle {

struct KernelRegistries;

/// Registers every implementation this build has: "reference", "kokkos", "onednn". No privilege that a plug-in lacks.
void register_built_in_kernels(KernelRegistries& registries);

}  // namespace heddle
