#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <compare>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/host_memory/memory_store.hpp>
#include <map>
#include <new>
#include <utility>

#include "block_message.hpp"
#include "checkpoint/state_file.hpp"
#include "files/file_descriptor.hpp"
#include "parallel/together.hpp"
#include "spread_files.hpp"
#include "tensors/hosts.hpp"
#include "tensors/tensor_writer.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

constexpr int max_writers_on_host = 4;
constexpr std::int64_t room_for_state = std::int64_t{16} << 20;
constexpr std::size_t short_digest = 16;
constexpr char const* unfinished_prefix = ".tmp-";
constexpr char const* fetched_suffix = "-fetched";

std::int64_t bytes_below(fs::path const& directory) {
  std::int64_t bytes = 0;
  std::error_code ignored;
  for (auto const& entry : fs::recursive_directory_iterator(directory, ignored)) {
    if (entry.is_regular_file(ignored)) {
      bytes += static_cast<std::int64_t>(entry.file_size(ignored));
    }
  }
  return bytes;
}

/// The root is open to everybody: a directory of another user, or a link, is neither read nor written.
bool is_own_directory(fs::path const& directory) {
  struct stat status {};
  return ::lstat(directory.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

/// A checkpoint that some host has: the digest tells apart two of the same step.
struct Candidate {
  std::int64_t step = 0;
  std::array<std::uint8_t, 32> digest{};
  auto operator<=>(Candidate const&) const = default;
};

/// The manifests in a host's directory. Those that cannot be read are left out, as they are never used.
struct FoundManifests {
  std::map<Candidate, std::string> texts;
  std::string rejected;  ///< the reasons for those that are left out; empty: none is
};

FoundManifests find_manifests(fs::path const& directory) {
  FoundManifests found;
  if (!is_own_directory(directory)) {
    return found;
  }
  std::error_code ignored;
  for (auto const& entry : fs::directory_iterator(directory, ignored)) {
    if (auto const step = checkpoint_step(entry.path().filename().string())) {
      try {
        std::string const text = manifest_text(read_manifest(entry.path()));
        found.texts[{*step, sha256_bytes({reinterpret_cast<std::uint8_t const*>(text.data()), text.size()})}] = text;
      } catch (Error const& error) {
        found.rejected += fmt::format("{}{} in memory on {} rejected: {}", found.rejected.empty() ? "" : "; ",
                                      entry.path().filename().string(), host_name(), error.what());
      }
    }
  }
  return found;
}

/// One file of tensors on its way from its writer to a rank on the buddy of the writer's host.
struct FileCopy {
  FileDigest const* file;
  int sender;
  int receiver;
};

/// This rank's part in sending files, all at the same time, block by block.
class Copying {
 public:
  Copying(Communicator const& world, fs::path const& place, std::vector<FileCopy> const& copies)
      : world_(world), place_(place), copies_(copies), cache_(std::make_shared<BlockCache>()) {
    error_.attempt([&] {
      for (FileCopy const& copy : copies_) {
        if (copy.sender == world_.rank()) {
          readers_[&copy] = std::make_unique<BlockReader>(place_ / copy.file->name, *copy.file, cache_);
        }
        if (copy.receiver == world_.rank()) {
          outputs_.emplace(&copy, FileDescriptor(place_ / copy.file->name, O_WRONLY | O_CREAT | O_EXCL));
          if (!outputs_.at(&copy).is_open()) {
            fail_with_errno(place_ / copy.file->name, "create the file");
          }
        }
      }
    });
  }

  /// Errors are kept for the end: others wait for what this rank sends.
  void run() {
    std::int64_t rounds = 0;
    for (FileCopy const& copy : copies_) {
      rounds = std::max(rounds, std::ssize(copy.file->blocks));
    }
    for (std::int64_t block = 0; block < rounds; ++block) {
      round(block);
    }
    together(world_, [&] { error_.rethrow(); });
  }

 private:
  void round(std::int64_t block) {
    std::vector<Transfer> sends;
    std::vector<FileCopy const*> mine;
    for (FileCopy const& copy : copies_) {
      if (block >= std::ssize(copy.file->blocks)) {
        continue;
      }
      std::int64_t const count = block_bytes(*copy.file, block);
      if (copy.sender == world_.rank()) {
        BlockMessage& message = sent_[&copy];
        error_.attempt([&] { readers_.at(&copy)->read(block * manifest_block_bytes, message.bytes(count)); });
        sends.push_back(message.start_send(world_, count, copy.receiver));
      }
      if (copy.receiver == world_.rank()) {
        mine.push_back(&copy);
      }
    }
    for (FileCopy const* const copy : mine) {
      received_.receive(world_, block_bytes(*copy->file, block), copy->sender);
      error_.attempt([&] {
        write_at(outputs_.at(copy), place_ / copy->file->name, block * manifest_block_bytes,
                 received_.verified(*copy->file, block, copy->sender));
      });
    }
    for (Transfer& send : sends) {
      send.wait();
    }
  }

  Communicator const& world_;
  fs::path const& place_;
  std::vector<FileCopy> const& copies_;
  std::shared_ptr<BlockCache> cache_;
  std::map<FileCopy const*, std::unique_ptr<BlockReader>> readers_;
  std::map<FileCopy const*, FileDescriptor> outputs_;
  std::map<FileCopy const*, BlockMessage> sent_;
  BlockMessage received_;
  FirstError error_;
};

}  // namespace

MemoryStore::MemoryStore(Communicator const& world, Place const& place)
    : world_(world), hosts_(std::make_unique<Hosts>(Hosts::gather(world))), root_(place.root) {
  std::string const run = broadcast_text(world, sha256(place.run.string()).substr(0, short_digest));
  std::string const identity = broadcast_text(world, place.identity);
  run_name_ = fmt::format("heddle-{}-{}-", ::getuid(), run);
  directory_ = root_ / fmt::format("{}{}-{}", run_name_, identity, host_name());
}

MemoryStore::~MemoryStore() = default;

std::vector<int> MemoryStore::choose_writers(std::int64_t writers) const {
  if (writers > 0) {
    return heddle::choose_writers(world_, writers);
  }
  std::vector<int> chosen;
  for (std::vector<int> const& ranks : hosts_->ranks) {
    auto const count = std::min(static_cast<int>(ranks.size()), max_writers_on_host);
    for (int writer = 0; writer < count; ++writer) {
      chosen.push_back(ranks[static_cast<std::size_t>(writer) * ranks.size() / static_cast<std::size_t>(count)]);
    }
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

bool MemoryStore::is_in_memory(fs::path const& directory) {
  struct statfs status {};
  return ::statfs(directory.c_str(), &status) == 0 &&
         (status.f_type == TMPFS_MAGIC || status.f_type == static_cast<long>(RAMFS_MAGIC));
}

void MemoryStore::require_room(std::vector<StreamedTensor> const& tensors, std::int64_t writers,
                               int checkpoints) const {
  std::vector<int> const ranks = choose_writers(writers);
  TensorFiles const planned = plan_tensor_files(tensors, std::ssize(ranks));
  std::int64_t needed = room_for_state;
  for (std::size_t file = 0; file < planned.files.size(); ++file) {
    std::size_t const host = hosts_->host_of[static_cast<std::size_t>(ranks[file])];
    if (host == hosts_->own() || hosts_->buddy(host) == hosts_->own()) {
      needed += planned.files[file].image->size();
    }
  }
  needed *= checkpoints;
  together(world_, [&] {
    if (!hosts_->leads()) {
      return;
    }
    struct statvfs status {};
    if (!fs::is_directory(root_) || ::statvfs(root_.c_str(), &status) != 0) {
      throw ConfigError(
          fmt::format("checkpoint.memory_directory = \"{}\" is no directory on {}; expected a file "
                      "system in memory, as /dev/shm",
                      root_.string(), host_name()));
    }
    auto const free = static_cast<std::int64_t>(std::uint64_t{status.f_bavail} * status.f_frsize);
    if (free + bytes_below(directory_) < needed) {
      constexpr std::int64_t mebibyte = 1 << 20;
      throw ConfigError(fmt::format(
          "checkpoint.memory_directory = \"{}\" has {} MiB free on {}, and {} checkpoints in memory need {} MiB there: "
          "make it larger (mount -o remount,size=…), use more hosts, or set checkpoint.memory_every_steps = 0 and "
          "checkpoint.async = false",
          root_.string(), free / mebibyte, host_name(), checkpoints, needed / mebibyte));
    }
  });
}

void MemoryStore::make_own_directory() const {
  constexpr mode_t owner_only = 0700;
  if (::mkdir(directory_.c_str(), owner_only) != 0 && errno != EEXIST) {
    fail_with_errno(directory_, "make the directory");
  }
  if (!is_own_directory(directory_)) {
    throw Error(directory_.string() + ": is no directory of this user");
  }
}

void MemoryStore::prune(fs::path const& keep) const {
  std::error_code ignored;
  for (auto const& entry : fs::directory_iterator(directory_, ignored)) {
    if (entry.path() != keep) {
      fs::remove_all(entry.path(), ignored);
    }
  }
}

void MemoryStore::copy_to_buddies(fs::path const& place, MemoryCheckpoint const& made) const {
  if (hosts_->size() == 1) {
    return;
  }
  std::vector<FileCopy> copies;
  for (std::size_t file = 1; file < made.manifest.files.size(); ++file) {
    int const writer = made.writers[file - 1];
    std::size_t const host = hosts_->host_of[static_cast<std::size_t>(writer)];
    copies.push_back({&made.manifest.files[file], writer, hosts_->rank_on(hosts_->buddy(host), file)});
  }
  Copying(world_, place, copies).run();
}

MemoryCheckpoint MemoryStore::commit(CheckpointContents const& contents, TensorStream& tensors, std::int64_t writers) {
  std::int64_t const step = broadcast_value(world_, contents.state.step);
  MemoryCheckpoint made{directory_ / checkpoint_directory_name(step), {}, choose_writers(writers)};
  fs::path const place = directory_ / (unfinished_prefix + checkpoint_directory_name(step));
  try {
    check_tensors(tensors.tensors());
    TensorFiles const planned = plan_tensor_files(tensors.tensors(), std::ssize(made.writers));
    together(world_, [&] {
      if (hosts_->leads()) {
        make_own_directory();
        fs::remove_all(place);
        fs::create_directory(place);
      }
    });
    WrittenTensors const written = write_tensor_files(
        world_, {.writers = made.writers, .planned = planned, .directory = place, .durable = false}, tensors);
    std::string state;
    on_rank_0(world_, [&] { state = state_file_bytes({contents, planned.tensors}); });
    state = broadcast_text(world_, state);
    FileHash hash(state_file_name);
    hash.add({reinterpret_cast<std::uint8_t const*>(state.data()), state.size()});
    made.manifest = {step, {hash.finish()}};
    made.manifest.files.insert(made.manifest.files.end(), written.files.begin(), written.files.end());
    copy_to_buddies(place, made);
    // The older one goes only after all hosts have the new one.
    together(world_, [&] {
      if (hosts_->leads()) {
        write_new_file(place / state_file_name, state);
        write_new_file(place / manifest_file_name, manifest_text(made.manifest));
      }
    });
    together(world_, [&] {
      if (hosts_->leads()) {
        fs::remove_all(made.directory);  // of the same step, not used
        fs::rename(place, made.directory);
      }
    });
    together(world_, [&] {
      if (hosts_->leads()) {
        prune(made.directory);
      }
    });
  } catch (Error const& error) {
    if (hosts_->leads()) {
      std::error_code ignored;
      fs::remove_all(place, ignored);
    }
    throw Error(fmt::format("checkpoint of step {} was not written to memory: {}", step, error.what()),
                error.code() == ExitCode::loss_not_finite ? error.code() : ExitCode::failure);
  }
  return made;
}

std::optional<Checkpoint> MemoryStore::newest_verified(CheckpointStore::Report const& report) const {
  auto const [own, rejected] = find_manifests(directory_);
  for (std::string const& text : gather_texts(world_, hosts_->leads() ? rejected : "")) {
    if (world_.rank() == 0 && !text.empty()) {
      report(text);
    }
  }
  std::vector<Candidate> listed;
  if (hosts_->leads()) {
    for (auto const& [candidate, text] : own) {
      listed.push_back(candidate);
    }
  }
  std::map<Candidate, int> newest_last;  // and the first rank that has it
  int rank = 0;
  for (auto const& list : gather_lists<Candidate>(world_, listed)) {
    for (Candidate const& candidate : list) {
      newest_last.try_emplace(candidate, rank);
    }
    ++rank;
  }
  for (auto turn = newest_last.rbegin(); turn != newest_last.rend(); ++turn) {
    auto const& [candidate, root] = *turn;
    auto const mine = own.find(candidate);
    fs::path const name = checkpoint_directory_name(candidate.step);
    std::string const text = broadcast_text(world_, mine == own.end() ? "" : mine->second, root);
    try {
      auto spread =
          std::make_shared<SpreadFiles>(world_,
                                        SpreadFiles::Place{*hosts_, mine == own.end() ? fs::path() : directory_ / name,
                                                           fs::path(directory_.string() + fetched_suffix)},
                                        parse_manifest(text, (directory_ / name / manifest_file_name).string()));
      std::vector<std::string> const notes = spread->notes();
      Checkpoint found = Checkpoint::open(directory_ / name, std::move(spread), world_);
      for (std::size_t note = 0; note < notes.size() && world_.rank() == 0; ++note) {
        report(fmt::format("{} in memory: another host's copy is used: {}", name.string(), notes[note]));
      }
      return found;
    } catch (std::bad_alloc const&) {
      throw;
    } catch (std::exception const& error) {
      if (world_.rank() == 0) {
        report(fmt::format("{} in memory rejected: {}", name.string(), error.what()));
      }
    }
  }
  return std::nullopt;
}

void MemoryStore::remove_named(bool own) const {
  if (!hosts_->leads()) {
    return;
  }
  std::error_code ignored;
  for (auto const& entry : fs::directory_iterator(root_, ignored)) {
    std::string const name = entry.path().filename().string();
    std::size_t const host = run_name_.size() + short_digest;  // after the identity
    if (!name.starts_with(run_name_) || name.size() <= host || !is_own_directory(entry.path())) {
      continue;
    }
    bool const of_host =
        name.substr(host) == "-" + host_name() || name.substr(host) == "-" + host_name() + fetched_suffix;
    if (of_host && (own || !name.starts_with(directory_.filename().string()))) {
      fs::remove_all(entry.path(), ignored);
    }
  }
}

void MemoryStore::remove_stale() const {
  remove_named(false);
}

void MemoryStore::remove() const {
  remove_named(true);
}

}  // namespace heddle
