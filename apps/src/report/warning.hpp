#pragma once

#include <heddle/core/config/config.hpp>
#include <string>

namespace heddle {

/// Prints "heddle: warning: MESSAGE" to the standard error: in colour on a terminal, unless NO_COLOR is set; nothing
/// for "".
void warn(std::string const& message);

/// The same for each of warnings_about(config).
void print_warnings(Config const& config);

}  // namespace heddle
