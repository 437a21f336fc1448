#pragma once

#include <filesystem>
#include <heddle/io/dataset/dataset.hpp>
#include <vector>

namespace heddle {

/// The datasets at a path, for Dataset::open: the file itself, or those that `heddle prepare` wrote to a directory.
std::vector<std::filesystem::path> datasets_at(std::filesystem::path const& path);

}  // namespace heddle
