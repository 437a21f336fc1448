#include <algorithm>
#include <deque>
#include <future>
#include <heddle/io/cleaning/cleaner.hpp>

namespace heddle {
namespace {

struct Block {
  std::vector<CleanedLine> lines;
  std::vector<Cleaner::Findings> findings;
};

/// The next lines, at most as many as a thread looks at in some milliseconds; none at the end.
Block read_block(std::function<bool(CleanedLine&)> const& read) {
  constexpr std::size_t max_lines = 1000;
  constexpr std::size_t max_bytes = std::size_t{1} << 20;
  Block block;
  std::size_t bytes = 0;
  for (CleanedLine line; block.lines.size() < max_lines && bytes < max_bytes && read(line);) {
    for (std::string const& side : line.sides) {
      bytes += side.size();
    }
    block.lines.push_back(std::move(line));
    line = {};
  }
  return block;
}

Block look_at(Cleaner const& cleaner, Block block) {
  for (CleanedLine const& line : block.lines) {
    std::vector<std::string_view> const sides(line.sides.begin(), line.sides.end());
    block.findings.push_back(cleaner.look_at(sides));
  }
  return block;
}

}  // namespace

void clean_text(Cleaner& cleaner, int threads, std::function<bool(CleanedLine&)> const& read,
                std::function<void(CleanedLine const&)> const& take) {
  std::deque<std::future<Block>> blocks;  // in the order of the text
  auto const finish_first = [&] {
    Block block = blocks.front().get();
    blocks.pop_front();
    for (std::size_t index = 0; index < block.lines.size(); ++index) {
      CleanedLine& line = block.lines[index];
      line.dropped = cleaner.decide(std::move(block.findings[index]));
      take(line);
    }
  };
  // One thread reads and decides; with one block more than threads none of them waits for it.
  std::size_t const max_blocks = threads > 1 ? static_cast<std::size_t>(threads) + 1 : 1;
  for (Block block = read_block(read); !block.lines.empty(); block = read_block(read)) {
    blocks.push_back(std::async(
        threads > 1 ? std::launch::async : std::launch::deferred,
        [&cleaner](Block&& lines) { return look_at(cleaner, std::move(lines)); }, std::move(block)));
    if (blocks.size() >= max_blocks) {
      finish_first();
    }
  }
  while (!blocks.empty()) {
    finish_first();
  }
}

}  // namespace heddle
