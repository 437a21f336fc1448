#pragma once

#include <string>

namespace heddle {

/// Every key of the configuration as a JSON schema of draft 4, with which editors check and complete a file.
std::string config_json_schema();

}  // namespace heddle
