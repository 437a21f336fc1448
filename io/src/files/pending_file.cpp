#include "pending_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <heddle/core/base/error.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <system_error>
#include <utility>

#include "file_descriptor.hpp"

namespace heddle {
namespace {

std::filesystem::path temporary_beside(std::filesystem::path const& target) {
  return target.parent_path() / fmt::format(".{}.{}.partial", target.filename().string(), getpid());
}

}  // namespace

PendingFile::PendingFile(std::filesystem::path target)
    : target_(std::move(target)), temporary_(temporary_beside(target_)) {
  std::error_code ignored;  // left by a killed process with this very id
  std::filesystem::remove(temporary_, ignored);
}

void replace_file(std::filesystem::path const& path, std::string_view text) {
  PendingFile file(path);
  file.write(text);
  file.commit();
}

void require_replaceable(std::filesystem::path const& path) {
  if (std::filesystem::is_directory(path)) {
    throw Error(path.string() + ": cannot be written: it is a directory");
  }
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

void PendingFile::write(std::string_view content) const {
  write_new_file(temporary_, content);
  sync();
}

void PendingFile::sync() const {
  sync_to_disk(temporary_);
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

}  // namespace heddle
