#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace heddle {

/// A property of this machine or its environment.
struct Finding {
  enum class Kind : std::uint8_t { good, hurts, unknown };

  Kind kind = Kind::good;
  std::string subject;  ///< "threads"
  std::string found;    ///< in words
  std::string remedy;   ///< for what hurts; otherwise empty
};

/// The places that an examination looks at; tests have their own.
struct ExaminedPlaces {
  std::filesystem::path root = "/";           ///< of proc and sys
  std::filesystem::path directory = ".";      ///< in which runs would be made
  std::filesystem::path memory = "/dev/shm";  ///< shared memory, for messages between ranks and copies of state
};

/// Examines this machine: starts neither MPI nor Kokkos' threads, writes only a file in `directory`, and removes it.
std::vector<Finding> examine(ExaminedPlaces const& places);

}  // namespace heddle
