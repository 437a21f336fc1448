#include "writing.hpp"

#include <atomic>
#include <heddle/io/checkpoint/memory_store.hpp>
#include <memory>
#include <system_error>
#include <utility>

#include "files/direct_file.hpp"
#include "parallel/run_collectively.hpp"
#include "tensors/block_reader.hpp"

namespace heddle {

namespace fs = std::filesystem;

/// Copies files in a thread of its own, which calls neither MPI nor HDF5: each block is compared with its digest in the
/// memory from which it is written, each file is synced, read back and compared again.
class FileCopies {
 public:
  struct Item {
    std::unique_ptr<BlockReader> from;  ///< used by the thread only; the file may be unlinked meanwhile
    fs::path to;                        ///< a new file
  };

  explicit FileCopies(std::vector<Item> items) : items_(std::move(items)), thread_([this] { run(); }) {}
  FileCopies(FileCopies const&) = delete;
  FileCopies& operator=(FileCopies const&) = delete;
  /// Stops after the block that is being copied.
  ~FileCopies() { stop_ = true; }

  bool done() const { return thread_.done(); }
  void finish() { thread_.finish(); }

 private:
  void run() {
    for (Item const& item : items_) {
      copy(item);
    }
  }

  void copy(Item const& item) {
    FileDigest const& digest = item.from->digest();
    DirectFile to(item.to);
    std::vector<std::uint8_t> bytes;
    for (std::int64_t block = 0; block < item.from->blocks(); ++block) {
      if (stop_) {
        return;
      }
      bytes.resize(static_cast<std::size_t>(block_bytes(digest, block)));
      item.from->read(block * manifest_block_bytes, bytes);
      to.append(bytes);
    }
    to.finish(true);
    if (!stop_) {
      require_equal(item.to, digest);
    }
  }

  std::vector<Item> items_;
  std::atomic<bool> stop_ = false;
  BackgroundThread thread_;
};

struct BackgroundCommit::Parts {
  CheckpointStore::Writing writing;
  Manifest manifest;
  std::unique_ptr<FileCopies> copies;  ///< null if a verified checkpoint of the step was there already
};

BackgroundCommit::BackgroundCommit(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

BackgroundCommit::~BackgroundCommit() = default;  // the thread stops before its directory is removed

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
    run_collectively(world, [&] {
      auto const cache = make_block_cache();
      std::vector<FileCopies::Item> items;
      for (std::size_t number = 0; number < from.manifest.files.size(); ++number) {
        FileDigest const& file = from.manifest.files[number];
        if (world.rank() == (number == 0 ? 0 : from.writers[number - 1])) {
          items.push_back(
              {std::make_unique<BlockReader>(from.directory / file.name, file, cache), writing.place / file.name});
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
  BackgroundCommit::Parts& parts = *begun->parts_;
  Writing& writing = parts.writing;
  if (parts.copies == nullptr) {
    return writing.result;
  }
  write_step(writing.step, [&] {
    run_collectively(world, [&] { parts.copies->finish(); });
    on_rank_0(world, [&] {
      write_manifest(writing.place, parts.manifest, reached);
      publish(writing, reached);
    });
  });
  return writing.result;
}

}  // namespace heddle
