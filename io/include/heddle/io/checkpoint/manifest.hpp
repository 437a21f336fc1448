#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// The format name and version in MANIFEST.json and in the state file.
inline constexpr char const* checkpoint_format_name = "heddle-checkpoint";
inline constexpr std::int64_t checkpoint_format_version = 2;

/// Throws DataError unless `version` is this format's; the message begins with `where` and says what to do.
void require_format_version(std::string const& where, std::int64_t version);

inline constexpr char const* manifest_file_name = "MANIFEST.json";
inline constexpr std::int64_t manifest_block_bytes = std::int64_t{4} << 20;

/// A file's length and the SHA-256 of each of its blocks of manifest_block_bytes (the last one may be shorter).
struct FileDigest {
  std::string name;
  std::int64_t bytes = 0;
  std::vector<std::string> blocks;
};

/// The content of a checkpoint directory: these files and MANIFEST.json, nothing else.
struct Manifest {
  std::int64_t step = 0;
  std::vector<FileDigest> files;
  std::int64_t version = checkpoint_format_version;
};

/// Called with each block that was hashed and its offset in the file.
using BlockVisitor = std::function<void(std::int64_t offset, std::span<std::uint8_t const> bytes)>;

/// Reads and hashes a regular file (symbolic links are refused). Throws DataError if it cannot be read.
FileDigest digest_file(std::filesystem::path const& path, BlockVisitor const& visit = {});

/// The only text that represents this manifest; it ends with a digest of itself, so that any changed bit is
/// detected.
std::string manifest_text(Manifest const& manifest);

/// Throws DataError unless the directory has a manifest that is, byte for byte, a manifest_text.
Manifest read_manifest(std::filesystem::path const& directory);

/// Reads the manifest and throws DataError unless the directory holds exactly its files, each a regular file of the
/// given length. Reads no data.
Manifest verify_file_sizes(std::filesystem::path const& directory);

/// As verify_file_sizes, and compares every block of every file with its SHA-256. Throws DataError for the first
/// difference.
Manifest verify_directory(std::filesystem::path const& directory);

}  // namespace heddle
