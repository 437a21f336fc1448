#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/files/sha256.hpp>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

#include "files/pending_file.hpp"
#include "format.hpp"

namespace heddle {

namespace dataset_format {

void check_ids(std::span<std::int32_t const> ids, std::int32_t vocabulary, SpecialIds const& special,
               std::string const& where) {
  for (std::int32_t const id : ids) {
    if (id < 0 || id >= vocabulary) {
      throw DataError(fmt::format("{}: token id {} is outside the vocabulary's 0 to {}", where, id, vocabulary - 1));
    }
    if (id == special.padding || id == special.begin || id == special.end) {
      throw DataError(fmt::format("{}: token id {} is the vocabulary's {} token, which no sentence has inside", where,
                                  id, id == special.padding ? "padding" : (id == special.begin ? "begin" : "end")));
    }
  }
}

std::string whole_digest(std::string const& vocabulary, std::vector<std::string> const& tables) {
  Sha256 digest;
  digest.update(vocabulary);
  for (std::string const& table : tables) {
    digest.update(table);
  }
  return digest.finish();
}

}  // namespace dataset_format

namespace {

using namespace dataset_format;

/// An array of a file that grows: contiguous if it ends with less than a chunk, else chunked. Large chunks keep their
/// index small.
template <typename T>
class Column {
 public:
  Column(hdf5::Group& group, std::string name) : group_(group), name_(std::move(name)) {}

  void add(std::span<T const> values) {
    while (!values.empty()) {
      auto const taken = std::min(values.size(), chunk - waiting_.size());
      waiting_.insert(waiting_.end(), values.begin(), values.begin() + static_cast<std::ptrdiff_t>(taken));
      values = values.subspan(taken);
      if (waiting_.size() == chunk) {
        if (!array_) {
          array_.emplace(group_.create_extendible_array<T>(name_, {static_cast<std::int64_t>(chunk)}));
        }
        append();
      }
    }
  }

  void finish() {
    if (!array_) {
      group_.write_array<T>(name_, {std::ssize(waiting_)}, waiting_);
    } else if (!waiting_.empty()) {
      append();
    }
    array_.reset();
  }

 private:
  static constexpr std::size_t chunk = (std::size_t{8} << 20) / sizeof(T);

  void append() {
    array_->append(std::span<T const>(waiting_));
    waiting_.clear();
  }

  hdf5::Group& group_;
  std::string name_;
  std::vector<T> waiting_;
  std::optional<hdf5::Array> array_;
};

/// A column and the digests of its blocks, the array NAME_digests beside it.
template <typename T>
class ProtectedColumn {
 public:
  ProtectedColumn(hdf5::Group& group, std::string const& name, std::string const& digests)
      : values_(group, name), digests_(group, digests) {}

  void add(T value) {
    block_.push_back(value);
    if (block_.size() == block_bytes / sizeof(T)) {
      end_block();
    }
  }
  /// Returns the SHA-256 of the table of digests.
  std::string finish() {
    if (!block_.empty()) {
      end_block();
    }
    values_.finish();
    digests_.finish();
    return table_.finish();
  }

 private:
  void end_block() {
    std::span<T const> const values = block_;
    auto const digest = sha256_bytes({reinterpret_cast<std::uint8_t const*>(values.data()), values.size_bytes()});
    values_.add(values);
    digests_.add(digest);
    table_.update(digest);
    block_.clear();
  }

  Column<T> values_;
  Column<std::uint8_t> digests_;
  Sha256 table_;
  std::vector<T> block_;
};

/// One side's vocabulary, tokens and offsets, being written. Its columns refer to its group, so it stays in its place.
class SideWriter {
 public:
  SideWriter(SideWriter const&) = delete;
  SideWriter& operator=(SideWriter const&) = delete;
  ~SideWriter() = default;
  SideWriter(hdf5::Group group, Tokenizer const& tokenizer)
      : group_(std::move(group)), offsets_(group_, "offsets", "offset_digests") {
    group_.write_bytes("model", tokenizer.model());
    if (token_type(tokenizer.size()) == hdf5::ElementType::uint16) {
      narrow_.emplace(group_, "tokens", "token_digests");
    } else {
      wide_.emplace(group_, "tokens", "token_digests");
    }
    offsets_.add(0);
  }

  void add(std::span<std::int32_t const> tokens) {
    for (std::int32_t const token : tokens) {
      if (narrow_) {
        narrow_->add(static_cast<std::uint16_t>(token));
      } else {
        wide_->add(token);
      }
    }
    total_ += static_cast<std::int64_t>(tokens.size());
    offsets_.add(total_);
  }

  /// Adds the digests of its tables.
  void finish(std::vector<std::string>& tables) {
    tables.push_back(narrow_ ? narrow_->finish() : wide_->finish());
    tables.push_back(offsets_.finish());
  }

 private:
  hdf5::Group group_;
  std::optional<ProtectedColumn<std::uint16_t>> narrow_;  ///< of a small vocabulary
  std::optional<ProtectedColumn<std::int32_t>> wide_;     ///< of a large one
  ProtectedColumn<std::int64_t> offsets_;
  std::int64_t total_ = 0;
};

}  // namespace

struct DatasetWriter::State {
  State(std::filesystem::path const& path, Vocabulary used_vocabulary, bool has_lines)
      : vocabulary(std::move(used_vocabulary)),
        special(vocabulary.special_ids()),
        lines(has_lines),
        pending(path),
        file(hdf5::File::create(pending.temporary())) {
    file->set_string_attribute("format", dataset_format::name);
    file->set_integer_attribute("format_version", version);
    file->set_string_attribute("vocabulary_digest", vocabulary.digest());
    for (char const* const side : side_names(lines)) {
      sides.push_back(std::make_unique<SideWriter>(file->create_group(side),
                                                   sides.empty() ? vocabulary.source : vocabulary.target));
    }
  }

  void add(std::initializer_list<std::span<int32_t const>> sample) {
    require(sample);
    std::size_t side = 0;
    for (auto const& tokens : sample) {
      Tokenizer const& tokenizer = side == 0 ? vocabulary.source : vocabulary.target;
      check_ids(tokens, tokenizer.size(), side == 0 ? special.source : special.target,
                lines ? "line" : (side == 0 ? "source sentence" : "target sentence"));
      ++side;
    }
    side = 0;
    for (auto const& tokens : sample) {
      sides[side++]->add(tokens);
    }
    count(sample);
    ++samples;
  }

  /// Throws Error where a sample of these sides cannot be added.
  void require(std::initializer_list<std::span<int32_t const>> sample) const {
    char const* reason = nullptr;
    if (sides.empty()) {
      reason = "the dataset is finished";
    } else if (sample.size() != sides.size()) {
      reason = lines ? "it has lines, with one side" : "it has pairs, with two sides";
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

  void count(std::initializer_list<std::span<int32_t const>> sample) {
    auto const size = [&](std::size_t side) { return std::ssize(sample.begin()[side]); };
    if (lines) {
      ++lengths[SampleLength::line][size(0)];
    } else {
      ++lengths[SampleLength::source][size(0)];
      ++lengths[SampleLength::target][size(1)];
      ++lengths[SampleLength::longer][std::max(size(0), size(1))];
      ++lengths[SampleLength::both][size(0) + size(1)];
    }
  }

  void finish() {
    std::vector<std::string> tables;
    for (auto const& side : sides) {
      side->finish(tables);
    }
    sides.clear();
    {
      hdf5::Group group = file->create_group("lengths");
      for (auto const& [of, array] : length_names(lines)) {
        std::vector<int64_t> flat;
        for (auto const& [length, count] : lengths[of]) {
          flat.insert(flat.end(), {length, count});
        }
        group.write_array<int64_t>(array, {std::ssize(flat) / 2, 2}, flat);
        std::span<int64_t const> const values = flat;
        tables.push_back(sha256({reinterpret_cast<std::uint8_t const*>(values.data()), values.size_bytes()}));
      }
    }
    file->set_string_attribute("digest", whole_digest(vocabulary.digest(), tables));
    file->close();
    file.reset();
    pending.sync();
  }

  Vocabulary vocabulary;
  SideIds special;
  bool lines;
  PendingFile pending;
  std::optional<hdf5::File> file;  // declared before the objects in it: handles close in the reverse order
  std::vector<std::unique_ptr<SideWriter>> sides;  ///< empty once the dataset is finished
  std::map<SampleLength, std::map<int64_t, int64_t>> lengths;
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
  state_->add({source, target});
}

void DatasetWriter::add(std::span<int32_t const> line) {
  state_->add({line});
}

int64_t DatasetWriter::size() const noexcept {
  return state_->samples;
}

void DatasetWriter::finish() {
  if (state_->file) {
    state_->finish();
  }
}

void DatasetWriter::commit() {
  finish();
  state_->pending.commit();
}

}  // namespace heddle
