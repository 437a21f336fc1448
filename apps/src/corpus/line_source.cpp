#include "corpus/line_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <system_error>

#include "run/directory/warning.hpp"

namespace heddle {

namespace fs = std::filesystem;

void require_valid(TextOptions const& options) {
  if (options.stream && options.window) {
    throw UsageError("--stream answers each line by itself, and --window says how many belong together: give one");
  }
  if (!options.prefix.empty() && options.prefix_column) {
    throw UsageError("--prefix is a text of prefixes, and with --prefix-column the input has them: give one");
  }
}

namespace {

/// The text, its references and its prefixes.
std::vector<fs::path> texts_of(TextOptions const& options, std::vector<std::string> const& references) {
  std::vector<fs::path> texts{options.input.empty() ? "-" : options.input};
  texts.insert(texts.end(), references.begin(), references.end());
  if (!options.prefix.empty()) {
    texts.emplace_back(options.prefix);
  }
  return texts;
}

}  // namespace

LineSource::LineSource(TextOptions const& options, std::vector<std::string> const& references) : options_(options) {
  std::vector<fs::path> const texts = texts_of(options, references);
  require_different_pipes(texts);
  for (fs::path const& text : texts) {
    readers_.emplace_back(text, options.invalid_utf8);
  }
  bool const by_line = options.stream || readers_.front().is_terminal();
  window_ = options.window.value_or(by_line ? 1 : TextOptions::default_window);
}

bool LineSource::next(SourceLine& line) {
  bool const found = readers_.front().next(line.text);
  line.number = readers_.front().line_number();
  std::size_t const references = readers_.size() - (options_.prefix.empty() ? 1 : 2);
  line.references.resize(references);
  for (std::size_t index = 1; index < readers_.size(); ++index) {
    if (readers_[index].next(index <= references ? line.references[index - 1] : line.prefix) != found) {
      throw_unequal(readers_[index]);
    }
  }
  if (references > 0 && line.number == 0) {
    throw DataError("{} is empty: expected at least one line", path());
  }
  if (found) {
    take_columns(line);
  }
  return found;
}

void LineSource::take_columns(SourceLine& line) const {
  auto const tab_of = [&](std::string_view expected) {
    std::size_t const tab = line.text.find('\t');
    if (tab == std::string::npos) {
      throw DataError("{}: line {} has no tab; expected {}", path(), line.number, expected);
    }
    return tab;
  };
  if (options_.adapter_column) {
    std::size_t const tab = tab_of("NAME<TAB>TEXT (--adapter-column)");
    line.adapter = line.text.substr(0, tab);
    line.text.erase(0, tab + 1);
  }
  if (options_.prefix_column) {
    std::size_t const tab = tab_of("TEXT<TAB>PREFIX (--prefix-column)");
    line.prefix = line.text.substr(tab + 1);
    line.text.erase(tab);
  }
}

std::optional<Chunk> LineSource::next_chunk() {
  constexpr std::size_t max_bytes = std::size_t{16} << 20;
  Chunk chunk;
  std::size_t bytes = 0;
  for (SourceLine line; std::ssize(chunk.lines) < window_ && bytes < max_bytes && next(line);) {
    bytes += line.text.size() + line.prefix.size();
    for (std::string const& reference : line.references) {
      bytes += reference.size();
    }
    chunk.lines.push_back(std::move(line));
  }
  return chunk.lines.empty() ? std::nullopt : std::optional(std::move(chunk));
}

std::optional<double> LineSource::progress() const {
  std::error_code error;
  auto const size = fs::file_size(readers_.front().path(), error);  // an error for what is not a regular file
  return error || size == 0
             ? std::nullopt
             : std::optional(static_cast<double>(readers_.front().file_position()) / static_cast<double>(size));
}

void LineSource::throw_unequal(LineReader& other) {
  for (LineReader* const reader : {&readers_.front(), &other}) {
    for (std::string rest; reader->next(rest);) {
    }
  }
  throw DataError("{} has {} lines, {} has {}: line n of one must belong to line n of the other", path(),
                  readable_count(readers_.front().line_number()), other.path().string(),
                  readable_count(other.line_number()));
}

void LineSource::warn_of_invalid() const {
  std::ranges::for_each(readers_, warn_of_invalid_lines);
}

void require_equal_lines(TextOptions const& options, std::vector<std::string> const& references) {
  if (std::ranges::any_of(texts_of(options, references), is_read_once)) {
    return;
  }
  LineSource text(options, references);
  for (SourceLine line; text.next(line);) {
  }
}

void warn_of_invalid_lines(LineReader const& reader) {
  auto const [count, first] = reader.invalid_lines();
  if (count > 0) {
    warn(fmt::format("{}: {} of {} lines are not valid UTF-8, the first is line {}; U+FFFD replaces what is invalid",
                     reader.path().string(), readable_count(count), readable_count(reader.line_number()), first));
  }
}

}  // namespace heddle
