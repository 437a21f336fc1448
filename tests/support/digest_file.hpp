#pragma once

#include <heddle/io/tensors/manifest.hpp>

#include "test.hpp"

namespace heddle {

/// The digest of a file as the manifest of its directory states it.
inline FileDigest digest_file(std::filesystem::path const& path) {
  return digest_of(path.filename().string(), read_whole(path));
}

}  // namespace heddle
