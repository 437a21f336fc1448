#include "line_blocks.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <mutex>
#include <numeric>
#include <optional>

#include "parallel/run_collectively.hpp"

namespace heddle {
namespace {

/// Lines of one text that were read together.
struct Portion {
  Lines lines = {};
  std::vector<std::uint8_t> repaired = {};
  std::int64_t position = 0;  ///< in the file, after them
  bool last = false;
  std::exception_ptr error = {};  ///< after the lines
};

Portion read_portion(TextFilesReader& reader) {
  constexpr std::size_t max_bytes = std::size_t{128} << 10;
  Portion portion;
  try {
    for (std::string line; portion.lines.text.size() < max_bytes;) {
      if (!reader.next(line)) {
        portion.last = true;
        break;
      }
      portion.lines.add(line);
      portion.repaired.push_back(reader.repaired() ? 1 : 0);
    }
  } catch (...) {
    portion.error = std::current_exception();
    portion.last = true;
  }
  portion.position = reader.file_position();
  return portion;
}

/// Portions of a text, which a thread reads before they are taken.
class PortionsAhead {
 public:
  explicit PortionsAhead(TextFilesReader reader) : reader_(std::move(reader)), thread_([this] { read(); }) {}
  PortionsAhead(PortionsAhead const&) = delete;
  PortionsAhead& operator=(PortionsAhead const&) = delete;
  ~PortionsAhead() {
    std::lock_guard const lock(mutex_);
    stopped_ = true;
    taken_.notify_one();
  }

  Portion take() {
    std::unique_lock lock(mutex_);
    added_.wait(lock, [this] { return !portions_.empty(); });
    Portion portion = std::move(portions_.front());
    portions_.pop_front();
    taken_.notify_one();
    return portion;
  }

 private:
  static constexpr std::size_t max_portions = 4;

  void read() {
    for (bool more = true; more;) {
      Portion portion = read_portion(reader_);
      more = !portion.last;
      std::unique_lock lock(mutex_);
      taken_.wait(lock, [this] { return stopped_ || portions_.size() < max_portions; });
      more = more && !stopped_;
      portions_.push_back(std::move(portion));
      added_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable added_, taken_;
  std::deque<Portion> portions_;
  bool stopped_ = false;
  TextFilesReader reader_;
  BackgroundThread thread_;  // after all that it uses: its destructor waits for it
};

}  // namespace

/// The lines of a text, one by one.
class LineBlockReader::Text {
 public:
  /// A pipe is not read ahead: after an error elsewhere nobody waits for what is written to it.
  Text(TextFiles const& parts, InvalidUtf8 invalid_utf8, bool ahead) {
    TextFilesReader reader(parts, invalid_utf8);
    bool const pipe =
        std::ranges::any_of(parts, [](TextFile const& part) { return part.copy.empty() && is_read_once(part.path); });
    ahead && !pipe ? void(ahead_.emplace(std::move(reader))) : void(reader_.emplace(std::move(reader)));
  }

  /// Sets `line`, which is valid until the next call; false at the end.
  bool next(std::string_view& line) {
    while (next_ == portion_.lines.size()) {
      if (portion_.error) {
        std::rethrow_exception(portion_.error);
      }
      if (portion_.last) {
        return false;
      }
      portion_ = ahead_ ? ahead_->take() : read_portion(*reader_);
      next_ = 0;
    }
    line = portion_.lines[next_++];
    ++number_;
    return true;
  }
  /// Whether the line was not UTF-8.
  bool repaired() const { return portion_.repaired[next_ - 1] != 0; }
  std::int64_t number() const { return number_; }
  std::int64_t position() const { return portion_.position; }

 private:
  std::optional<TextFilesReader> reader_;
  std::optional<PortionsAhead> ahead_;
  Portion portion_;
  std::size_t next_ = 0;
  std::int64_t number_ = 0;
};

std::size_t LineBlock::bytes() const {
  std::size_t bytes = 0;
  for (auto const* const parts : {&sides, &fields}) {
    for (Lines const& part : *parts) {
      bytes += part.text.size();
    }
  }
  return bytes;
}

void LineBlock::clear() {
  std::ranges::for_each(sides, &Lines::clear);
  std::ranges::for_each(fields, &Lines::clear);
  repaired.clear();
  numbers.clear();
}

LineBlockReader::LineBlockReader(GivenTexts const& texts, std::vector<TextFiles> const& fields,
                                 InvalidUtf8 invalid_utf8, bool ahead)
    : texts_(texts), invalid_utf8_(invalid_utf8), ahead_(ahead) {
  for (TextFiles const& files : fields) {
    fields_.push_back({std::make_unique<Text>(files, InvalidUtf8::fail, ahead), describe_files(files)});
  }
}

LineBlockReader::~LineBlockReader() = default;

std::unique_ptr<LineBlockReader::Text> LineBlockReader::open(TextFiles const& parts) const {
  return std::make_unique<Text>(parts, invalid_utf8_, ahead_);
}

std::int64_t LineBlockReader::file_position() const {
  return bytes_ + (sides_.empty() ? 0 : sides_.front()->position());
}

bool LineBlockReader::next(LineBlock& block) {
  constexpr std::size_t max_lines = 128;
  constexpr std::size_t max_bytes = std::size_t{64} << 10;
  if (error_) {
    std::rethrow_exception(error_);
  }
  block.sides.resize(texts_.sides.size());
  block.fields.resize(fields_.size());
  block.clear();
  try {
    while (block.size() < max_lines && block.bytes() < max_bytes && next_line(block)) {
    }
  } catch (...) {
    if (block.size() == 0) {
      throw;
    }
    error_ = std::current_exception();
  }
  return block.size() > 0;
}

bool LineBlockReader::next_line(LineBlock& block) {
  while (true) {
    bool const more = next_of_sides();
    auto const index = static_cast<std::size_t>(lines_);
    bool const left_out = index < texts_.left_out.size() && texts_.left_out[index];
    for (std::size_t field = 0; field < fields_.size(); ++field) {
      auto const& [text, name] = fields_[field];
      std::string_view line;
      if (text->next(line) != more) {
        throw more ? DataError("{} ends after line {}, before the text does", name, text->number())
                   : DataError("{} has lines after {}, where the text ends", name, lines_);
      }
      if (more && !left_out) {
        block.fields[field].add(line);
      }
    }
    if (!more) {
      return false;
    }
    ++lines_;
    if (!left_out) {
      block.numbers.push_back(lines_);
      add_sides(block);
      return true;
    }
  }
}

/// Reads a line of each text; false at the end of all.
bool LineBlockReader::next_of_sides() {
  TextFiles const& first = texts_.sides.front();
  while (true) {
    if (sides_.empty()) {
      if (file_ == first.size()) {
        return false;
      }
      if (TextFile whole = first[file_]; whole.column != 0) {
        whole.column = 0;
        sides_.push_back(open({whole}));
      } else {
        for (TextFiles const& side : texts_.sides) {
          sides_.push_back(open({side[file_]}));
        }
      }
      line_.resize(sides_.size());
    }
    std::size_t read = 0;
    for (std::size_t side = 0; side < sides_.size(); ++side) {
      read += sides_[side]->next(line_[side]) ? 1 : 0;
    }
    if (read == sides_.size()) {
      return true;
    }
    if (read > 0) {
      refuse_unequal();
    }
    bytes_ += sides_.front()->position();
    sides_.clear();
    ++file_;
  }
}

void LineBlockReader::add_sides(LineBlock& block) {
  unsigned repaired = 0;
  for (std::size_t side = 0; side < texts_.sides.size(); ++side) {
    TextFile const& part = texts_.sides[side][file_];
    std::size_t const text = part.column == 0 ? side : 0;
    block.sides[side].add(column_of(line_[text], part, sides_[text]->number()));
    repaired |= sides_[text]->repaired() ? 1U << side : 0U;
  }
  block.repaired.push_back(static_cast<std::uint8_t>(repaired));
}

void LineBlockReader::refuse_unequal() {
  for (auto const& side : sides_) {
    for (std::string_view line; side->next(line);) {
    }
  }
  throw DataError("{} has {} lines but {} has {}: line n of one must translate line n of the other",
                  texts_.sides[0][file_].path.string(), readable_count(sides_[0]->number()),
                  texts_.sides[1][file_].path.string(), readable_count(sides_[1]->number()));
}

}  // namespace heddle
