#pragma once

#include <string>

#include "temporary_directory.hpp"

namespace heddle::test {

/// The bytes of a file in tests/golden/exchange.
inline std::string exchange_file(std::string const& name) {
  return read_whole(std::string(HEDDLE_TEST_DATA) + "/exchange/" + name);
}

}  // namespace heddle::test
