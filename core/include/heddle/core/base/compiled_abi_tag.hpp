#pragma once

#include <Kokkos_Core.hpp>
#include <string>

/// This header includes much: the source of a plug-in gets it from <heddle/core/plugins/entry.hpp>.
namespace heddle::plugin {

/// Increases with each change of the headers of heddle/core, which plug-ins are compiled against.
inline constexpr int abi_number = 20;
/// The version of Heddle, for the whole tree: CMake reads it here.
inline constexpr char const* heddle_version = "0.4.0";

/// The versions that this translation unit was compiled with. Internal linkage: each library must report its own and
/// not another's copy.
[[maybe_unused]] static std::string compiled_abi_tag() {
  auto const version = [](int major, int minor) { return std::to_string(major) + "." + std::to_string(minor); };
#if defined(__clang__)
  std::string const compiler = "clang " + version(__clang_major__, __clang_minor__);
#elif defined(__GNUC__)
  std::string const compiler = "g++ " + version(__GNUC__, __GNUC_MINOR__);
#else
#error "name this compiler here"
#endif
#if defined(__GLIBCXX__)
  std::string const library = "libstdc++";
#else
  std::string const library = "libc++";
#endif
  return std::string("heddle ") + heddle_version + ", abi " + std::to_string(abi_number) + ", Kokkos " +
         version(KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100) + "." + std::to_string(KOKKOS_VERSION % 100) +
         ", " + compiler + ", " + library + ", " + Kokkos::DefaultExecutionSpace::name();
}

}  // namespace heddle::plugin
