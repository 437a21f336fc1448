#pragma once

#include <heddle/core/config/config.hpp>
#include <string>
#include <vector>

namespace heddle {

/// A sentence for each value that is possible and probably not meant, such as a warm-up that is longer than the run.
std::vector<std::string> warnings_about(Config const& config);

}  // namespace heddle
