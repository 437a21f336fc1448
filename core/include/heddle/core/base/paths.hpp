#pragma once

#include <filesystem>
#include <string>

namespace heddle {

/// " (relative to /home/you)", with the working directory, for a message about a file that is not there; "" for an
/// absolute path.
std::string relative_to(std::filesystem::path const& path);

}  // namespace heddle
