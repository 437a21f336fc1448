#include "host_facts.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <heddle/core/base/cpu_level.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/kernels/register.hpp>
#include <thread>

namespace heddle {

namespace {

namespace fs = std::filesystem;

/// The value in a line "NAME   : VALUE" of a file in /proc; "" if there is none.
std::string value_in(char const* path, std::string const& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) {
      std::size_t const begin = line.find_first_not_of(" \t", line.find(':') + 1);
      return begin == line.npos ? "" : line.substr(begin);
    }
  }
  return "";
}

/// The first digits of a file's SHA-256; "" if it cannot be read.
std::string digest_of(fs::path const& path) {
  std::ifstream file(path, std::ios::binary);
  Sha256 digest;
  std::string piece(std::size_t{1} << 20, '\0');
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
    digest.update(text_bytes(std::string_view(piece.data(), static_cast<std::size_t>(file.gcount()))));
  }
  constexpr std::size_t shown = 12;
  return file.eof() ? digest.finish().substr(0, shown) : "";
}

/// Adds the shared libraries of this process: Heddle's own by their content, others by their size.
void add_libraries(HostFacts& facts) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::size_t const begin = line.find('/');
    if (begin == line.npos || line.find(".so") == line.npos) {
      continue;
    }
    fs::path const path = line.substr(begin);
    std::string const name = "library " + path.filename().string();
    if (facts.contains(name) || path.filename().string().starts_with("mca_")) {
      continue;  // Open MPI loads the components that a host's number of ranks needs
    }
    std::error_code unknown;
    facts[name] = path.filename().string().starts_with("libheddle")
                      ? digest_of(path)
                      : fmt::format("{} bytes", fs::file_size(path, unknown));
  }
}

std::string limit(int resource) {
  rlimit found{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &found) != 0) {
    return "unknown";
  }
  return found.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(found.rlim_cur);
}

}  // namespace

HostFacts own_facts() {
  utsname system{};
  uname(&system);
  constexpr double kibibytes_of_gibibyte = 1 << 20;
  HostFacts facts{
      {"processor", value_in("/proc/cpuinfo", "model name")},
      {"cores", std::to_string(std::thread::hardware_concurrency())},
      {"memory", fmt::format("{:.1f} GiB", std::strtod(value_in("/proc/meminfo", "MemTotal").c_str(), nullptr) /
                                               kibibytes_of_gibibyte)},
      {"linux", system.release},
      {"heddle", HEDDLE_VERSION},
      {"executable", digest_of("/proc/self/exe")},
      {"MPI", mpi_library()},
      {"kernels", describe_instruction_sets(usable_cpu_level())},
      {"limit of open files", limit(RLIMIT_NOFILE)},
      {"limit of locked memory", limit(RLIMIT_MEMLOCK)},
      {"limit of address space", limit(RLIMIT_AS)},
      {"limit of the stack", limit(RLIMIT_STACK)}};
  for (char const* const name :
       {"OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "HEDDLE_CPU_LEVEL", "OMPI_MCA_btl", "OMPI_MCA_pml"}) {
    char const* const value = std::getenv(name);
    facts[name] = value == nullptr ? "" : value;
  }
  add_libraries(facts);
  return facts;
}

}  // namespace heddle
