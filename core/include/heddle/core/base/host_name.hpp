#pragma once

#include <string>

namespace heddle {

std::string host_name();

}  // namespace heddle
