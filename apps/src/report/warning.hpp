#pragma once

#include <string>

namespace heddle {

/// Prints "heddle: warning: MESSAGE" to the standard error: in colour on a terminal, unless NO_COLOR is set.
void warn(std::string const& message);

}  // namespace heddle
