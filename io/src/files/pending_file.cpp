#include "pending_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <heddle/core/base/error.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/files/sha256.hpp>
#include <system_error>
#include <utility>

#include "file_descriptor.hpp"

namespace heddle {
namespace {

std::filesystem::path temporary_beside(std::filesystem::path const& target) {
  return target.parent_path() / fmt::format(".{}.{}.partial", target.filename().string(), getpid());
}

/// Throws DataError if a rename to the target would replace something other than a file's content: a symbolic link
/// would become a file beside the one that was meant, a device node would be gone for all.
void require_regular_or_absent(std::filesystem::path const& target) {
  std::error_code unknown;
  switch (std::filesystem::symlink_status(target, unknown).type()) {
    case std::filesystem::file_type::none:  // creating the file will say what is wrong
    case std::filesystem::file_type::not_found:
    case std::filesystem::file_type::regular:
      return;
    case std::filesystem::file_type::symlink:
      throw DataError(fmt::format("{}: is a symbolic link, which would be replaced; remove it, or name {}",
                                  target.string(), std::filesystem::read_symlink(target, unknown).string()));
    case std::filesystem::file_type::directory:
      throw DataError(target.string() + ": cannot be written: it is a directory; name a file");
    default:
      throw DataError(target.string() + ": cannot be replaced: it is not a regular file; name a file");
  }
}

}  // namespace

PendingFile::PendingFile(std::filesystem::path target)
    : target_(std::move(target)), temporary_(temporary_beside(target_)) {
  require_regular_or_absent(target_);
  std::error_code ignored;  // left by a killed process with this very id
  std::filesystem::remove(temporary_, ignored);
}

void replace_file(std::filesystem::path const& path, std::string_view text) {
  PendingFile file(path);
  file.write(text);
  file.commit();
}

void require_replaceable(std::filesystem::path const& path) {
  PendingFile(path).write("");
}

void make_directory(std::filesystem::path const& directory) {
  PendingDirectory made(directory);
  made.sync();
  made.keep();
}

PendingFile::~PendingFile() {
  if (!committed_) {
    std::error_code ignored;
    std::filesystem::remove(temporary_, ignored);
  }
}

FileDescriptor PendingFile::create() const {
  FileDescriptor file(temporary_, O_WRONLY | O_CREAT | O_EXCL);
  if (!file.is_open()) {
    fail_with_errno(target_, "create the file");
  }
  return file;
}

void PendingFile::write(std::string_view content) const {
  write_at(create(), target_, 0, text_bytes(content));
  sync();
}

void PendingFile::sync() const {
  FileDescriptor const file(temporary_, O_RDONLY);
  if (!file.is_open() || ::fsync(file.get()) != 0) {
    fail_with_errno(target_, "write to the disk");
  }
}

void PendingFile::commit() {
  std::error_code failure;
  std::filesystem::rename(temporary_, target_, failure);
  if (failure) {
    throw Error(fmt::format("{}: cannot be put in its place: {}", target_.string(), failure.message()));
  }
  committed_ = true;
  std::filesystem::path const parent = target_.parent_path();
  sync_to_disk(parent.empty() ? "." : parent);
}

PendingDirectory::PendingDirectory(std::filesystem::path directory)
    : directory_(std::filesystem::absolute(std::move(directory)).lexically_normal()), existing_(directory_) {
  if (!directory_.has_filename()) {  // "data/" names the same place as "data"
    directory_ = directory_.parent_path();
    existing_ = directory_;
  }
  std::error_code failure;
  while (!std::filesystem::exists(existing_, failure) && existing_.has_relative_path()) {
    existing_ = existing_.parent_path();
  }
  std::filesystem::create_directories(directory_, failure);
  if (failure || !std::filesystem::is_directory(directory_)) {
    throw Error(fmt::format("{}: cannot make this directory: {}", directory_.string(),
                            failure ? failure.message() : "something else has its name"));
  }
}

void PendingDirectory::sync() const {
  for (auto path = directory_; path != existing_; path = path.parent_path()) {
    sync_to_disk(path.parent_path());
  }
}

PendingDirectory::~PendingDirectory() {
  std::error_code ignored;
  for (auto path = directory_; !keep_ && path != existing_ && std::filesystem::remove(path, ignored);) {
    path = path.parent_path();
  }
}

UnfinishedDirectory::UnfinishedDirectory(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code failure;
  if (!std::filesystem::create_directory(path_, failure)) {
    throw Error(
        fmt::format("{}: cannot be made: {}", path_.string(), failure ? failure.message() : "it exists already"));
  }
}

UnfinishedDirectory::~UnfinishedDirectory() {
  if (!renamed_) {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
}

void UnfinishedDirectory::rename_to(std::filesystem::path const& target) {
  if (!rename_without_replacing(path_, target)) {
    throw Error(target.string() + ": appeared while it was being written; are two jobs running in one directory?");
  }
  renamed_ = true;
}

void UnfinishedDirectory::exchange_with(std::filesystem::path const& target) {
  if (exchange_names(path_, target)) {
    return;
  }
  UnfinishedDirectory const old(path_.string() + "-old");
  std::filesystem::rename(target, old.path());
  rename_to(target);
}

}  // namespace heddle
