#pragma once

namespace heddle {

class KernelRegistries;

/// Registers every implementation that this build has, as a plug-in would.
void register_built_in_kernels(KernelRegistries& registries);

}  // namespace heddle
