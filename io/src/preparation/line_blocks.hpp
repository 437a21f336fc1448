#pragma once

#include <cstdint>
#include <exception>
#include <heddle/io/text/text_files.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "given_texts.hpp"

namespace heddle {

/// Lines, in one string.
struct Lines {
  std::string text = {};
  std::vector<std::size_t> ends = {};  ///< of each line in the text

  std::size_t size() const { return ends.size(); }
  std::string_view operator[](std::size_t index) const {
    std::size_t const begin = index == 0 ? 0 : ends[index - 1];
    return std::string_view(text).substr(begin, ends[index] - begin);
  }
  void add(std::string_view line) {
    text += line;
    ends.push_back(text.size());
  }
  void clear() {
    text.clear();
    ends.clear();
  }
};

/// Lines of a dataset's texts, read side by side. Where blocks end depends on the texts only.
struct LineBlock {
  std::vector<std::int64_t> numbers = {};   ///< of each line in the whole text, from 1
  std::vector<Lines> sides = {};            ///< source and target, or one text
  std::vector<Lines> fields = {};           ///< of GivenFields, in its order
  std::vector<std::uint8_t> repaired = {};  ///< of each line: bit s says that side s was not UTF-8

  std::size_t size() const { return repaired.size(); }
  std::size_t bytes() const;
  void clear();
};

template <class Part, class Visit>
requires std::is_same_v<std::remove_const_t<Part>, Lines>
void visit_values(Part& lines, Visit const& visit) {
  visit(lines.text);
  visit(lines.ends);
}
template <class Block, class Visit>
requires std::is_same_v<std::remove_const_t<Block>, LineBlock>
void visit_values(Block& block, Visit const& visit) {
  visit(block.numbers);
  visit(block.sides);
  visit(block.fields);
  visit(block.repaired);
}

/// Reads the texts of a dataset and the files of fields beside them once, in blocks, without the lines that are left
/// out.
class LineBlockReader {
 public:
  /// `texts` must outlive it. `ahead`: each text is read by a thread of its own, some hundred KiB ahead.
  LineBlockReader(GivenTexts const& texts, std::vector<TextFiles> const& fields, InvalidUtf8 invalid_utf8, bool ahead);
  ~LineBlockReader();

  /// Reads the next block; false at the end. Throws DataError, after a block of the lines before: as TextFilesReader
  /// does, and for files that do not have the same number of lines.
  bool next(LineBlock& block);

  /// The lines that were read of each side, also those that are left out.
  std::int64_t lines() const { return lines_; }
  /// The bytes that were read on the disk of the first side's text.
  std::int64_t file_position() const;

 private:
  class Text;
  struct Field {
    std::unique_ptr<Text> text;
    std::string name;
  };

  std::unique_ptr<Text> open(TextFiles const& parts) const;
  bool next_line(LineBlock& block);
  bool next_of_sides();
  void add_sides(LineBlock& block);
  [[noreturn]] void refuse_unequal();

  GivenTexts const& texts_;
  InvalidUtf8 invalid_utf8_;
  bool ahead_;
  std::vector<Field> fields_;
  std::size_t file_ = 0;                      ///< of each side
  std::vector<std::unique_ptr<Text>> sides_;  ///< of file_; one where both sides are columns of it
  std::vector<std::string_view> line_;        ///< of each of them
  std::int64_t lines_ = 0;
  std::int64_t bytes_ = 0;  ///< of the files that have been read
  std::exception_ptr error_;
};

}  // namespace heddle
