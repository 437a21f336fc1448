#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <heddle/core/base/error.hpp>

#include "compiled.hpp"

// The build has a shared library for each instruction set, beside the core library. Each keeps all of its inline
// functions to itself, so that code for a newer processor is never used where an older one is required.

namespace heddle {

namespace {

using Register = void(KernelRegistries&);

// The libraries' levels. AVX-512's bfloat16 instructions are used by `simd` only, and matrix registers by neither.
CpuLevel portable_level(CpuLevel level) {
  return std::min(level, CpuLevel::v4);
}
/// `simd` needs 64-byte registers; processors with shorter ones than AVX-512's use `kokkos`.
bool has_vector_kernels(CpuLevel level) {
  return level >= CpuLevel::v4;
}
CpuLevel vector_level(CpuLevel level) {
  return std::min(level, CpuLevel::v4_bf16);
}

std::filesystem::path library_of(CpuLevel level) {
  Dl_info core{};
  // The address of a function of the core library gives that library's path.
  if (dladdr(reinterpret_cast<void const*>(&detected_cpu_level), &core) == 0 || core.dli_fname == nullptr) {
    throw Error("the loader does not say where libheddle_core.so lies");
  }
  auto const directory = std::filesystem::absolute(core.dli_fname).parent_path();
  return directory / fmt::format("libheddle_kernels_{}.so", name_of(level));
}

/// The function of that name in the library for `level`, which stays loaded for the life of the process.
Register* find(CpuLevel level, char const* name) {
  std::filesystem::path const path = library_of(level);
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* const symbol = library == nullptr ? nullptr : dlsym(library, name);
  if (symbol == nullptr) {
    throw ConfigError(fmt::format("the kernels for {} cannot be loaded; expected them beside libheddle_core.so ({})",
                                  name_of(level), dlerror()));
  }
  return reinterpret_cast<Register*>(symbol);
}

}  // namespace

void add_compiled_kernels(KernelRegistries& registries, CpuLevel level) {
  find(portable_level(level), "heddle_add_portable_kernels")(registries);
  if (has_vector_kernels(level)) {
    find(vector_level(level), "heddle_add_vector_kernels")(registries);
  }
}

std::string describe_compiled_kernels(CpuLevel level) {
  std::string const portable = fmt::format("{} (kokkos {}", name_of(level), name_of(portable_level(level)));
  return portable + (has_vector_kernels(level) ? fmt::format(", simd {})", name_of(vector_level(level))) : ")");
}

}  // namespace heddle
