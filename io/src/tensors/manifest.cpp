#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/tensors/manifest.hpp>
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

/// The number of blocks of a file, of a length that may be forged: any that is not negative.
std::int64_t block_count(std::int64_t bytes) {
  return bytes / manifest_block_bytes + (bytes % manifest_block_bytes != 0 ? 1 : 0);
}

bool is_plain_name(std::string const& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == name.npos && name != manifest_file_name;
}

/// Everything but the manifest's own digest, without the closing brace.
std::string manifest_body(Manifest const& manifest) {
  std::vector<std::string> files;
  for (FileDigest const& file : manifest.files) {
    std::string blocks;
    for (std::string const& block : file.blocks) {
      blocks += fmt::format("{}\n      \"{}\"", blocks.empty() ? "" : ",", block);
    }
    files.push_back(fmt::format("\n    {{\"name\": {}, \"bytes\": {}, \"sha256\": [{}]}}",
                                json::serialize(json::string(file.name)), file.bytes, blocks));
  }
  return fmt::format(
      "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"step\": {},\n  \"block_bytes\": {},\n  \"files\": [{}],\n",
      checkpoint_format_name, manifest.version, manifest.step, manifest_block_bytes, fmt::join(files, ","));
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
      reject(path, fmt::format("names file '{}', which is not a plain name or is named twice", file.name));
    }
    if (file.bytes < 0 || std::ssize(file.blocks) != block_count(file.bytes)) {
      reject(path, fmt::format("has {} digests for the {} bytes of {}", file.blocks.size(), file.bytes, file.name));
    }
  }
  if (manifest.step < 0 || manifest.files.empty()) {
    reject(path, "has a negative step or no files");
  }
}

}  // namespace

std::string describe_block(FileDigest const& file, std::int64_t block) {
  std::int64_t const begin = block * manifest_block_bytes;
  return fmt::format("bytes {} to {} (block {} of {})", begin, begin + block_bytes(file, block) - 1, block + 1,
                     file.blocks.size());
}

FileHash::FileHash(std::string name) : digest_{std::move(name), 0, {}} {}

void FileHash::add(std::span<std::uint8_t const> bytes) {
  while (!bytes.empty()) {
    if (!block_) {
      block_.emplace();
    }
    auto const room = static_cast<std::size_t>(manifest_block_bytes - digest_.bytes % manifest_block_bytes);
    std::size_t const count = std::min(room, bytes.size());
    block_->update(bytes.first(count));
    bytes = bytes.subspan(count);
    digest_.bytes += static_cast<std::int64_t>(count);
    if (count == room) {
      end_block();
    }
  }
}

void FileHash::end_block() {
  if (block_) {
    digest_.blocks.push_back(block_->finish());
    block_.reset();
  }
}

FileDigest FileHash::finish() {
  end_block();
  return std::move(digest_);
}

FileDigest digest_of(std::string name, std::string_view content) {
  FileHash hash(std::move(name));
  hash.add(text_bytes(content));
  return hash.finish();
}

std::int64_t block_bytes(FileDigest const& file, std::int64_t number) {
  return std::min(manifest_block_bytes, file.bytes - number * manifest_block_bytes);
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
    reject(path, fmt::format("has {} bytes, {} were written", disk.bytes, memory.bytes));
  }
}

void require_format_version(std::string const& where, std::int64_t version) {
  if (version < oldest_checkpoint_format_version || version > checkpoint_format_version) {
    reject(where, fmt::format("is of checkpoint format version {}, and this Heddle reads the versions {} to {}; "
                              "continue with the Heddle that wrote it, or start over (`heddle train --fresh`)",
                              version, oldest_checkpoint_format_version, checkpoint_format_version));
  }
}

std::string manifest_text(Manifest const& manifest) {
  std::string const body = manifest_body(manifest);
  return body + "  \"manifest_sha256\": \"" + sha256(body) + "\"\n}\n";
}

Manifest read_manifest(fs::path const& directory) {
  fs::path const path = directory / manifest_file_name;
  FileDescriptor const file = open_regular(path);
  std::uintmax_t const bytes = std::min<std::uintmax_t>(fs::file_size(path), largest_manifest);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  text.resize(read_at(file, path, 0, text_bytes(text)));
  return parse_manifest(text, path.string());
}

Manifest parse_manifest(std::string const& text, std::string const& where) {
  Manifest manifest;
  try {
    manifest = parse(text);
  } catch (std::exception const& error) {
    reject(where, std::string("is damaged or not a manifest: ") + error.what());
  }
  if (manifest_text(manifest) != text) {
    reject(where, "is damaged: it does not have the digest that it states of itself");
  }
  require_format_version(where, manifest.version);
  check_content(manifest, where);
  return manifest;
}

std::string manifest_digest(fs::path const& directory) {
  return sha256(manifest_text(read_manifest(directory)));
}

Manifest verify_file_sizes(fs::path const& directory) try {
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
      reject(path, fmt::format("has {} bytes where {} states {}", bytes, manifest_file_name, file.bytes));
    }
  }
  return manifest;
} catch (fs::filesystem_error const& error) {  // a file was removed meanwhile
  reject(error.path1(), error.code().message());
}

}  // namespace heddle
