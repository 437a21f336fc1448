#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/io/files/sha256.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// The format name in every file of a checkpoint, the version that is written, and the oldest that is read.
inline constexpr char const* checkpoint_format_name = "heddle-checkpoint";
inline constexpr std::int64_t checkpoint_format_version = 4;
inline constexpr std::int64_t oldest_checkpoint_format_version = 3;

/// Throws DataError unless `version` can be read; the message starts with `where` and says what would help.
void require_format_version(std::string const& where, std::int64_t version);

inline constexpr char const* manifest_file_name = "MANIFEST.json";
inline constexpr std::int64_t manifest_block_bytes = std::int64_t{4} << 20;

/// A file's length and the SHA-256 of each of its blocks of manifest_block_bytes (the last one may be shorter).
struct FileDigest {
  std::string name;
  std::int64_t bytes = 0;
  std::vector<std::string> blocks;
};

/// The number of bytes of block `number` of a file.
std::int64_t block_bytes(FileDigest const& file, std::int64_t number);

/// The content of a checkpoint directory: these files and MANIFEST.json, nothing else.
struct Manifest {
  std::int64_t step = 0;
  std::vector<FileDigest> files;
  std::int64_t version = checkpoint_format_version;
};

/// The place of a block for messages: "bytes 0 to 99 (block 1 of 1)".
std::string describe_block(FileDigest const& file, std::int64_t block);

/// Computes the digest of a file from its bytes in their order.
class FileHash {
 public:
  /// `name` is the file's.
  explicit FileHash(std::string name);

  void add(std::span<std::uint8_t const> bytes);
  /// The digest of everything that was added; ends this computation.
  FileDigest finish();

 private:
  void end_block();

  FileDigest digest_;
  std::optional<Sha256> block_;  ///< of the block that is not yet full; empty: it has no bytes
};

/// The digest of a file with this content.
FileDigest digest_of(std::string name, std::string_view content);

/// Reads a file back from the disk and throws DataError, naming the first block that differs, unless it holds what was
/// in memory.
void require_equal(std::filesystem::path const& path, FileDigest const& memory);

/// The only text that represents this manifest; it ends with a digest of itself, so that any changed bit is
/// detected.
std::string manifest_text(Manifest const& manifest);

/// Throws DataError unless the directory has a manifest that is, byte for byte, a manifest_text.
Manifest read_manifest(std::filesystem::path const& directory);

/// The digest of the directory's manifest, which says what every byte of the checkpoint is. Throws as read_manifest.
std::string manifest_digest(std::filesystem::path const& directory);

/// The manifest that `text` is; `where` is for messages. Throws DataError as read_manifest does.
Manifest parse_manifest(std::string const& text, std::string const& where);

/// Reads the manifest and throws DataError unless the directory holds exactly its files, each a regular file of the
/// given length. Reads no data.
Manifest verify_file_sizes(std::filesystem::path const& directory);

}  // namespace heddle
