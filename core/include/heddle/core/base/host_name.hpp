#pragma once

#include <string>

namespace heddle {

/// This machine's name.
std::string host_name();

}  // namespace heddle
