#pragma once

#include <filesystem>
#include <heddle/io/tensors/manifest.hpp>

#include "temporary_directory.hpp"

namespace heddle::test {

/// The digest of a file as the manifest of its directory states it.
inline FileDigest digest_file(std::filesystem::path const& path) {
  return digest_of(path.filename().string(), read_whole(path));
}

}  // namespace heddle::test
