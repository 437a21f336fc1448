#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/files/sha256.hpp>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "files/pending_file.hpp"
#include "format.hpp"

namespace heddle {

namespace dataset_format {

void check_ids(std::span<std::int32_t const> ids, std::int32_t vocabulary, SpecialIds const& special,
               std::string const& where) {
  for (std::int32_t const id : ids) {
    if (id < 0 || id >= vocabulary) {
      throw DataError("{}: token id {} is outside the vocabulary's 0 to {}", where, id, vocabulary - 1);
    }
    if (id == special.padding || id == special.begin || id == special.end) {
      throw DataError("{}: token id {} is the vocabulary's {} token, which no sentence has inside", where, id,
                      id == special.padding ? "padding" : (id == special.begin ? "start" : "end"));
    }
  }
}

std::optional<std::string> problem_of_fields(PairView const& pair) {
  for (auto const& [source, target] : pair.alignment) {
    if (source < 0 || target < 0 || source >= std::ssize(pair.source) || target >= std::ssize(pair.target)) {
      return fmt::format("the link {}-{} is not between its {} and {} tokens", source, target, pair.source.size(),
                         pair.target.size());
    }
  }
  if (std::size_t const weights = pair.weights.size(); weights > 1 && weights != pair.target.size() + 1) {
    return fmt::format("{} weights for {} tokens and their end", weights, pair.target.size());
  }
  auto const refused = [](float weight) { return !(weight >= 0 && std::isfinite(weight)); };
  if (auto const found = std::ranges::find_if(pair.weights, refused); found != pair.weights.end()) {
    return fmt::format("the weight {}; expected a finite number of at least 0", *found);
  }
  return std::nullopt;
}

}  // namespace dataset_format

namespace {

using namespace dataset_format;

/// An array of a file that grows: contiguous if it ends with less than a chunk, else chunked. Large chunks keep their
/// index small.
class Column {
 public:
  Column(hdf5::Group& group, std::string name, hdf5::ElementType type)
      : group_(group), name_(std::move(name)), type_(type) {}

  void add(std::span<std::uint8_t const> values) {
    while (!values.empty()) {
      auto const taken = values.first(std::min(values.size(), chunk_bytes - waiting_.size()));
      waiting_.insert(waiting_.end(), taken.begin(), taken.end());
      values = values.subspan(taken.size());
      if (waiting_.size() == chunk_bytes) {
        if (!array_) {
          array_.emplace(group_.create_extendible_array(name_, type_, {elements()}));
        }
        append();
      }
    }
  }

  void finish() {
    if (!array_) {
      array_.emplace(group_.create_array(name_, type_, {elements()}));
      array_->write_bytes(waiting_);
    } else if (!waiting_.empty()) {
      append();
    }
    array_.reset();
  }

 private:
  static constexpr std::size_t chunk_bytes = std::size_t{8} << 20;

  std::int64_t elements() const { return std::ssize(waiting_) / hdf5::element_bytes(type_); }
  void append() {
    array_->append_bytes(waiting_);
    waiting_.clear();
  }

  hdf5::Group& group_;
  std::string name_;
  hdf5::ElementType type_;
  std::vector<std::uint8_t> waiting_;
  std::optional<hdf5::Array> array_;
};

/// A column, and the array with the digests of its blocks.
class ProtectedColumn {
 public:
  ProtectedColumn(hdf5::Group& group, std::string const& name, std::string const& digests, hdf5::ElementType type)
      : values_(group, name, type), digests_(group, digests, hdf5::ElementType::uint8) {}

  template <typename T>
  void add(std::span<T const> values) {
    std::span bytes(reinterpret_cast<std::uint8_t const*>(values.data()), values.size_bytes());
    while (!bytes.empty()) {
      auto const taken = bytes.first(std::min(bytes.size(), static_cast<std::size_t>(block_bytes) - block_.size()));
      block_.insert(block_.end(), taken.begin(), taken.end());
      bytes = bytes.subspan(taken.size());
      if (std::ssize(block_) == block_bytes) {
        end_block();
      }
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
    auto const digest = sha256_bytes(block_);
    values_.add(block_);
    digests_.add(digest);
    table_.update(digest);
    block_.clear();
  }

  Column values_;
  Column digests_;
  Sha256 table_;
  std::vector<std::uint8_t> block_;
};

/// Values of each sample, with offsets, being written. Its columns refer to its group, so it stays in its place.
class FieldWriter {
 public:
  FieldWriter(FieldWriter const&) = delete;
  FieldWriter& operator=(FieldWriter const&) = delete;
  ~FieldWriter() = default;
  /// `name`: "token", for arrays that are named after it.
  FieldWriter(hdf5::Group group, std::string const& name, hdf5::ElementType type)
      : group_(std::move(group)),
        values_(group_, name + "s", name + "_digests", type),
        offsets_(group_, "offsets", "offset_digests", hdf5::ElementType::int64) {
    add_offset();
  }

  hdf5::Group& group() { return group_; }
  /// The values of a sample.
  template <class Value>
  void add(std::span<Value const> values) {
    values_.add(values);
    total_ += std::ssize(values);
    add_offset();
  }
  /// Adds the digests of its tables.
  void finish(std::vector<std::string>& tables) {
    tables.push_back(values_.finish());
    tables.push_back(offsets_.finish());
  }

 private:
  void add_offset() { offsets_.add(std::span<std::int64_t const>(&total_, 1)); }

  hdf5::Group group_;
  ProtectedColumn values_;
  ProtectedColumn offsets_;
  std::int64_t total_ = 0;
};

/// One side's vocabulary and tokens, being written.
class SideWriter {
 public:
  SideWriter(hdf5::Group group, Tokenizer const& tokenizer)
      : narrow_(token_type(tokenizer.size()) == hdf5::ElementType::uint16),
        tokens_(std::move(group), "token", token_type(tokenizer.size())) {
    tokens_.group().write_bytes("model", tokenizer.model());
  }

  void add(std::span<std::int32_t const> tokens) {
    if (narrow_) {
      short_.assign(tokens.begin(), tokens.end());
      tokens_.add(std::span<std::uint16_t const>(short_));
    } else {
      tokens_.add(tokens);
    }
  }
  void finish(std::vector<std::string>& tables) { tokens_.finish(tables); }

 private:
  bool narrow_;  ///< tokens have 16 bits
  std::vector<std::uint16_t> short_;
  FieldWriter tokens_;
};

}  // namespace

struct DatasetWriter::State {
  State(std::filesystem::path const& path, Vocabulary used_vocabulary, bool has_lines, SampleFields const& names)
      : vocabulary(std::move(used_vocabulary)),
        special(vocabulary.special_ids_outside_texts()),
        lines(has_lines),
        pending(path),
        file(hdf5::File::create(pending.temporary())) {
    file->set_attribute("format", dataset_format::name);
    file->set_attribute("format_version", names.empty() ? version_without_fields : version);
    file->set_attribute("vocabulary_digest", vocabulary.digest());
    for (char const* const side : side_names(lines)) {
      sides.push_back(std::make_unique<SideWriter>(file->create_group(side),
                                                   sides.empty() ? vocabulary.source : vocabulary.target));
    }
    if (!names.empty()) {
      file->create_group(fields_group);
    }
    for (SampleField const name : names) {
      Sample const sample;
      visit_field(name, sample, [&]<class Value>(std::vector<Value> const&) {
        fields.try_emplace(name, file->create_group(fmt::format("{}/{}", fields_group, name_of(name))), "value",
                           hdf5::element_type_of<typename Stored<Value>::Element>());
      });
    }
  }

  void add(PairView const& pair) {
    if (auto const problem = problem_of_fields(pair)) {
      throw Error("{}: {}", pending.target().string(), *problem);
    }
    add({pair.source, pair.target});
    for (auto& [name, field] : fields) {
      if (name == SampleField::weights) {
        field.add(pair.weights);
      } else {
        std::vector<std::int32_t> flat;
        for (auto const& [source, target] : pair.alignment) {
          flat.insert(flat.end(), {source, target});
        }
        field.add(std::span<std::int32_t const>(flat));
      }
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
      throw Error("{}: cannot add a sample of {} tokens: {}", pending.target().string(), fmt::join(sizes, " and "),
                  reason);
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
    std::vector<std::string> of_fields;
    for (auto& [name, field] : fields) {
      field.finish(of_fields);
    }
    fields.clear();
    {
      hdf5::Group group = file->create_group("lengths");
      for (auto const& [of, array] : length_names(lines)) {
        std::vector<int64_t> flat;
        for (auto const& [length, count] : lengths[of]) {
          flat.insert(flat.end(), {length, count});
        }
        group.write_array<int64_t>(array, {std::ssize(flat) / 2, 2}, flat);
        tables.push_back(sha256(bytes_of(flat)));
      }
    }
    if (!findings.empty()) {
      hdf5::Group group = file->create_group(findings_group);
      for (auto const& [name, value] : findings) {
        group.set_attribute(name, value);
      }
    }
    tables.insert(tables.end(), of_fields.begin(), of_fields.end());
    file->set_attribute("digest", whole_digest(vocabulary.digest(), tables));
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
  std::map<SampleField, FieldWriter> fields;
  std::map<SampleLength, LengthCounts> lengths;
  std::map<std::string, double> findings;
  int64_t samples = 0;
};

DatasetWriter::DatasetWriter(std::filesystem::path const& path, Vocabulary const& vocabulary,
                             SampleFields const& fields)
    : state_(std::make_unique<State>(path, vocabulary, false, fields)) {}
DatasetWriter::DatasetWriter(std::filesystem::path const& path, Tokenizer const& tokenizer)
    : state_(std::make_unique<State>(path, Vocabulary{tokenizer, tokenizer}, true, SampleFields())) {}
DatasetWriter::~DatasetWriter() = default;
DatasetWriter::DatasetWriter(DatasetWriter&&) noexcept = default;
DatasetWriter& DatasetWriter::operator=(DatasetWriter&&) noexcept = default;

void DatasetWriter::add(std::span<int32_t const> source, std::span<int32_t const> target) {
  state_->add(PairView(source, target));
}

void DatasetWriter::add(PairView const& pair) {
  state_->add(pair);
}

void DatasetWriter::add(std::span<int32_t const> line) {
  state_->add({line});
}

int64_t DatasetWriter::size() const noexcept {
  return state_->samples;
}

void DatasetWriter::set_findings(std::map<std::string, double> findings) {
  state_->findings = std::move(findings);
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
