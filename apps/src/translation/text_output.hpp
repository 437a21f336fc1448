#pragma once

#include <fstream>
#include <string>
#include <vector>

namespace heddle {

/// The standard output, or a file that is replaced.
class TextOutput {
 public:
  /// `path` "" is the standard output. Throws UsageError if it is one of the texts that are still to be read, under
  /// any name, and Error if it cannot be opened.
  TextOutput(std::string const& path, std::vector<std::string> const& inputs);

  /// Writes and flushes. Throws Error if not all of it could be written.
  void write(std::string const& text);

 private:
  void check() const;

  std::string path_;
  std::ofstream file_;
};

}  // namespace heddle
