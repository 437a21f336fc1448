#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/manifest.hpp>
#include <heddle/io/files/sha256.hpp>
#include <set>

#include "files/direct_file.hpp"

namespace heddle {

namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr std::int64_t largest_manifest = std::int64_t{64} << 20;

[[noreturn]] void reject(fs::path const& path, std::string const& reason) {
  throw DataError(path.string() + ": " + reason);
}

/// Fills `buffer`, or less at the end of the file. Returns the number of bytes.
std::size_t read_block(FileDescriptor const& file, fs::path const& path, std::span<std::uint8_t> buffer) {
  std::size_t filled = 0;
  while (filled < buffer.size()) {
    ssize_t const got = ::read(file.get(), buffer.data() + filled, buffer.size() - filled);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      reject(path, std::string("cannot be read: ") + std::strerror(errno));
    }
    if (got == 0) {
      break;
    }
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

/// Of a length that may be forged: any that is not negative.
std::int64_t block_count(std::int64_t bytes) {
  return bytes / manifest_block_bytes + (bytes % manifest_block_bytes != 0 ? 1 : 0);
}

bool is_plain_name(std::string const& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == name.npos && name != manifest_file_name;
}

/// Everything but the manifest's own digest, without the closing brace.
std::string manifest_body(Manifest const& manifest) {
  std::string text = "{\n  \"format\": \"" + std::string(checkpoint_format_name) + "\",\n";
  text += "  \"version\": " + std::to_string(manifest.version) + ",\n";
  text += "  \"step\": " + std::to_string(manifest.step) + ",\n";
  text += "  \"block_bytes\": " + std::to_string(manifest_block_bytes) + ",\n  \"files\": [";
  char const* between_files = "\n";
  for (FileDigest const& file : manifest.files) {
    text += between_files;
    text += "    {\"name\": " + json::serialize(json::string(file.name));
    text += ", \"bytes\": " + std::to_string(file.bytes) + ", \"sha256\": [";
    char const* between_blocks = "\n";
    for (std::string const& block : file.blocks) {
      text += between_blocks;
      text += "      \"" + block + "\"";
      between_blocks = ",\n";
    }
    text += "]}";
    between_files = ",\n";
  }
  return text + "],\n";
}

Manifest parse(std::string const& text) {
  json::object const root = json::parse(text).as_object();
  if (root.at("format").as_string() != checkpoint_format_name) {
    throw Error("is not of format heddle-checkpoint");
  }
  Manifest manifest;
  manifest.version = root.at("version").as_int64();
  manifest.step = root.at("step").as_int64();
  for (json::value const& value : root.at("files").as_array()) {
    json::object const& file = value.as_object();
    FileDigest digest{json::value_to<std::string>(file.at("name")), file.at("bytes").as_int64(), {}};
    for (json::value const& block : file.at("sha256").as_array()) {
      digest.blocks.push_back(json::value_to<std::string>(block));
    }
    manifest.files.push_back(std::move(digest));
  }
  return manifest;
}

void check_content(Manifest const& manifest, fs::path const& path) {
  std::set<std::string> names;
  for (FileDigest const& file : manifest.files) {
    if (!is_plain_name(file.name) || !names.insert(file.name).second) {
      reject(path, "names file '" + file.name + "', which is no plain name or is named twice");
    }
    if (file.bytes < 0 || std::ssize(file.blocks) != block_count(file.bytes)) {
      reject(path, "has " + std::to_string(file.blocks.size()) + " digests for the " + std::to_string(file.bytes) +
                       " bytes of " + file.name);
    }
  }
  if (manifest.step < 0 || manifest.files.empty()) {
    reject(path, "has a negative step or no files");
  }
}

}  // namespace

std::string describe_block(FileDigest const& file, std::int64_t block) {
  std::int64_t const begin = block * manifest_block_bytes;
  std::int64_t const end = std::min(begin + manifest_block_bytes, file.bytes);
  return "bytes " + std::to_string(begin) + " to " + std::to_string(end - 1) + " (block " + std::to_string(block + 1) +
         " of " + std::to_string(file.blocks.size()) + ")";
}

FileHash::FileHash(std::string name) : digest_{std::move(name), 0, {}} {}

void FileHash::add(std::span<std::uint8_t const> bytes) {
  while (!bytes.empty()) {
    if (!block_) {
      block_ = std::make_unique<Sha256>();
    }
    auto const room = static_cast<std::size_t>(manifest_block_bytes - digest_.bytes % manifest_block_bytes);
    std::size_t const count = std::min(room, bytes.size());
    block_->update(bytes.first(count));
    bytes = bytes.subspan(count);
    digest_.bytes += static_cast<std::int64_t>(count);
    if (count == room) {
      digest_.blocks.push_back(block_->finish());
      block_.reset();
    }
  }
}

FileDigest FileHash::finish() {
  if (block_) {
    digest_.blocks.push_back(block_->finish());
    block_.reset();
  }
  return std::move(digest_);
}

std::int64_t block_bytes(FileDigest const& file, std::int64_t number) {
  return std::min(manifest_block_bytes, file.bytes - number * manifest_block_bytes);
}

FileDigest digest_file(fs::path const& path) {
  FileDescriptor const file = open_regular(path);
  FileHash hash(path.filename().string());
  std::vector<std::uint8_t> buffer(static_cast<std::size_t>(manifest_block_bytes));
  while (std::size_t const length = read_block(file, path, buffer)) {
    hash.add({buffer.data(), length});
  }
  return hash.finish();
}

void require_equal(fs::path const& path, FileDigest const& memory) {
  FileHash hash(path.filename().string());
  read_from_disk(path, [&](std::span<std::uint8_t const> bytes) { hash.add(bytes); });
  FileDigest const disk = hash.finish();
  for (std::size_t block = 0; block < std::min(memory.blocks.size(), disk.blocks.size()); ++block) {
    if (memory.blocks[block] != disk.blocks[block]) {
      reject(path, "what was read back is not what was written, in " +
                       describe_block(memory, static_cast<std::int64_t>(block)));
    }
  }
  if (disk.bytes != memory.bytes) {
    throw DataError(path.string() + ": has " + std::to_string(disk.bytes) + " bytes, " + std::to_string(memory.bytes) +
                    " were written");
  }
}

void require_format_version(std::string const& where, std::int64_t version) {
  if (version != checkpoint_format_version) {
    throw DataError(where + ": is of checkpoint format version " + std::to_string(version) +
                    ", and this Heddle reads and writes only version " + std::to_string(checkpoint_format_version) +
                    "; continue with the Heddle that wrote it, or start over (`heddle train --fresh`)");
  }
}

std::string manifest_text(Manifest const& manifest) {
  std::string const body = manifest_body(manifest);
  return body + "  \"manifest_sha256\": \"" + sha256(body) + "\"\n}\n";
}

Manifest read_manifest(fs::path const& directory) {
  fs::path const path = directory / manifest_file_name;
  FileDescriptor const file = open_regular(path);
  std::vector<std::uint8_t> buffer(static_cast<std::size_t>(
      std::min<std::uintmax_t>(fs::file_size(path) + 1, static_cast<std::uintmax_t>(largest_manifest))));
  std::size_t const length = read_block(file, path, buffer);
  return parse_manifest({buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(length)}, path.string());
}

Manifest parse_manifest(std::string const& text, std::string const& where) {
  Manifest manifest;
  try {
    manifest = parse(text);
  } catch (std::exception const& error) {
    reject(where, std::string("is damaged or no manifest: ") + error.what());
  }
  if (manifest_text(manifest) != text) {
    reject(where, "is damaged: it does not have the digest that it states of itself");
  }
  require_format_version(where, manifest.version);
  check_content(manifest, where);
  return manifest;
}

Manifest verify_file_sizes(fs::path const& directory) {
  Manifest manifest = read_manifest(directory);
  std::set<std::string> expected{manifest_file_name};
  for (FileDigest const& file : manifest.files) {
    expected.insert(file.name);
  }
  for (auto const& entry : fs::directory_iterator(directory)) {
    if (!expected.contains(entry.path().filename().string())) {
      reject(entry.path(), std::string("is not listed in ") + manifest_file_name);
    }
  }
  for (FileDigest const& file : manifest.files) {
    fs::path const path = directory / file.name;
    open_regular(path);
    auto const bytes = static_cast<std::int64_t>(fs::file_size(path));
    if (bytes != file.bytes) {
      reject(path, "has " + std::to_string(bytes) + " bytes where " + manifest_file_name + " states " +
                       std::to_string(file.bytes));
    }
  }
  return manifest;
}

}  // namespace heddle
