#include "pending_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <heddle/core/base/error.hpp>
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
  std::error_code ignored;  // what a killed process with this very id may have left
  std::filesystem::remove(temporary_, ignored);
}

PendingFile::~PendingFile() {
  if (!committed_) {
    std::error_code ignored;
    std::filesystem::remove(temporary_, ignored);
  }
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

PendingDirectory::~PendingDirectory() {
  std::error_code ignored;
  for (auto path = directory_; !keep_ && path != existing_ && std::filesystem::remove(path, ignored);) {
    path = path.parent_path();
  }
}

}  // namespace heddle
