#pragma once

#include <string>

namespace heddle {

/// The processors that this process may use, at least 1: those of its affinity, or fewer where its control group
/// (version 2) limits the processor time to that of fewer.
int usable_processors();

/// The numbers of the processors of this thread's affinity, as text; processes with another text use others.
std::string processors_of_thread();

}  // namespace heddle
