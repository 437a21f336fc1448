#include "pending_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <heddle/core/base/error.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/files/sha256.hpp>
#include <random>
#include <system_error>
#include <utility>

#include "file_descriptor.hpp"

namespace heddle {

namespace {

constexpr std::string_view private_suffix = ".partial";

}  // namespace

std::string private_name(std::string const& prefix) {
  return fmt::format("{}{:08x}{}", prefix, std::random_device()(), private_suffix);
}

bool is_private_name(std::string_view name, std::string_view prefix) {
  constexpr std::size_t digits = 8;
  return name.size() == prefix.size() + digits + private_suffix.size() && name.starts_with(prefix) &&
         name.ends_with(private_suffix) &&
         name.substr(prefix.size(), digits).find_first_not_of("0123456789abcdef") == name.npos;
}

void require_regular_or_absent(std::filesystem::path const& target) {
  std::error_code unknown;
  switch (std::filesystem::symlink_status(target, unknown).type()) {
    case std::filesystem::file_type::none:  // creating the file will say what is wrong
    case std::filesystem::file_type::not_found:
    case std::filesystem::file_type::regular:
      return;
    case std::filesystem::file_type::symlink:
      throw DataError("{}: is a symbolic link, which would be replaced; remove it, or name {}", target.string(),
                      std::filesystem::read_symlink(target, unknown).string());
    case std::filesystem::file_type::directory:
      throw DataError(target.string() + ": cannot be written: it is a directory; name a file");
    default:
      throw DataError(target.string() + ": cannot be replaced: it is not a regular file; name a file");
  }
}

PendingFile::PendingFile(std::filesystem::path target)
    : target_(std::move(target)),
      temporary_(target_.parent_path() / private_name(fmt::format(".{}.", target_.filename().string()))) {
  require_regular_or_absent(target_);
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
  MadeDirectories made(directory);
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
    throw Error("{}: cannot be put in its place: {}", target_.string(), failure.message());
  }
  committed_ = true;
  std::filesystem::path const parent = target_.parent_path();
  sync_to_disk(parent.empty() ? "." : parent);
}

MadeDirectories::MadeDirectories(std::filesystem::path directory)
    : directory_(std::filesystem::absolute(std::move(directory)).lexically_normal()) {
  if (!directory_.has_filename()) {  // "data/" names the same place as "data"
    directory_ = directory_.parent_path();
  }
  constexpr int max_attempts = 100;  // another command may remove an empty parent that it has made
  std::error_code failure = std::make_error_code(std::errc::no_such_file_or_directory);
  for (int attempt = 0; attempt < max_attempts && failure == std::errc::no_such_file_or_directory; ++attempt) {
    existing_ = directory_;
    while (!std::filesystem::exists(existing_, failure) && existing_.has_relative_path()) {
      existing_ = existing_.parent_path();
    }
    std::filesystem::create_directories(directory_, failure);
  }
  if (failure || !std::filesystem::is_directory(directory_)) {
    throw Error("{}: cannot make this directory: {}", directory_.string(),
                failure ? failure.message() : "something else has its name");
  }
}

void MadeDirectories::sync() const {
  for (auto path = directory_; path != existing_; path = path.parent_path()) {
    sync_to_disk(path.parent_path());
  }
}

MadeDirectories::~MadeDirectories() {
  std::error_code ignored;
  for (auto path = directory_; !keep_ && path != existing_ && std::filesystem::remove(path, ignored);) {
    path = path.parent_path();
  }
}

UnfinishedDirectory::UnfinishedDirectory(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code failure;
  if (!std::filesystem::create_directory(path_, failure)) {
    throw Error("{}: cannot be made: {}", path_.string(), failure ? failure.message() : "it exists already");
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

bool UnfinishedDirectory::exchange_with(std::filesystem::path const& target) const {
  return exchange_names(path_, target);
}

}  // namespace heddle
