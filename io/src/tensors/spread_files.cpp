#include "spread_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/files/sha256.hpp>
#include <new>
#include <utility>

#include "parallel/run_collectively.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

/// One rank's finding about one file on its host. A copy is complete if all ranks of the host find it so.
enum Finding : std::uint8_t { absent, whole, damaged };

}  // namespace

SpreadFiles::SpreadFiles(Communicator const& world, Place place, Manifest manifest)
    : world_(world), place_(std::move(place)), manifest_(std::move(manifest)) {
  std::size_t const files = manifest_.files.size();
  readers_.resize(files);
  std::vector<std::uint8_t> found(files, absent);
  std::string problem;
  std::vector<int> const& ranks = place_.hosts.ranks[place_.hosts.own()];
  auto const turn = static_cast<int>(std::find(ranks.begin(), ranks.end(), place_.hosts.rank) - ranks.begin());
  for (std::size_t number = 0; number < files && !place_.directory.empty(); ++number) {
    FileDigest const& file = manifest_.files[number];
    fs::path const path = place_.directory / file.name;
    try {
      if (!fs::exists(fs::symlink_status(path))) {
        continue;
      }
      auto const reader = std::make_shared<BlockReader>(path, file, cache_);
      readers_[number] = reader;
      IndexRange const mine = share(reader->blocks(), turn, static_cast<int>(ranks.size()));
      for (std::int64_t block = mine.begin; block < mine.end; ++block) {
        reader->verify(block);
      }
      found[number] = whole;
    } catch (std::bad_alloc const&) {
      throw;
    } catch (std::exception const& error) {
      found[number] = damaged;
      problem += (problem.empty() ? "" : "; ") + ("on " + host_name() + ", " + error.what());
    }
  }
  agree(found, problem);
}

void SpreadFiles::agree(std::vector<std::uint8_t> const& found, std::string const& problem) {
  std::size_t const files = found.size();
  auto const all = gather_bytes(world_, std::as_bytes(std::span(found)));
  if (any_of(world_, !problem.empty())) {
    for (std::string const& note : gather_texts(world_, problem)) {
      if (!note.empty()) {
        notes_.push_back(note);
      }
    }
  }
  holders_.resize(files);
  std::string missing;
  for (std::size_t number = 0; number < files; ++number) {
    for (std::size_t host = 0; host < place_.hosts.size(); ++host) {
      bool holds = true;
      for (int const rank : place_.hosts.ranks[host]) {
        std::byte const finding = all[static_cast<std::size_t>(rank) * files + number];
        if (finding != std::byte{whole}) {
          holds = false;
        }
      }
      if (holds) {
        holders_[number].push_back(host);
      }
    }
    if (!has(place_.hosts.own(), number)) {
      readers_[number] = nullptr;
    }
    if (holders_[number].empty()) {
      missing += (missing.empty() ? "" : ", ") + manifest_.files[number].name;
    }
  }
  if (!missing.empty()) {
    std::string message = "no host has a complete copy of " + missing;
    for (std::string const& note : notes_) {
      message += "; " + note;
    }
    throw DataError(message);
  }
}

SpreadFiles::~SpreadFiles() {
  std::error_code ignored;
  if (place_.hosts.leads()) {
    fs::remove_all(place_.scratch, ignored);
  }
}

bool SpreadFiles::has(std::size_t host, std::size_t file) const {
  return std::find(holders_[file].begin(), holders_[file].end(), host) != holders_[file].end();
}

bool SpreadFiles::parses(std::size_t number) const {
  return place_.hosts.rank_on(holders_[number].front(), number) == world_.rank();
}

std::string SpreadFiles::state() {
  int const root = place_.hosts.ranks[holders_.front().front()].front();
  std::string text;
  run_collectively(world_, [&] {
    if (world_.rank() == root) {
      text.resize(static_cast<std::size_t>(manifest_.files.front().bytes));
      readers_.front()->read(0, text_bytes(text));
    }
  });
  return broadcast_text(world_, text, root);
}

int SpreadFiles::server(std::size_t file) const {
  auto const turn = static_cast<std::size_t>(world_.rank());
  return place_.hosts.rank_on(holders_[file][turn % holders_[file].size()], turn);
}

std::vector<BlockCopy> SpreadFiles::requests(Blocks const& needed, Communicator const& host) const {
  std::vector<BlockCopy> lacking;
  std::vector<std::uint8_t> wanted;
  for (std::size_t number = 0; number < needed.size(); ++number) {
    for (std::size_t block = 0; block < needed[number].size() && !has(place_.hosts.own(), number); ++block) {
      lacking.push_back({number, static_cast<std::int64_t>(block), server(number), world_.rank()});
      wanted.push_back(needed[number][block] ? 1 : 0);
    }
  }
  auto const all = gather_bytes(host, std::as_bytes(std::span(wanted)));
  std::vector<BlockCopy> own;
  int turn = 0;
  for (std::size_t index = 0; index < lacking.size(); ++index) {
    bool any = false;
    for (std::size_t at = index; at < all.size(); at += lacking.size()) {
      any = any || all[at] != std::byte{0};
    }
    if (any && turn++ % host.size() == host.rank()) {
      own.push_back(lacking[index]);
    }
  }
  return own;
}

void SpreadFiles::fetch(Blocks const& needed) {
  Communicator const host = world_.split(static_cast<int>(place_.hosts.own()), world_.rank(), "host");
  std::vector<BlockCopy> const own = requests(needed, host);
  if (!any_of(world_, !own.empty())) {
    return;
  }
  run_collectively(world_, [&] {
    if (place_.hosts.leads()) {
      fs::remove_all(place_.scratch);
      make_directory(place_.scratch);
      for (std::size_t number = 0; number < readers_.size(); ++number) {
        if (!has(place_.hosts.own(), number)) {
          FileDigest const& file = manifest_.files[number];
          fs::path const path = place_.scratch / file.name;
          if (::ftruncate(create_new(path).get(), static_cast<off_t>(file.bytes)) != 0) {
            fail_with_errno(path, "resize the file");
          }
        }
      }
    }
  });
  exchange(own);
  run_collectively(world_, [&] {
    for (std::size_t number = 0; number < readers_.size(); ++number) {
      if (!has(place_.hosts.own(), number)) {
        FileDigest const& file = manifest_.files[number];
        readers_[number] = std::make_shared<BlockReader>(place_.scratch / file.name, file, cache_);
      }
    }
  });
}

/// Exchanges blocks in rounds; each rank asks for at most one block in a round.
void SpreadFiles::exchange(std::vector<BlockCopy> const& own) {
  BlockExchange exchange(
      world_, manifest_, [&](std::size_t file) -> BlockReader& { return *readers_[file]; }, place_.scratch);
  std::int64_t const rounds = max_of(world_, std::ssize(own));
  for (std::int64_t round = 0; round < rounds; ++round) {
    auto copies = gather_values(world_, round < std::ssize(own) ? own[static_cast<std::size_t>(round)] : BlockCopy{});
    std::erase_if(copies, [](BlockCopy const& copy) { return copy.receiver < 0; });
    exchange.copy(copies);
  }
  exchange.finish();
}

}  // namespace heddle
