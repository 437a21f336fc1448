#include "cleaned_texts.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/cleaning/cleaner.hpp>
#include <heddle/io/text/text_writer.hpp>
#include <optional>
#include <ostream>

#include "line_blocks.hpp"
#include "progress_line.hpp"

namespace heddle {
namespace {

/// The lines of a text, block by block.
class LinesOfText {
 public:
  LinesOfText(GivenTexts const& texts, InvalidUtf8 invalid_utf8, bool ahead)
      : reader_(texts, {}, invalid_utf8, ahead) {}

  bool next(CleanedLine& line) {
    if (next_ == block_.size()) {
      next_ = 0;
      if (!reader_.next(block_)) {
        block_.clear();
        return false;
      }
    }
    line.sides.clear();
    for (Lines const& side : block_.sides) {
      line.sides.emplace_back(side[next_]);
    }
    ++next_;
    return true;
  }
  LineBlockReader const& reader() const { return reader_; }

 private:
  LineBlockReader reader_;
  LineBlock block_;
  std::size_t next_ = 0;
};

}  // namespace

CleaningReport clean_training_text(GivenTexts& training, GivenTexts const* held_out, PrepareOptions const& options,
                                   int threads, std::ostream& progress) {
  std::filesystem::path const& rules = *options.clean;
  auto const [text, problem] = read_file_text(rules);
  if (!problem.empty()) {
    throw ConfigError("--clean {}; `heddle clean --write-rules FILE` writes one", problem);
  }
  Cleaner cleaner(text, rules.string(), !options.lines(),
                  held_out == nullptr ? std::vector<std::vector<TextFile>>() : held_out->sides);
  std::optional<TextWriter> dropped;
  if (!options.dropped.empty()) {
    dropped.emplace(options.dropped);
  }
  ProgressLine line(progress, "cleaning " + training.describe(), file_bytes(training.sides.front()));
  LinesOfText lines(training, options.invalid_utf8, threads > 1);
  clean_text(
      cleaner, threads,
      [&](CleanedLine& next) {
        line.update(lines.reader().lines(), lines.reader().file_position());
        return lines.next(next);
      },
      [&](CleanedLine const& one) {
        training.left_out.push_back(one.dropped.has_value());
        if (one.dropped && dropped) {
          dropped->add(dropped_text(std::ssize(training.left_out), one, cleaner.report()));
        }
      });
  cleaner.finish();
  if (dropped) {
    dropped->commit();
  }
  training.lines = lines.reader().lines();
  line.finish(cleaner.report().lines, fmt::format(" -> {} kept", readable_count(cleaner.report().kept)));
  return cleaner.report();
}

}  // namespace heddle
