#pragma once

#include <string>

namespace heddle {

/// The lines of describe_config about one key ("train.steps"), or about all keys of a section ("train"). Throws
/// UsageError, with the nearest names, if there is neither.
std::string explain_config(std::string const& name);

}  // namespace heddle
