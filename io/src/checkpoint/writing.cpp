#include "writing.hpp"

#include <heddle/core/base/error.hpp>
#include <system_error>
#include <utility>

#include "files/file_descriptor.hpp"
#include "parallel/together.hpp"

namespace heddle {

namespace fs = std::filesystem;

UnfinishedDirectory::UnfinishedDirectory(fs::path path) : path_(std::move(path)) {
  if (!fs::create_directory(path_)) {
    throw Error(path_.string() + ": exists already");
  }
}

UnfinishedDirectory::~UnfinishedDirectory() {
  if (!renamed_) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
}

void UnfinishedDirectory::rename_to(fs::path const& target) {
  if (!rename_without_replacing(path_, target)) {
    throw Error(target.string() + ": appeared while it was being written; are two jobs running in one directory?");
  }
  renamed_ = true;
}

BackgroundCommit::BackgroundCommit(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

BackgroundCommit::~BackgroundCommit() {
  parts_->copies.reset();  // stops the thread before its directory is removed
}

std::int64_t BackgroundCommit::step() const {
  return parts_->writing.step;
}

bool BackgroundCommit::done() const {
  return parts_->copies == nullptr || parts_->copies->done();
}

std::unique_ptr<BackgroundCommit> CheckpointStore::begin(Communicator const& world, MemoryCheckpoint const& from,
                                                         Observer const& observe) const {
  Observer const reached = observe ? observe : [](std::string_view) {};
  auto parts = std::make_unique<BackgroundCommit::Parts>();
  Writing& writing = parts->writing;
  writing.step = from.manifest.step;
  parts->manifest = from.manifest;
  write_step(writing.step, [&] {
    std::int64_t bytes = 0;
    for (FileDigest const& file : from.manifest.files) {
      bytes += file.bytes;
    }
    if (!prepare(world, writing, bytes, reached)) {
      return;
    }
    together(world, [&] {
      auto const cache = std::make_shared<BlockCache>();
      std::vector<FileCopies::Item> items;
      for (std::size_t number = 0; number < from.manifest.files.size(); ++number) {
        FileDigest const& file = from.manifest.files[number];
        if (world.rank() == (number == 0 ? 0 : from.writers[number - 1])) {
          items.push_back({std::make_unique<BlockReader>(from.directory / file.name, file, cache), file,
                           writing.place / file.name});
        }
      }
      parts->copies = std::make_unique<FileCopies>(std::move(items));
    });
  });
  return std::make_unique<BackgroundCommit>(std::move(parts));
}

CommitResult CheckpointStore::finish(Communicator const& world, std::unique_ptr<BackgroundCommit> begun,
                                     Observer const& observe) {
  Observer const reached = observe ? observe : [](std::string_view) {};
  BackgroundCommit::Parts& parts = begun->parts();
  Writing& writing = parts.writing;
  if (parts.copies == nullptr) {
    return writing.result;
  }
  write_step(writing.step, [&] {
    together(world, [&] { parts.copies->finish(); });
    on_rank_0(world, [&] {
      write_manifest(writing.place, parts.manifest, reached);
      publish(writing, reached);
    });
  });
  on_rank_0(world, [&] {
    prune(writing.step, writing.result);
    reached("pruned");
  });
  return writing.result;
}

}  // namespace heddle
