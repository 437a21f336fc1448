#include "pairs/indexed_text.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/files/file_lock.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/text/text.hpp>
#include <optional>
#include <span>

#include "files/file_descriptor.hpp"
#include "files/pending_file.hpp"
#include "text/text_bytes.hpp"

namespace heddle {

namespace {

namespace json = boost::json;
using Path = std::filesystem::path;

constexpr int index_version = 1;
constexpr std::int64_t scanned_bytes = std::int64_t{1} << 20;

/// Size and time of the last change, by which a file is known again.
struct FileState {
  std::int64_t size = 0;
  std::int64_t modified = 0;  ///< nanoseconds

  bool operator==(FileState const&) const = default;
};

FileState state_of(FileDescriptor const& file) {
  struct stat status {};
  ::fstat(file.get(), &status);
  constexpr std::int64_t nanoseconds = 1'000'000'000;
  return {status.st_size, status.st_mtim.tv_sec * nanoseconds + status.st_mtim.tv_nsec};
}

FileDescriptor open_text(Path const& path) {
  if (std::string const problem = file_problem(path); !problem.empty()) {
    throw DataError("{}{}", problem, is_read_once(path) ? ": text for training is read in any order, from a file" : "");
  }
  FileDescriptor file(path, O_RDONLY);
  if (!file.is_open()) {
    throw DataError(open_problem(path, errno));
  }
  return file;
}

bool has_compressed_text(FileDescriptor const& file, Path const& path) {
  std::array<std::uint8_t, 4> begin{};
  std::size_t const count = read_at(file, path, 0, begin);
  return is_compressed(std::span(begin).first(count));
}

/// Whether all bytes are ASCII, which are UTF-8.
bool is_ascii(std::string_view text) {
  unsigned char all = 0;
  for (char const byte : text) {
    all |= static_cast<unsigned char>(byte);
  }
  return all < 0x80;
}

/// Makes the index of a plain text whose bytes are added.
class LineScanner {
 public:
  explicit LineScanner(Path const& path) : path_(path) {}

  void add(std::string_view bytes) {
    digest_.update(text_bytes(bytes));
    index_.bytes += std::ssize(bytes);
    for (std::size_t end = bytes.find('\n'); end != bytes.npos; end = bytes.find('\n')) {
      if (carried_.empty()) {
        add_line(bytes.substr(0, end));
      } else {
        carried_ += bytes.substr(0, end);
        add_line(carried_);
        carried_.clear();
      }
      bytes.remove_prefix(end + 1);
    }
    carried_ += bytes;
    require(std::ssize(carried_) <= LineReader::longest_line_bytes, "is too long for a sentence");
  }

  LineIndex finish() {
    if (!carried_.empty()) {
      add_line(carried_);
    }
    if (index_.lines == 0) {
      throw DataError("{}: the file is empty; expected one sentence a line", path_.string());
    }
    index_.blocks.push_back(index_.bytes);
    index_.digest = digest_.finish();
    return std::move(index_);
  }

 private:
  void require(bool good, std::string const& what) const {
    if (!good) {
      throw DataError("{}: line {} {}", path_.string(), index_.lines + 1, what);
    }
  }

  void add_line(std::string_view line) {
    if (index_.lines % IndexedText::block_lines == 0) {
      index_.blocks.push_back(begin_);
    }
    if (!is_ascii(line)) {
      std::size_t const wrong = find_invalid_utf8(line);
      require(wrong == line.npos,
              fmt::format("has a byte {} that is not valid UTF-8; convert the text to UTF-8, for example with iconv",
                          wrong + 1));
    }
    std::int64_t const columns = std::ranges::count(line, '\t') + 1;
    if (index_.lines == 0) {
      index_.columns = columns;
    } else if (columns != index_.columns && index_.other_columns == 0) {
      index_.other_columns = index_.lines + 1;
    }
    begin_ += std::ssize(line) + 1;
    ++index_.lines;
  }

  Path const& path_;
  LineIndex index_;
  Sha256 digest_;
  std::string carried_;     ///< of a line whose end has not come yet
  std::int64_t begin_ = 0;  ///< of the next line
};

std::string to_text(FileState const& state, LineIndex const& index) {
  json::object const object{{"version", index_version},     {"size", state.size},
                            {"modified", state.modified},   {"bytes", index.bytes},
                            {"lines", index.lines},         {"columns", index.columns},
                            {"other", index.other_columns}, {"blocks", json::value_from(index.blocks)},
                            {"digest", index.digest}};
  std::string const text = json::serialize(object);
  return fmt::format("{}\n{}\n", text, sha256(text));
}

/// The index in a file's text, if it is that of a file in this state.
std::optional<LineIndex> parse_index(std::string const& text, FileState const& state) try {
  std::size_t const end = text.find('\n');
  if (end == text.npos || text.substr(end + 1) != sha256(text.substr(0, end)) + "\n") {
    return std::nullopt;
  }
  json::object const object = json::parse(text.substr(0, end)).as_object();
  auto const number = [&](char const* name) { return object.at(name).as_int64(); };
  if (number("version") != index_version || FileState{number("size"), number("modified")} != state) {
    return std::nullopt;
  }
  return LineIndex{.bytes = number("bytes"),
                   .lines = number("lines"),
                   .columns = number("columns"),
                   .other_columns = number("other"),
                   .blocks = json::value_to<std::vector<std::int64_t>>(object.at("blocks")),
                   .digest = std::string(object.at("digest").as_string())};
} catch (std::exception const&) {  // not an index: it is made again
  return std::nullopt;
}

/// The text of a file that may be missing, or something else.
std::string read_stored(Path const& path) try { return read_regular(path).value_or(""); } catch (Error const&) {
  return "";
}

Path beside(Path const& path, char const* suffix) {
  Path name = path;
  name += suffix;
  return name;
}

}  // namespace

struct IndexedText::State {
  FileDescriptor given;               ///< the file as it is named
  FileState state = state_of(given);  ///< when it was opened
  bool compressed = false;
  bool shared = false;  ///< index and copy are beside it
};

IndexedText::IndexedText(Path path) : path_(std::move(path)), state_(new State{open_text(path_)}) {
  state_->compressed = has_compressed_text(state_->given, path_);
  Path const stored = beside(path_, ".heddle-index");
  std::optional<FileLock> lock;
  try {
    lock.emplace(stored);
    lock->take(FileLock::Kind::exclusive);  // other ranks wait until the index is there
    state_->shared = true;
  } catch (Error const&) {  // the directory or the file cannot be written
  }
  if (load(read_stored(stored))) {
    return;
  }
  try {
    build();
  } catch (...) {
    std::error_code ignored;
    if (state_->shared && std::filesystem::file_size(stored, ignored) == 0) {
      std::filesystem::remove(stored, ignored);  // the lock has made it
    }
    throw;
  }
  if (state_->shared) {
    replace_file(stored, to_text(state_->state, index_));
  } else {
    note_ =
        fmt::format("{}: its index cannot be written beside it, so that every start reads all of it", path_.string());
  }
}

IndexedText::~IndexedText() = default;
IndexedText::IndexedText(IndexedText&&) noexcept = default;

bool IndexedText::load(std::string const& stored) {
  auto const index = parse_index(stored, state_->state);
  if (!index) {
    return false;
  }
  Path const plain = state_->compressed ? beside(path_, ".heddle-text") : path_;
  auto file = std::make_unique<FileDescriptor>(plain, O_RDONLY);
  if (!file->is_open() || state_of(*file).size != index->bytes) {
    return false;
  }
  index_ = *index;
  file_ = std::move(file);
  return true;
}

void IndexedText::build() {
  LineScanner scanner(path_);
  if (!state_->compressed) {
    file_ = std::make_unique<FileDescriptor>(open_text(path_));
    std::string bytes(scanned_bytes, '\0');
    for (std::int64_t offset = 0;;) {
      std::size_t const count = read_at(*file_, path_, offset, text_bytes(bytes));
      if (count == 0) {
        break;
      }
      scanner.add(std::string_view(bytes).substr(0, count));
      offset += static_cast<std::int64_t>(count);
    }
    index_ = scanner.finish();
    return;
  }
  std::optional<PendingFile> pending;
  Path const temporary = std::filesystem::temp_directory_path();
  if (state_->shared) {
    pending.emplace(beside(path_, ".heddle-text"));
  }
  file_ = std::make_unique<FileDescriptor>(pending ? pending->create() : FileDescriptor(temporary, O_TMPFILE | O_RDWR));
  if (!file_->is_open()) {
    fail_with_errno(temporary, fmt::format("make a file for the plain text of {}", path_.string()));
  }
  LineReader reader(path_);
  std::string bytes;
  std::int64_t offset = 0;
  auto const flush = [&] {
    scanner.add(bytes);
    write_at(*file_, pending ? pending->target() : temporary, offset, text_bytes(std::string_view(bytes)));
    offset += std::ssize(bytes);
    bytes.clear();
  };
  for (std::string line; reader.next(line);) {
    bytes += line;
    bytes += '\n';
    if (std::ssize(bytes) >= scanned_bytes) {
      flush();
    }
  }
  flush();
  index_ = scanner.finish();
  if (pending) {
    pending->sync();
    pending->commit();
    file_ = std::make_unique<FileDescriptor>(beside(path_, ".heddle-text"), O_RDONLY);
    note_ = fmt::format("{}: its plain text, {}, is kept in {}.heddle-text", path_.string(), readable_size(offset),
                        path_.string());
  }
}

std::vector<std::string> IndexedText::read(std::int64_t block) const {
  std::int64_t const begin = index_.blocks.at(static_cast<std::size_t>(block));
  std::int64_t const end = index_.blocks.at(static_cast<std::size_t>(block + 1));
  std::string bytes(static_cast<std::size_t>(end - begin), '\0');
  std::size_t const count = read_at(*file_, path_, begin, text_bytes(bytes));
  if (state_of(state_->given) != state_->state || count != bytes.size()) {
    throw DataError(
        "{}: changed while it was used, after line {}; start again with the file as it is now, or as it was",
        path_.string(), block * block_lines);
  }
  std::vector<std::string> lines;
  for (std::string_view rest = bytes; !rest.empty();) {
    std::size_t const line_end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, line_end);
    rest.remove_prefix(std::min(line_end + 1, rest.size()));
    line.remove_suffix(line.ends_with('\r') ? 1 : 0);
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    line.remove_prefix(block == 0 && lines.empty() && line.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
    lines.emplace_back(line);
  }
  return lines;
}

}  // namespace heddle
