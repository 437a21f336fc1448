#pragma once

#include <filesystem>
#include <string_view>

namespace heddle {

/// Replaces the file by `text` atomically: after a crash or on a full disk (Error) the old one is still whole. On
/// return the text and its name are on the disk. The file's directory must exist.
void replace_file(std::filesystem::path const& path, std::string_view text);

/// Makes a directory and its missing parents, on the disk on return. Throws Error if it cannot be made.
void make_directory(std::filesystem::path const& directory);

}  // namespace heddle
