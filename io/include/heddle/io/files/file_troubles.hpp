#pragma once

#include <string>
#include <vector>

namespace heddle {

/// Faults of files from which this process has recovered, for its log: reads that succeeded when they were tried again,
/// copies of datasets that were given up. Any thread may call these.
/// Keeps the last text of each file until it is taken.
void note_file_trouble(std::string const& file, std::string text);
/// The faults that were noted since the last call, "FILE: TEXT".
std::vector<std::string> take_file_troubles();

}  // namespace heddle
