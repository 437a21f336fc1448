#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <heddle/core/base/error.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/hdf5/hdf5.hpp>
#include <initializer_list>
#include <optional>
#include <utility>

#include "files/pending_file.hpp"

namespace heddle {
namespace {

constexpr char const* format_name = "heddle-dataset";
constexpr int64_t pairs_version = 1;
constexpr int64_t lines_version = 2;
/// The number of tokens (and offsets) in one chunk of the file, in one append, and in one block of a reader's cache.
constexpr int64_t block_length = 16384;

/// The check of token ids that writer and reader share.
void check_ids(std::span<int32_t const> ids, int32_t vocabulary_size, std::string const& where) {
  auto const wrong = std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= vocabulary_size; });
  if (wrong != ids.end()) {
    throw DataError(
        fmt::format("{}: token id {} is outside the vocabulary's 0 to {}", where, *wrong, vocabulary_size - 1));
  }
}

/// Collects values and appends them to an extendible dataset, one block at a time.
template <typename T>
class Column {
 public:
  explicit Column(hdf5::Array dataset) : dataset_(std::move(dataset)) {}

  void add(std::span<T const> values) {
    waiting_.insert(waiting_.end(), values.begin(), values.end());
    if (static_cast<int64_t>(waiting_.size()) >= block_length) {
      flush();
    }
  }
  void flush() {
    dataset_.append(std::span<T const>(waiting_));
    waiting_.clear();
  }

 private:
  hdf5::Array dataset_;
  std::vector<T> waiting_;
};

/// One language's tokens and offsets, being written.
class SideWriter {
 public:
  explicit SideWriter(hdf5::Group group)
      : tokens_(group.create_extendible_array<int32_t>("tokens", {block_length})),
        offsets_(group.create_extendible_array<int64_t>("offsets", {block_length})) {
    offsets_.add({&total_, 1});
  }
  void add(std::span<int32_t const> tokens) {
    tokens_.add(tokens);
    total_ += static_cast<int64_t>(tokens.size());
    offsets_.add({&total_, 1});
  }
  void flush() {
    tokens_.flush();
    offsets_.flush();
  }

 private:
  Column<int32_t> tokens_;
  Column<int64_t> offsets_;
  int64_t total_ = 0;
};

/// One language's tokens and offsets, being read.
class SideReader {
 public:
  SideReader(hdf5::Group const& group, int32_t vocabulary_size, int64_t memory_bytes)
      : tokens_(group.array("tokens")), vocabulary_size_(vocabulary_size) {
    tokens_.expect(hdf5::ElementType::int32, {hdf5::any_extent});
    hdf5::Array const stored_offsets = group.array("offsets");
    stored_offsets.expect(hdf5::ElementType::int64, {hdf5::any_extent});
    offsets_ = stored_offsets.read<int64_t>();
    check_offsets(stored_offsets.where());
    int64_t const blocks = (tokens_.size() + block_length - 1) / block_length;
    blocks_.resize(static_cast<std::size_t>(blocks));
    blocks_kept_ = std::max<int64_t>(1, memory_bytes / (block_length * static_cast<int64_t>(sizeof(int32_t))));
    for (int64_t index = 0; blocks <= blocks_kept_ && index < blocks; ++index) {
      block(index);
    }
  }

  int64_t sentences() const noexcept { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t tokens() const noexcept { return offsets_.back(); }

  int64_t length(int64_t index) const {
    auto const [begin, end] = range(index);
    return end - begin;
  }

  std::vector<int32_t> sentence(int64_t index) { return part(index, 0, length(index)); }

  std::vector<int32_t> part(int64_t index, int64_t begin, int64_t count) {
    int64_t position = range(index).first + begin;
    int64_t const end = position + count;
    if (begin < 0 || count < 0 || begin + count > length(index)) {
      throw Error(fmt::format("{}: sentence {} has {} tokens; tokens {} to {} are not in it", tokens_.where(), index,
                              length(index), begin, begin + count));
    }
    std::vector<int32_t> result;
    result.reserve(static_cast<std::size_t>(end - position));
    while (position < end) {
      std::vector<int32_t> const& source = block(position / block_length);
      int64_t const from = position % block_length;
      int64_t const here = std::min(end - position, static_cast<int64_t>(source.size()) - from);
      result.insert(result.end(), source.begin() + from, source.begin() + from + here);
      position += here;
    }
    return result;
  }

 private:
  void check_offsets(std::string const& where) const {
    if (offsets_.size() < 2) {
      throw DataError(fmt::format("{}: holds no sentence", where));
    }
    if (offsets_.front() != 0 || offsets_.back() != tokens_.size()) {
      throw DataError(fmt::format("{}: runs from {} to {}; expected 0 to the number of tokens, {}", where,
                                  offsets_.front(), offsets_.back(), tokens_.size()));
    }
    auto const not_rising = std::adjacent_find(offsets_.begin(), offsets_.end(), std::greater_equal<>());
    if (not_rising != offsets_.end()) {
      throw DataError(fmt::format("{}: sentence {} has no tokens ({} is followed by {})", where,
                                  not_rising - offsets_.begin(), *not_rising, *(not_rising + 1)));
    }
  }

  std::pair<int64_t, int64_t> range(int64_t index) const {
    if (index < 0 || index >= sentences()) {
      throw Error(
          fmt::format("{}: there is no sentence {}; expected 0 to {}", tokens_.where(), index, sentences() - 1));
    }
    auto const at = static_cast<std::size_t>(index);
    return {offsets_[at], offsets_[at + 1]};
  }

  std::vector<int32_t> const& block(int64_t index) {
    std::vector<int32_t>& result = blocks_[static_cast<std::size_t>(index)];
    if (result.empty()) {
      if (static_cast<int64_t>(loaded_.size()) >= blocks_kept_) {
        blocks_[static_cast<std::size_t>(loaded_.front())] = {};
        loaded_.pop_front();
      }
      int64_t const begin = index * block_length;
      std::vector<int32_t> tokens = tokens_.read<int32_t>({begin}, {std::min(block_length, tokens_.size() - begin)});
      check_ids(tokens, vocabulary_size_, tokens_.where());
      result = std::move(tokens);
      loaded_.push_back(index);
    }
    return result;
  }

  hdf5::Array tokens_;
  int32_t vocabulary_size_;
  std::vector<int64_t> offsets_;
  std::vector<std::vector<int32_t>> blocks_;  ///< empty if not in memory
  std::deque<int64_t> loaded_;                ///< oldest first
  int64_t blocks_kept_ = 1;
};

/// Checks the root's attributes that are needed to understand the rest. Returns whether the file has lines.
bool check_format(hdf5::File const& file) {
  std::string const format = file.has_attribute("format") ? file.string_attribute("format") : "";
  if (format != format_name) {
    throw DataError(
        fmt::format("{}: not a dataset of Heddle's (its format is \"{}\", expected \"{}\"); make one with "
                    "`heddle prepare`",
                    file.where(), format, format_name));
  }
  int64_t const version = file.integer_attribute("format_version");
  if (version != pairs_version && version != lines_version) {
    throw DataError(
        fmt::format("{}: dataset version {}; this Heddle reads versions {} and {}: run `heddle prepare` "
                    "again",
                    file.where(), version, pairs_version, lines_version));
  }
  return version == lines_version;
}

Vocabulary read_vocabulary(hdf5::File const& file, bool lines) {
  auto const read_model = [&](char const* name) {
    try {
      return Tokenizer::from_model(file.read_bytes(name));
    } catch (Error const& error) {
      throw DataError(fmt::format("{}{}: {}", file.where(), name, error.what()));
    }
  };
  if (lines) {
    Tokenizer const tokenizer = read_model("vocabulary/model");
    return {tokenizer, tokenizer};
  }
  Tokenizer const source = read_model("vocabulary/source_model");
  Tokenizer const target = read_model("vocabulary/target_model");
  return {source, target};
}

}  // namespace

struct DatasetWriter::State {
  State(std::filesystem::path const& path, Vocabulary used_vocabulary, bool lines)
      : vocabulary(std::move(used_vocabulary)), pending(path), file(hdf5::File::create(pending.temporary())) {
    file->set_string_attribute("format", format_name);
    file->set_integer_attribute("format_version", lines ? lines_version : pairs_version);
    file->set_string_attribute("vocabulary_digest", vocabulary.digest());
    if (!lines) {
      file->set_integer_attribute("joint", vocabulary.joint() ? 1 : 0);
    }
    hdf5::Group models = file->create_group("vocabulary");
    if (lines) {
      models.write_bytes("model", vocabulary.source.model());
      sides.emplace_back(file->create_group("text"));
    } else {
      models.write_bytes("source_model", vocabulary.source.model());
      models.write_bytes("target_model", vocabulary.target.model());
      sides.emplace_back(file->create_group("source"));
      sides.emplace_back(file->create_group("target"));
    }
    side_count = sides.size();
  }

  /// Throws Error where a sample of these sides cannot be added.
  void require(std::initializer_list<std::span<int32_t const>> sample) const {
    char const* reason = nullptr;
    if (sides.empty()) {
      reason = "the dataset is finished";
    } else if (sample.size() != side_count) {
      reason = side_count == 1 ? "it has lines, with one side" : "it has pairs, with two sides";
    } else if (std::any_of(sample.begin(), sample.end(), [](auto const& side) { return side.empty(); })) {
      reason = "no side may be empty";
    }
    if (reason != nullptr) {
      std::vector<std::size_t> sizes;
      for (auto const& side : sample) {
        sizes.push_back(side.size());
      }
      throw Error(fmt::format("{}: cannot add a sample of {} tokens: {}", pending.target().string(),
                              fmt::join(sizes, " and "), reason));
    }
  }

  Vocabulary vocabulary;
  PendingFile pending;
  std::optional<hdf5::File> file;  // declared before the objects in it: handles close in the reverse order
  std::vector<SideWriter> sides;   ///< empty once the dataset is finished
  std::size_t side_count = 0;
  int64_t samples = 0;
};

DatasetWriter::DatasetWriter(std::filesystem::path const& path, Vocabulary const& vocabulary)
    : state_(std::make_unique<State>(path, vocabulary, false)) {}
DatasetWriter::DatasetWriter(std::filesystem::path const& path, Tokenizer const& tokenizer)
    : state_(std::make_unique<State>(path, Vocabulary{tokenizer, tokenizer}, true)) {}
DatasetWriter::~DatasetWriter() = default;
DatasetWriter::DatasetWriter(DatasetWriter&&) noexcept = default;
DatasetWriter& DatasetWriter::operator=(DatasetWriter&&) noexcept = default;

void DatasetWriter::add(std::span<int32_t const> source, std::span<int32_t const> target) {
  state_->require({source, target});
  check_ids(source, state_->vocabulary.source.size(), "source sentence");
  check_ids(target, state_->vocabulary.target.size(), "target sentence");
  state_->sides[0].add(source);
  state_->sides[1].add(target);
  ++state_->samples;
}

void DatasetWriter::add(std::span<int32_t const> line) {
  state_->require({line});
  check_ids(line, state_->vocabulary.source.size(), "line");
  state_->sides[0].add(line);
  ++state_->samples;
}

int64_t DatasetWriter::size() const noexcept {
  return state_->samples;
}

void DatasetWriter::finish() {
  if (!state_->file) {
    return;
  }
  std::ranges::for_each(state_->sides, &SideWriter::flush);
  state_->sides.clear();
  state_->file->close();
  state_->file.reset();
  state_->pending.sync();
}

void DatasetWriter::commit() {
  finish();
  state_->pending.commit();
}

struct Dataset::State {
  State(std::filesystem::path used_path, hdf5::File opened_file, Vocabulary used_vocabulary)
      : path(std::move(used_path)),
        file(std::move(opened_file)),
        vocabulary(std::move(used_vocabulary)),
        digest(vocabulary.digest()),
        joint(vocabulary.joint()) {}

  void read_lines(int64_t memory_bytes) { text.emplace(file.group("text"), vocabulary.source.size(), memory_bytes); }
  void read_pairs(int64_t memory_bytes) {
    source.emplace(file.group("source"), vocabulary.source.size(), memory_bytes / 2);
    target.emplace(file.group("target"), vocabulary.target.size(), memory_bytes / 2);
    if (source->sentences() != target->sentences()) {
      throw DataError(fmt::format("{}: {} source sentences but {} target sentences", path.string(), source->sentences(),
                                  target->sentences()));
    }
  }

  SideReader& side(std::optional<SideReader>& wanted) const {
    if (!wanted) {
      throw Error(fmt::format("{}: asked for {}, but it holds {}", path.string(), text ? "pairs" : "lines",
                              text ? "lines" : "pairs"));
    }
    return *wanted;
  }

  std::filesystem::path path;
  hdf5::File file;
  Vocabulary vocabulary;
  std::string digest;
  bool joint;
  std::optional<SideReader> source;
  std::optional<SideReader> target;
  std::optional<SideReader> text;
};

Dataset::Dataset(std::unique_ptr<State> state) : state_(std::move(state)) {}
Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

Dataset Dataset::open(std::filesystem::path const& path, int64_t memory_bytes) {
  hdf5::File file = hdf5::File::open(path);
  bool const lines = check_format(file);
  Vocabulary const vocabulary = read_vocabulary(file, lines);
  std::string const recorded_digest = file.string_attribute("vocabulary_digest");
  bool const recorded_joint = lines || file.integer_attribute("joint") != 0;
  if (recorded_digest != vocabulary.digest() || recorded_joint != vocabulary.joint()) {
    throw DataError(fmt::format("{}: its vocabulary (digest {}) is not the one it was made with (digest {})",
                                path.string(), vocabulary.digest(), recorded_digest));
  }
  auto state = std::make_unique<State>(path, std::move(file), vocabulary);
  if (lines) {
    state->read_lines(memory_bytes);
  } else {
    state->read_pairs(memory_bytes);
  }
  return Dataset(std::move(state));
}

int64_t Dataset::size() const noexcept {
  return state_->text ? state_->text->sentences() : state_->source->sentences();
}
bool Dataset::has_lines() const noexcept {
  return state_->text.has_value();
}
std::filesystem::path const& Dataset::path() const noexcept {
  return state_->path;
}
std::vector<int32_t> Dataset::source(int64_t index) const {
  return state_->side(state_->source).sentence(index);
}
std::vector<int32_t> Dataset::target(int64_t index) const {
  return state_->side(state_->target).sentence(index);
}
std::vector<int32_t> Dataset::line(int64_t index, int64_t begin, int64_t count) const {
  return state_->side(state_->text).part(index, begin, count);
}
int64_t Dataset::source_length(int64_t index) const {
  return state_->side(state_->source).length(index);
}
int64_t Dataset::target_length(int64_t index) const {
  return state_->side(state_->target).length(index);
}
int64_t Dataset::line_length(int64_t index) const {
  return state_->side(state_->text).length(index);
}
int64_t Dataset::source_tokens() const {
  return state_->side(state_->source).tokens();
}
int64_t Dataset::target_tokens() const {
  return state_->side(state_->target).tokens();
}
int64_t Dataset::line_tokens() const {
  return state_->side(state_->text).tokens();
}
Vocabulary const& Dataset::vocabulary() const noexcept {
  return state_->vocabulary;
}
bool Dataset::joint() const noexcept {
  return state_->joint;
}
std::string const& Dataset::vocabulary_digest() const noexcept {
  return state_->digest;
}

}  // namespace heddle
