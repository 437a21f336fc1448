#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/dataset/staged_data.hpp>
#include <heddle/io/files/file_lock.hpp>
#include <heddle/io/files/sha256.hpp>
#include <new>
#include <optional>
#include <sstream>
#include <thread>

#include "files/direct_file.hpp"
#include "files/file_descriptor.hpp"
#include "files/pending_file.hpp"
#include "parallel/run_collectively.hpp"
#include "tensors/hosts.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// The work that a host has done.
struct Totals {
  std::int64_t copied = 0;   ///< files
  std::int64_t present = 0;  ///< files that were there already
  std::int64_t bytes = 0;    ///< of those that were copied
  double seconds = 0;        ///< that copying took
};

/// A file that is to be copied.
struct Original {
  std::string path;
  std::int64_t bytes = 0;
  std::string digest{};  ///< the dataset's
  fs::path copy{};
};

std::string megabytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

/// The user's own directory on a host. Throws Error where there is none: in /tmp anyone may have taken its name.
fs::path own_directory(fs::path const& parent) {
  fs::path const directory = parent / fmt::format("heddle-datasets-{}", ::geteuid());
  if (::mkdir(directory.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    fail_with_errno(directory, "make the directory");
  }
  struct stat status {};
  if (::lstat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) {
    throw Error("{}: is not a directory of this user", directory.string());
  }
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    fail_with_errno(directory, "write into the directory");
  }
  return directory;
}

/// Takes the directory's lock, which shows that what is partial there is of dead processes, and removes that. Waits for
/// a process that is copying; does without where there are no locks. Throws Error where that process does not end.
void take_directory(FileLock& lock, fs::path const& directory, std::function<void()> const& progress) {
  constexpr std::chrono::milliseconds between_questions{50};
  constexpr std::chrono::minutes max_wait{30};
  auto const end = Clock::now() + max_wait;
  FileLock::Result result = lock.try_take(FileLock::Kind::exclusive);
  while (result == FileLock::Result::busy) {
    if (Clock::now() > end) {
      throw Error("{}: another process has copied there for {} minutes", directory.string(), max_wait.count());
    }
    progress();
    std::this_thread::sleep_for(between_questions);
    result = lock.try_take(FileLock::Kind::exclusive);
  }
  if (result != FileLock::Result::taken) {
    return;
  }
  for (auto const& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == ".partial") {
      fs::remove(entry.path());
    }
  }
}

/// Throws DataError for a file that is not a dataset.
Original describe(std::string const& path, fs::path const& directory) {
  Original original{.path = path, .bytes = static_cast<std::int64_t>(fs::file_size(path))};
  original.digest = Dataset::open(path).digest();
  constexpr std::size_t digits = 16;
  std::string const key = sha256(
      fmt::format("{} {} {}", original.bytes, fs::last_write_time(path).time_since_epoch().count(), original.digest));
  original.copy =
      directory / fmt::format("{}-{}.h5", fs::path(path).stem().string(), std::string_view(key).substr(0, digits));
  return original;
}

/// Throws DataError unless the copy has the size and the digest. The digest stands for those of all blocks, which are
/// compared when a block is read.
void require_same(Original const& original) {
  if (auto const bytes = static_cast<std::int64_t>(fs::file_size(original.copy)); bytes != original.bytes) {
    throw DataError("{}: has {} bytes, and {} has {}", original.copy.string(), bytes, original.path, original.bytes);
  }
  if (Dataset::open(original.copy).digest() != original.digest) {
    throw DataError("{}: is another dataset than {}", original.copy.string(), original.path);
  }
}

/// Reads the file in large pieces, and the copy back from the disk. Throws Error where it cannot be written, DataError
/// where it cannot be read or comes back otherwise.
void make_copy(Original const& original, std::function<void()> const& progress) {
  constexpr std::int64_t spare_bytes = std::int64_t{64} << 20;  // for others on this file system
  fs::path const directory = original.copy.parent_path();
  if (std::int64_t const free = free_bytes_at(directory); free - spare_bytes < original.bytes) {
    throw Error("{}: {} and {} to spare are needed for a copy, {} are free", directory.string(),
                megabytes(original.bytes), megabytes(spare_bytes), megabytes(free));
  }
  PendingFile pending(original.copy);
  Sha256 read;
  {
    FileDescriptor const from(original.path, O_RDONLY);
    if (!from.is_open()) {
      throw DataError("{}: cannot be opened: {}", original.path, std::strerror(errno));
    }
    ::posix_fadvise(from.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    DirectFile to(pending.temporary());
    std::vector<std::uint8_t> bytes(DirectBuffer::bytes);
    for (std::int64_t offset = 0; offset < original.bytes; progress()) {
      std::size_t const count = read_at(from, original.path, offset, bytes);
      if (count == 0) {
        throw DataError("{}: became shorter while it was copied", original.path);
      }
      auto const piece = std::span<std::uint8_t const>(bytes).first(count);
      read.update(piece);
      to.append(piece);
      offset += static_cast<std::int64_t>(count);
    }
    to.finish(true);
  }
  Sha256 written;
  read_from_disk(pending.temporary(), [&](std::span<std::uint8_t const> piece) {
    written.update(piece);
    progress();
  });
  if (read.finish() != written.finish()) {
    throw DataError("{}: came back from the disk with other bytes than {} has", original.copy.string(), original.path);
  }
  pending.commit();
  require_same(original);
}

/// The work of the first rank of a host.
class HostCopies {
 public:
  void make(std::vector<std::string> const& files, fs::path const& parent, std::function<void()> const& progress) {
    std::string const problem = problem_of([&] {
      fs::path const directory = own_directory(parent);
      FileLock lock(directory / ".lock");
      take_directory(lock, directory, progress);
      std::ranges::for_each(files, [&](std::string const& file) { attempt(file, directory, progress); });
    });
    warn(problem, "datasets are not copied there");
  }

  std::string const& warnings() const { return warnings_; }
  Totals const& totals() const { return totals_; }
  /// A line for each file, empty for one that is read in place.
  std::string names(std::vector<std::string> const& files) const {
    std::string names;
    for (std::string const& file : files) {
      auto const copy = copies_.find(file);
      names += (copy == copies_.end() ? "" : copy->second) + "\n";
    }
    return names;
  }

 private:
  /// The text of an error, "" for none.
  template <class Action>
  static std::string problem_of(Action const& action) {
    try {
      action();
      return "";
    } catch (std::bad_alloc const&) {
      throw;
    } catch (std::exception const& error) {
      return error.what();
    }
  }

  void warn(std::string const& problem, std::string const& consequence) {
    warnings_ += problem.empty() ? "" : fmt::format("{}: {}\n", problem, consequence);
  }

  void attempt(std::string const& file, fs::path const& directory, std::function<void()> const& progress) {
    std::optional<Original> original;
    if (!problem_of([&] { original = describe(file, directory); }).empty()) {
      return;  // who opens the file says what is wrong
    }
    std::string const problem = problem_of([&] {
      if (is_present(*original)) {
        ++totals_.present;
      } else {
        auto const begin = Clock::now();
        make_copy(*original, progress);
        totals_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
        totals_.bytes += original->bytes;
        ++totals_.copied;
      }
      copies_[file] = original->copy.string();
    });
    warn(problem, file + " is read in place");
  }

  /// Whether the copy is there and good. A bad one is removed.
  bool is_present(Original const& original) {
    if (!fs::exists(fs::symlink_status(original.copy))) {
      return false;
    }
    std::string const problem = problem_of([&] { require_same(original); });
    if (!problem.empty()) {
      fs::remove(original.copy);
      warn(problem, "this copy is damaged, and is made again");
    }
    return problem.empty();
  }

  DatasetCopies copies_;
  Totals totals_;
  std::string warnings_;
};

std::string summarize(std::vector<Totals> const& hosts, fs::path const& parent) {
  Totals sum;
  std::int64_t used = 0;
  for (Totals const& host : hosts) {
    sum.copied += host.copied;
    sum.present += host.present;
    sum.bytes += host.bytes;
    sum.seconds = std::max(sum.seconds, host.seconds);
    used += host.copied + host.present > 0 ? 1 : 0;
  }
  if (used == 0) {
    return "";
  }
  std::string const copied =
      sum.copied == 0
          ? ""
          : fmt::format("{} copied, {} in {:.1f} s ({:.2f} GB/s), ", counted(sum.copied, "file"), megabytes(sum.bytes),
                        sum.seconds, static_cast<double>(sum.bytes) / 1e9 / std::max(sum.seconds, 1e-9));
  return fmt::format("datasets staged in {} of {}: {}{} there already", parent.string(), counted(used, "host"), copied,
                     counted(sum.present, "file"));
}

}  // namespace

StagedData stage_datasets(std::vector<std::string> const& files, fs::path const& directory, Communicator const& world,
                          std::function<void()> const& progress) {
  Hosts const hosts = Hosts::gather(world);
  Communicator const host = world.split(static_cast<int>(hosts.own()), world.rank(), "host");
  HostCopies own;
  run_collectively(host, [&] {  // in which the others wait without polling
    if (hosts.leads()) {
      own.make(files, directory, progress);
    }
  });
  StagedData staged;
  std::istringstream names(broadcast_text(host, own.names(files)));
  for (std::string const& file : files) {
    if (std::string name; std::getline(names, name) && !name.empty()) {
      staged.copies[file] = name;
    }
  }
  std::vector<std::string> const problems = gather_texts(world, own.warnings());
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    std::istringstream lines(problems[rank]);
    for (std::string line; std::getline(lines, line);) {
      staged.warnings.push_back(hosts.size() > 1 ? fmt::format("host of rank {}: {}", rank, line) : line);
    }
  }
  staged.summary = summarize(gather_values(world, own.totals()), directory);
  return staged;
}

}  // namespace heddle
