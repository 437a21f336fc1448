#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Lines of one or two texts, from which a vocabulary is learnt: all of them, or, where they have more bytes than its
/// budget, an even share. A line is drawn by its place in its text, so that the sample depends on the texts only, not
/// on the order in which lines are added.
class LineSample {
 public:
  /// `budget`: bytes in memory.
  explicit LineSample(std::int64_t budget) : budget_(budget) {}

  /// Adds the next line of text 0 or 1. A long line is added in parts, because SentencePiece leaves out lines of more
  /// than 4,192 bytes. It counts the pieces of words, so that parts that end at spaces give the vocabulary of the whole
  /// line. A longer text without a space (Chinese) is split between characters.
  void add(std::size_t text, std::string_view line);

  bool empty() const noexcept { return size() == 0; }
  std::size_t size() const noexcept { return lines_[0].size() + lines_[1].size(); }
  /// Returns a line of the sample: first those of text 0, then those of text 1.
  std::string const& line(std::size_t index) const {
    return index < lines_[0].size() ? lines_[0][index].text : lines_[1][index - lines_[0].size()].text;
  }
  /// Whether a line, in the sample or not, has the character that SentencePiece reserves: the sample has spaces there.
  bool has_reserved() const noexcept { return has_reserved_; }

 private:
  struct Line {
    std::uint64_t key;
    std::string text;
  };

  void add_part(std::size_t text, std::uint32_t part, std::string_view line);
  void shrink();

  std::int64_t budget_;
  std::int64_t bytes_ = 0;
  std::uint64_t threshold_ = std::numeric_limits<std::uint64_t>::max();  ///< of the keys that stay
  std::array<std::uint64_t, 2> count_{};
  std::array<std::vector<Line>, 2> lines_;
  bool has_reserved_ = false;
};

/// The character that stands for unknown ones while SentencePiece trains, which leaves out lines that have it.
inline constexpr std::string_view reserved_character = "▅";

}  // namespace heddle
