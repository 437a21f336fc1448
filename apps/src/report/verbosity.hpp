#pragma once

#include <cstdint>

namespace heddle {

/// The amount of text on the terminal; files of a run get all of it.
enum class Verbosity : std::uint8_t {
  quiet,    ///< warnings and the verdict
  normal,   ///< also a short start, progress and notes
  verbose,  ///< also the whole configuration and all tables
};

}  // namespace heddle
