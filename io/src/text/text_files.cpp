#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/text/text_files.hpp>

namespace heddle {

std::string_view column_of(std::string_view line, TextFile const& part, std::int64_t number) {
  if (part.column == 0) {
    return line;
  }
  std::int64_t const columns = std::ranges::count(line, '\t') + 1;
  if (part.columns != 0 ? columns != part.columns : columns < part.column) {
    std::string const expected = part.columns == 2 ? "SOURCE<TAB>TARGET; --columns names the columns of lines with more"
                                                   : fmt::format("at least {} columns", part.column);
    throw DataError("{}: line {} has {} tabs; expected {}", part.path.string(), readable_count(number), columns - 1,
                    expected);
  }
  for (std::int64_t before = 1; before < part.column; ++before) {
    line.remove_prefix(line.find('\t') + 1);
  }
  return line.substr(0, line.find('\t'));
}

TextFilesReader::TextFilesReader(std::vector<TextFile> parts, InvalidUtf8 invalid_utf8)
    : parts_(std::move(parts)), invalid_utf8_(invalid_utf8) {}

bool TextFilesReader::next(std::string& line) {
  while (part_ < parts_.size()) {
    TextFile const& part = parts_[part_];
    if (!reader_) {
      reader_.emplace(part.copy.empty() ? part.path : part.copy, invalid_utf8_, part.path);
    }
    if (reader_->next(line)) {
      if (part.column != 0) {
        line = std::string(column_of(line, part, reader_->line_number()));
      }
      ++lines_;
      return true;
    }
    if (reader_->line_number() == 0) {
      throw DataError("{}: the file is empty; expected one sentence a line", part.path.string());
    }
    bytes_ += reader_->file_position();
    reader_.reset();
    ++part_;
  }
  return false;
}

}  // namespace heddle
