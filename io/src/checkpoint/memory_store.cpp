#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <compare>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/checkpoint/memory_store.hpp>
#include <heddle/io/files/sha256.hpp>
#include <map>
#include <new>
#include <utility>

#include "checkpoint/state_file.hpp"
#include "checkpoint/writing.hpp"
#include "files/file_descriptor.hpp"
#include "parallel/run_collectively.hpp"
#include "tensors/block_exchange.hpp"
#include "tensors/hosts.hpp"
#include "tensors/spread_files.hpp"
#include "tensors/tensor_writer.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

constexpr int max_writers_on_host = 4;
constexpr std::int64_t room_for_state = std::int64_t{16} << 20;
constexpr std::size_t short_digest = 16;
constexpr char const* unfinished_prefix = ".tmp-";
constexpr char const* fetched_suffix = "-fetched";

/// The root is open to everybody: a directory of another user, or a link, is neither read nor written.
bool is_own_directory(fs::path const& directory) {
  struct stat status {};
  return ::lstat(directory.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

/// A checkpoint that some host has: the digest tells apart two of the same step.
struct Candidate {
  std::int64_t step = 0;
  DigestBytes digest{};
  auto operator<=>(Candidate const&) const = default;
};

/// The manifests in a host's directory. Manifests that cannot be read are left out: they are never used.
struct FoundManifests {
  std::map<Candidate, std::string> texts;
  std::string rejected;  ///< why manifests were left out; empty: none was
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
        found.texts[{*step, sha256_bytes(text_bytes(text))}] = text;
      } catch (Error const& error) {
        found.rejected += fmt::format("{}{} in memory on {} rejected: {}", found.rejected.empty() ? "" : "; ",
                                      entry.path().filename().string(), host_name(), error.what());
      }
    }
  }
  return found;
}

}  // namespace

MemoryStore::MemoryStore(Communicator const& world, Place const& place)
    : world_(world), hosts_(std::make_unique<Hosts>(Hosts::gather(world))), root_(place.root) {
  std::string const run = broadcast_text(world, sha256(place.run.string()).substr(0, short_digest));
  std::string const identity = broadcast_text(world, place.identity);
  run_name_ = fmt::format("heddle-{}-{}-", ::getuid(), run);
  directory_ = root_ / fmt::format("{}{}-{}", run_name_, identity, host_name());
}

MemoryStore::~MemoryStore() = default;

bool MemoryStore::is_in_memory(fs::path const& directory) {
  struct statfs status {};
  return ::statfs(directory.c_str(), &status) == 0 &&
         (status.f_type == TMPFS_MAGIC || status.f_type == static_cast<long>(RAMFS_MAGIC));
}

void MemoryStore::require_room(std::vector<StreamedTensor> const& tensors, std::int64_t origin_bytes,
                               std::int64_t writers, int checkpoints) const {
  std::vector<int> const ranks = hosts_->writers(writers, max_writers_on_host);
  TensorFiles const planned = plan_tensor_files(tensors, std::ssize(ranks));
  std::int64_t needed = room_for_state + origin_bytes;
  for (std::size_t file = 0; file < planned.files.size(); ++file) {
    std::size_t const host = hosts_->host_of[static_cast<std::size_t>(ranks[file])];
    if (host == hosts_->own() || hosts_->buddy(host) == hosts_->own()) {
      needed += planned.files[file].image->size();
    }
  }
  needed *= checkpoints;
  run_collectively(world_, [&] {
    if (!hosts_->leads()) {
      return;
    }
    struct statvfs status {};
    if (!fs::is_directory(root_) || ::statvfs(root_.c_str(), &status) != 0) {
      throw ConfigError(
          "checkpoint.memory_directory = \"{}\" is not a directory on {}; expected a file "
          "system in memory, as /dev/shm",
          root_.string(), host_name());
    }
    auto const free = static_cast<std::int64_t>(std::uint64_t{status.f_bavail} * status.f_frsize);
    if (free + bytes_below(directory_) < needed) {
      constexpr std::int64_t mebibyte = 1 << 20;
      throw ConfigError(
          "checkpoint.memory_directory = \"{}\" has {} MiB free on {}, and {} checkpoints in memory need {} MiB there: "
          "make it larger (mount -o remount,size=…), use more hosts, or set checkpoint.memory_every_steps = 0 and "
          "checkpoint.async = false",
          root_.string(), free / mebibyte, host_name(), checkpoints, needed / mebibyte);
    }
  });
}

void MemoryStore::make_own_directory() const {
  constexpr mode_t owner_only = 0700;
  if (::mkdir(directory_.c_str(), owner_only) != 0 && errno != EEXIST) {
    fail_with_errno(directory_, "make the directory");
  }
  if (!is_own_directory(directory_)) {
    throw Error(directory_.string() + ": is not a directory of this user");
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
  auto const cache = make_block_cache();
  std::map<std::size_t, BlockReader> readers;
  std::vector<BlockCopy> copies;  // of the first blocks
  std::int64_t rounds = 0;
  run_collectively(world_, [&] {
    for (std::size_t number = 1; number < made.manifest.files.size(); ++number) {
      FileDigest const& file = made.manifest.files[number];
      int const writer = made.writers[number - 1];
      std::size_t const host = hosts_->host_of[static_cast<std::size_t>(writer)];
      copies.push_back({number, 0, writer, hosts_->rank_on(hosts_->buddy(host), number)});
      rounds = std::max(rounds, std::ssize(file.blocks));
      if (copies.back().sender == world_.rank()) {
        readers.try_emplace(number, place / file.name, file, cache);
      }
      if (copies.back().receiver == world_.rank()) {
        create_new(place / file.name);
      }
    }
  });
  BlockExchange exchange(
      world_, made.manifest, [&](std::size_t file) -> BlockReader& { return readers.at(file); }, place);
  for (std::int64_t block = 0; block < rounds; ++block) {
    std::erase_if(copies,
                  [&](BlockCopy const& copy) { return block >= std::ssize(made.manifest.files[copy.file].blocks); });
    for (BlockCopy& copy : copies) {
      copy.block = block;
    }
    exchange.copy(copies);
  }
  exchange.finish();
}

MemoryCheckpoint MemoryStore::commit(CheckpointContents const& contents, TensorStream& tensors, std::int64_t writers) {
  std::int64_t const step = broadcast_value(world_, contents.state.step);
  MemoryCheckpoint made{
      directory_ / checkpoint_directory_name(step), {}, hosts_->writers(writers, max_writers_on_host)};
  fs::path const place = directory_ / (unfinished_prefix + checkpoint_directory_name(step));
  std::optional<UnfinishedDirectory> unfinished;  // of the rank that leads its host
  auto const on_each_host = [&](auto const& action) {
    run_collectively(world_, [&] {
      if (hosts_->leads()) {
        action();
      }
    });
  };
  auto const write = [&] {
    TensorFiles const planned = plan_tensor_files(tensors.tensors(), std::ssize(made.writers));
    on_each_host([&] {
      make_own_directory();
      fs::remove_all(place);
      unfinished.emplace(place);
    });
    WrittenTensors const written = write_tensor_files(
        world_, {.writers = made.writers, .planned = planned, .directory = place, .durable = false}, tensors);
    std::string state;
    on_rank_0(world_, [&] { state = state_file_bytes({contents, planned.tensors}); });
    state = broadcast_text(world_, state);
    made.manifest = {step, {digest_of(state_file_name, state)}};
    made.manifest.files.insert(made.manifest.files.end(), written.files.begin(), written.files.end());
    copy_to_buddies(place, made);
    on_each_host([&] {
      write_new_file(place / state_file_name, state);
      write_new_file(place / manifest_file_name, manifest_text(made.manifest));
    });
    on_each_host([&] {
      fs::remove_all(made.directory);  // of the same step, not used
      unfinished->rename_to(made.directory);
    });
    // Older checkpoints go only after all hosts have the new one.
    on_each_host([&] { prune(made.directory); });
  };
  write_step(step, write, " to memory");
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
