#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/alignment/word_aligner.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/pairs/pair_files.hpp>
#include <heddle/io/text/text.hpp>
#include <mutex>
#include <optional>
#include <system_error>

#include "pairs/indexed_text.hpp"

namespace heddle {

namespace {

constexpr std::int64_t block_lines = IndexedText::block_lines;

/// The pair of a line SOURCE<TAB>TARGET, or SOURCE<TAB>TARGET<TAB>ALIGNMENT; `links` is its third column.
TextPair split_columns(std::string_view line, std::string& links) {
  TextPair pair;
  std::size_t const tab = line.find('\t');
  std::size_t const second = std::min(line.find('\t', tab + 1), line.size());
  pair.source = line.substr(0, tab);
  pair.target = line.substr(tab + 1, second - tab - 1);
  links = line.substr(std::min(second + 1, line.size()));
  return pair;
}

/// Sets the links that the text, or the column, of this line has.
void set_links(TextPair& pair, std::string_view text, std::string const& file, std::int64_t line_number) {
  if (text.empty()) {
    return;
  }
  LinkLine const line{text, file, line_number};
  for (auto const& [from, to] : line.links(count_words(pair.source), count_words(pair.target))) {
    pair.links.push_back({from, to});
  }
}

[[noreturn]] void throw_wrong_columns(std::string const& file, std::int64_t line_number, std::string const& what) {
  throw DataError(
      "{}: line {} {}; expected SOURCE<TAB>TARGET in each line, or SOURCE<TAB>TARGET<TAB>ALIGNMENT in each, or a "
      "dataset that `heddle prepare` writes",
      file, readable_count(line_number), what);
}

/// Files whose lines are the same pairs: a TSV file alone, or a source, a target and perhaps an alignment.
class Part {
 public:
  explicit Part(std::vector<IndexedText> files) : files_(std::move(files)) {
    for (IndexedText const& file : files_) {
      if (file.index().lines != size()) {
        throw DataError("{} has {} lines, {} has {}; line n of one translates line n of the other",
                        files_.front().path().string(), readable_count(size()), file.path().string(),
                        readable_count(file.index().lines));
      }
    }
    if (files_.size() == 1) {
      require_columns(files_.front());
    }
  }

  std::int64_t size() const { return files_.front().index().lines; }
  std::vector<IndexedText> const& files() const { return files_; }
  bool has_links() const { return files_.size() == 1 ? files_.front().index().columns == 3 : files_.size() == 3; }

  /// Appends pairs of a block: those at places [begin, end) in it.
  void read(std::int64_t block, IndexRange const& range, std::vector<TextPair>& into) const {
    std::vector<std::vector<std::string>> lines;
    for (IndexedText const& file : files_) {
      lines.push_back(file.read(block));
    }
    for (std::int64_t place = range.begin; place < range.end; ++place) {
      auto const at = static_cast<std::size_t>(place);
      TextPair& pair = into.emplace_back();
      std::string links;
      if (files_.size() == 1) {
        pair = split_columns(lines[0].at(at), links);
      } else {
        pair.source = std::move(lines[0].at(at));
        pair.target = std::move(lines[1].at(at));
        links = files_.size() > 2 ? lines[2].at(at) : "";
      }
      set_links(pair, links, files_.back().path().string(), block * block_lines + place + 1);
    }
  }

 private:
  static void require_columns(IndexedText const& file) {
    LineIndex const& index = file.index();
    std::int64_t const wrong = index.columns != 2 && index.columns != 3 ? 1 : index.other_columns;
    if (wrong != 0) {
      throw_wrong_columns(file.path().string(), wrong,
                          wrong == 1 ? fmt::format("has {} tabs", index.columns - 1)
                                     : fmt::format("has not {} tabs, as line 1 has", index.columns - 1));
    }
  }

  std::vector<IndexedText> files_;
};

class FilePairs final : public TextPairs {
 public:
  explicit FilePairs(std::vector<Part> parts) : parts_(std::move(parts)) {
    std::string digests;
    for (Part const& part : parts_) {
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part.size());
      for (IndexedText const& file : part.files()) {
        digests += file.index().digest;
        if (!file.note().empty()) {
          note_ += (note_.empty() ? "" : "; ") + file.note();
        }
      }
      if (part.has_links() != parts_.front().has_links()) {
        throw DataError("{} has alignments and {} has none, or the reverse",
                        parts_.front().files().front().path().string(), part.files().front().path().string());
      }
    }
    digest_ = sha256("text " + digests);
    name_ = parts_.front().files().front().path().string();
    if (parts_.size() > 1) {
      name_ += fmt::format(" and {} more files", parts_.size() - 1);
    }
  }

  std::int64_t size() const override { return ends_.back(); }
  SampleFields fields() const override {
    return parts_.front().has_links() ? SampleFields{SampleField::alignment} : SampleFields();
  }
  std::string const& name() const override { return name_; }
  std::string const& digest() const override { return digest_; }
  std::string warning() const override { return note_; }

  std::vector<TextPair> read(IndexRange range) const override {
    std::vector<TextPair> pairs;
    pairs.reserve(static_cast<std::size_t>(range.count()));
    std::int64_t begin = 0;
    for (std::size_t part = 0; part < parts_.size(); begin = ends_[part++]) {
      for (std::int64_t at = std::max(range.begin, begin); at < std::min(range.end, ends_[part]);) {
        std::int64_t const block = (at - begin) / block_lines;
        std::int64_t const block_begin = begin + block * block_lines;
        std::int64_t const end = std::min({block_begin + block_lines, range.end, ends_[part]});
        parts_[part].read(block, {at - block_begin, end - block_begin}, pairs);
        at = end;
      }
    }
    return pairs;
  }

 private:
  std::vector<Part> parts_;
  std::vector<std::int64_t> ends_;  ///< of each part's pairs
  std::string digest_, name_, note_;
};

/// Lines of the standard input. Those before the range that is read first are passed over.
class StreamPairs final : public TextPairs {
 public:
  bool is_stream() const override { return true; }
  std::int64_t size() const override { return std::int64_t{1} << 40; }
  SampleFields fields() const override { return {SampleField::alignment}; }
  std::string const& name() const override { return name_; }
  std::string const& digest() const override { return digest_; }

  void interrupt() const override {
    std::lock_guard const lock(opening_);
    interrupted_ = true;
    if (reader_) {
      reader_->interrupt();
    }
  }

  std::vector<TextPair> read(IndexRange range) const override {
    open();
    if (reader_->line_number() > range.begin) {
      throw Error("{}: line {} was read before, and cannot be read again", name_, readable_count(range.begin + 1));
    }
    std::string line;
    while (reader_->line_number() < range.begin && reader_->next(line)) {
    }
    if (reader_->line_number() < range.begin && !ended_) {
      throw DataError(
          "{} ends after line {}, and the run has read as far as line {} before; send the same lines again, from the "
          "first one",
          name_, readable_count(reader_->line_number()), readable_count(range.begin));
    }
    std::vector<TextPair> pairs;
    std::string links;
    while (!ended_ && std::ssize(pairs) < range.count()) {
      ended_ = !reader_->next(line);
      if (!ended_) {
        check_columns(line);
        pairs.push_back(split_columns(line, links));
        set_links(pairs.back(), links, name_, reader_->line_number());
      }
    }
    return pairs;
  }

 private:
  void open() const {
    std::lock_guard const lock(opening_);
    if (interrupted_) {
      throw Error("{} is not read any more", name_);
    }
    if (!reader_) {
      reader_.emplace("-", InvalidUtf8::fail, name_);
    }
  }

  void check_columns(std::string_view line) const {
    std::int64_t const columns = std::ranges::count(line, '\t') + 1;
    columns_ = columns_ == 0 ? columns : columns_;
    if (columns != columns_ || columns < 2 || columns > 3) {
      throw_wrong_columns(name_, reader_->line_number(), fmt::format("has {} tabs", columns - 1));
    }
  }

  std::string name_ = "the standard input";
  std::string digest_ = sha256("a stream");  // what a stream has is not known when it begins
  mutable std::mutex opening_;
  mutable bool interrupted_ = false;
  mutable std::optional<LineReader> reader_;
  mutable bool ended_ = false;
  mutable std::int64_t columns_ = 0;  ///< of the first line that was not passed over
};

class DatasetPairs final : public TextPairs {
 public:
  DatasetPairs(Dataset const& dataset, SampleFields fields) : dataset_(dataset), fields_(std::move(fields)) {}

  std::int64_t size() const override { return dataset_.size(); }
  SampleFields fields() const override { return dataset_.fields(); }
  std::string const& name() const override { return dataset_.name(); }
  std::string const& digest() const override { return dataset_.digest(); }

  std::vector<TextPair> read(IndexRange range) const override {
    std::vector<TextPair> pairs(static_cast<std::size_t>(range.count()));
    std::lock_guard const lock(mutex_);
    for (std::int64_t index = range.begin; index < range.end; ++index) {
      Sample& sample = pairs[static_cast<std::size_t>(index - range.begin)].tokens.emplace();
      dataset_.read(SampleLength::source, index, sample.source.tokens);
      dataset_.read(SampleLength::target, index, sample.target.tokens);
      if (!fields_.empty()) {
        dataset_.read_fields(index, fields_, sample);
      }
    }
    return pairs;
  }

 private:
  Dataset const& dataset_;
  SampleFields fields_;
  mutable std::mutex mutex_;  ///< a dataset must not be used by several threads at once
};

}  // namespace

bool is_text_file(std::string const& path) {
  if (path == "-" || path.ends_with(".tsv") || path.ends_with(".tsv.gz") || path.ends_with(".tsv.zst")) {
    return true;
  }
  std::error_code ignored;
  if (path.ends_with(".h5") || !std::filesystem::is_regular_file(path, ignored)) {
    return false;
  }
  constexpr std::string_view of_hdf5 = "\x89HDF\r\n\x1A\n";
  std::array<char, of_hdf5.size()> begin{};
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), begin.size());
  auto const count = static_cast<std::size_t>(file.gcount());
  return count > 0 && std::string_view(begin.data(), count) != of_hdf5;
}

std::unique_ptr<TextPairs> open_tsv(std::vector<std::string> const& paths) {
  if (paths == std::vector<std::string>{"-"}) {
    return std::make_unique<StreamPairs>();
  }
  std::vector<Part> parts;
  for (std::string const& path : paths) {
    std::vector<IndexedText> files;
    files.emplace_back(path);
    parts.emplace_back(std::move(files));
  }
  return std::make_unique<FilePairs>(std::move(parts));
}

std::unique_ptr<TextPairs> open_parallel(ParallelFiles const& files) {
  std::vector<Part> parts;
  for (std::size_t number = 0; number < files.source.size(); ++number) {
    std::vector<IndexedText> beside;
    beside.emplace_back(files.source[number]);
    beside.emplace_back(files.target[number]);
    if (!files.alignments.empty()) {
      beside.emplace_back(files.alignments[number]);
    }
    parts.emplace_back(std::move(beside));
  }
  return std::make_unique<FilePairs>(std::move(parts));
}

std::unique_ptr<TextPairs> dataset_pairs(Dataset const& dataset, SampleFields fields) {
  return std::make_unique<DatasetPairs>(dataset, std::move(fields));
}

}  // namespace heddle
