#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/text/text_parts.hpp>

namespace heddle {

namespace {

/// Leaves a side of SOURCE<TAB>TARGET in `line`. Throws DataError for another line.
void take_side(std::string& line, TextPart const& part, std::int64_t number) {
  if (part.side == TextPart::Side::whole_line) {
    return;
  }
  if (auto const tabs = std::ranges::count(line, '\t'); tabs != 1) {
    throw DataError(fmt::format("{}: line {} has {} tabs; expected SOURCE<TAB>TARGET", part.path.string(),
                                readable_count(number), tabs));
  }
  std::size_t const tab = line.find('\t');
  part.side == TextPart::Side::source ? line.erase(tab) : line.erase(0, tab + 1);
}

}  // namespace

PartsReader::PartsReader(std::vector<TextPart> parts, InvalidUtf8 invalid_utf8)
    : parts_(std::move(parts)), invalid_utf8_(invalid_utf8) {}

bool PartsReader::next(std::string& line) {
  while (part_ < parts_.size()) {
    TextPart const& part = parts_[part_];
    if (!reader_) {
      reader_.emplace(part.path, invalid_utf8_);
    }
    if (reader_->next(line)) {
      take_side(line, part, reader_->line_number());
      ++lines_;
      return true;
    }
    if (reader_->line_number() == 0) {
      throw DataError(fmt::format("{}: the file is empty; expected one sentence a line", part.path.string()));
    }
    bytes_ += reader_->file_position();
    reader_.reset();
    ++part_;
  }
  return false;
}

}  // namespace heddle
