#include "corpus/corpus_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/files/sha256.hpp>
#include <iostream>
#include <sstream>
#include <system_error>

namespace heddle {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// The digest of a chunk that has just been read: it has no number yet, which depends on where a command starts.
std::string digest_of(Chunk const& chunk) {
  return sha256(to_bytes(chunk));
}

/// Numbers as a journal has them: exact.
json::array to_json(std::vector<double> const& numbers) {
  json::array texts;
  for (double const number : numbers) {
    texts.emplace_back(fmt::format("{:a}", number));
  }
  return texts;
}

std::vector<double> numbers_of(json::value const& entry) {
  std::vector<double> numbers;
  if (auto const* const texts = entry.as_object().if_contains("sums")) {
    for (json::value const& text : texts->as_array()) {
      numbers.push_back(std::strtod(text.as_string().c_str(), nullptr));
    }
  }
  return numbers;
}

/// The start of the file up to `end`, read in parts, with the digest of each chunk.
class PartialFile {
 public:
  explicit PartialFile(fs::path const& path) : file_(open_input(path)) {}

  /// The digest of the bytes up to `end`, from where the last call stopped; "" if the file is shorter.
  std::string digest_to(std::int64_t end) {
    Sha256 digest;
    std::string bytes;
    while (at_ < end) {
      bytes.resize(static_cast<std::size_t>(std::min<std::int64_t>(end - at_, std::int64_t{1} << 20)));
      if (!file_->read(bytes.data(), std::ssize(bytes))) {
        return "";
      }
      digest.update(text_bytes(bytes));
      at_ += std::ssize(bytes);
    }
    return digest.finish();
  }

 private:
  std::unique_ptr<std::istream> file_;
  std::int64_t at_ = 0;
};

/// The file that a symbolic link to a file leads to, which need not exist; other paths as they are. Without this the
/// link would be replaced by the output.
fs::path target_of(fs::path const& path) {
  constexpr int max_links = 40;
  std::error_code ignored;
  fs::path target = path;
  for (int link = 0; link < max_links && fs::is_symlink(target, ignored); ++link) {
    target = target.parent_path() / fs::read_symlink(target);
  }
  return fs::exists(path, ignored) && !fs::is_regular_file(path, ignored) ? path : target;
}

}  // namespace

CorpusOutput::CorpusOutput(fs::path path, std::string const& identity, std::vector<std::string> const& inputs)
    : path_(std::move(path)) {
  if (path_.empty()) {
    return;
  }
  path_ = target_of(path_);
  require_other_file(path_, inputs);
  compression_ = compression_of(path_);
  restartable_ = !fs::exists(path_) || fs::is_regular_file(path_);
  if (!restartable_) {
    file_ = open_output(path_, OutputMode::stream);
    return;
  }
  if (fs::path const parent = fs::absolute(path_).parent_path(); !fs::is_directory(parent)) {
    throw Error("--output {}: there is no directory {}", path_.string(), parent.string());
  }
  lock_.emplace(path_.string() + ".lock");
  if (lock_->try_take(FileLock::Kind::exclusive) == FileLock::Result::busy) {
    throw UsageError("another process is writing {}; wait for its end, or give another --output", partial().string());
  }
  open_output(partial(), OutputMode::append);  // which refuses what must not be read or written
  if (auto const earlier = read_regular(journal())) {
    replace_file(journal(), restore(identity, *earlier));
    restored_ = done_.size();
  } else {
    replace_file(journal(), identity + '\n');
  }
  file_ = open_output_after(partial(), done_.empty() ? 0 : done_.back().end);
  journal_file_ = open_output(journal(), OutputMode::append);
}

CorpusOutput::~CorpusOutput() = default;

std::string CorpusOutput::restore(std::string const& identity, std::string const& earlier) {
  std::istringstream stream(earlier);
  std::string line;
  if (std::getline(stream, line) && line != identity) {
    throw UsageError(
        "{} was made by a command with another model or other options; give the same ones to continue, or "
        "delete it to start over:\n  there: {}\n  here:  {}",
        journal().string(), line, identity);
  }
  PartialFile written(partial());
  std::string valid = identity + '\n';
  while (std::getline(stream, line)) {
    try {
      json::value const entry = json::parse(line);
      std::int64_t const end = entry.at("end").as_int64();
      // A line that was not written whole, or before its chunk was on the disk, is the first of those to be repeated.
      if (stream.eof() || end < (done_.empty() ? 0 : done_.back().end) ||
          written.digest_to(end) != std::string_view(entry.at("bytes").as_string())) {
        break;
      }
      done_.push_back({end, std::string(entry.at("lines").as_string()), numbers_of(entry)});
    } catch (boost::system::system_error const&) {
      break;
    } catch (std::exception const&) {  // a value of another type
      break;
    }
    valid += line + '\n';
  }
  return valid;
}

ChunkResult CorpusOutput::result_there() const {
  Done const& done = done_[read_ - 1];
  std::int64_t const begin = read_ > 1 ? done_[read_ - 2].end : 0;
  std::string bytes(static_cast<std::size_t>(done.end - begin), '\0');
  auto const file = open_input(partial());
  if (!file->seekg(begin) || !file->read(bytes.data(), std::ssize(bytes))) {
    throw Error("{}: cannot read: {}", partial().string(), std::strerror(errno));
  }
  return {.text = decompress(std::move(bytes), compression_), .sums = done.sums};
}

std::optional<Chunk> CorpusOutput::next(std::function<std::optional<Chunk>()> const& read, Restored const& restored) {
  while (std::optional<Chunk> chunk = read()) {
    std::string digest = digest_of(*chunk);
    if (read_ == restored_) {
      digests_.push_back(std::move(digest));
      return chunk;
    }
    if (done_[read_++].lines != digest) {
      throw DataError(
          "{}: lines {} to {} of the text are others than those of which the output was made; give the same "
          "text to continue, or delete the file to start over",
          journal().string(), chunk->lines.front().number, chunk->lines.back().number);
    }
    if (restored) {
      restored(*chunk, result_there());
    }
  }
  if (read_ < restored_) {
    throw DataError(
        "{}: the text ends before the last chunk of which the output was made; give the same text "
        "to continue, or delete the file to start over",
        journal().string());
  }
  return std::nullopt;
}

void CorpusOutput::write(ChunkResult const& result) {
  std::string const lines = std::move(digests_.front());
  digests_.pop_front();
  if (path_.empty()) {
    std::cout << result.text << std::flush;
    if (!std::cout) {
      throw Error("the standard output: cannot write: {}", std::strerror(errno));
    }
    return;
  }
  std::string const bytes = compress(result.text, compression_);
  *file_ << bytes << std::flush;
  require_written(*file_, restartable_ ? partial() : path_);
  if (restartable_) {
    std::int64_t const before = done_.empty() ? 0 : done_.back().end;
    done_.push_back({before + std::ssize(bytes), lines});
    json::object entry{{"end", done_.back().end}, {"lines", lines}, {"bytes", sha256(bytes)}};
    if (!result.sums.empty()) {
      entry["sums"] = to_json(result.sums);
    }
    *journal_file_ << json::serialize(entry) << '\n' << std::flush;
    require_written(*journal_file_, journal());
  }
}

void CorpusOutput::finish() {
  if (path_.empty() || !restartable_) {
    return;
  }
  if (done_.empty()) {  // also an empty file is a compressed one
    *file_ << compress("", compression_) << std::flush;
    require_written(*file_, partial());
  }
  file_.reset();
  journal_file_.reset();
  sync_to_disk(partial());
  std::error_code error;
  fs::rename(partial(), path_, error);
  if (error) {
    throw Error("cannot rename {} to {}: {}", partial().string(), path_.string(), error.message());
  }
  fs::remove(journal(), error);
  fs::remove(path_.string() + ".lock", error);
}

void require_written(std::ostream const& stream, fs::path const& path) {
  if (!stream) {
    throw Error("{}: cannot write: {}", path.string(), std::strerror(errno));
  }
}

void require_other_file(fs::path const& path, std::vector<std::string> const& inputs) {
  for (std::string const& input : inputs) {
    std::error_code ignored;  // a file that does not exist is equivalent to nothing
    if (fs::is_regular_file(path, ignored) && fs::equivalent(path, input, ignored)) {
      throw UsageError("the output {} is the text that is read ({}); expected another file", path.string(), input);
    }
  }
}

std::string output_identity(std::string const& command, std::vector<std::string> const& arguments,
                            std::string const& model_digest) {
  json::array words{command, HEDDLE_VERSION, model_digest};
  bool is_value = false;
  for (std::string const& word : arguments) {
    bool const left_out =
        std::ranges::any_of(std::array{"--checkpoint", "--input", "--output", "--threads"},
                            [&](std::string const& name) { return word == name || word.starts_with(name + "="); });
    if (!left_out && !is_value) {
      words.emplace_back(word);
    }
    is_value = left_out && word.find('=') == word.npos;
  }
  return json::serialize(words);
}

}  // namespace heddle
