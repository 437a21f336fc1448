#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/files/file_troubles.hpp>
#include <heddle/io/files/sha256.hpp>

#include "format.hpp"
#include "protected_array.hpp"
#include "tokenizers/tokenizer_model.hpp"

namespace heddle {

using namespace dataset_format;

/// One file of a dataset.
class DatasetFile {
 public:
  /// One language's tokens.
  struct Side {
    std::unique_ptr<StoredOffsets> offsets;
    std::unique_ptr<StoredTokens> tokens;
  };

  /// A field besides tokens.
  struct Field {
    std::unique_ptr<StoredOffsets> offsets;
    std::unique_ptr<ProtectedArray> values;  ///< StoredValues of its elements
  };

  /// Checks it. The file must have the vocabulary, if one is given, which is otherwise read.
  DatasetFile(hdf5::File file, std::optional<Vocabulary> const& known);

  std::string where() const { return file_.where(); }
  bool has_lines() const { return lines_; }
  std::int64_t size() const { return sides_.front().offsets->sentences(); }
  /// The source or the lines, and the target.
  Side const& side(std::size_t index) const { return sides_[index]; }
  Vocabulary const& vocabulary() const { return *vocabulary_; }
  std::string const& vocabulary_digest() const { return vocabulary_digest_; }
  std::string const& digest() const { return digest_; }
  std::map<SampleLength, LengthCounts> const& lengths() const { return lengths_; }
  std::map<std::string, double> const& findings() const { return findings_; }
  /// A field of its samples; null where it has none of that name.
  Field const* field(SampleField name) const {
    auto const found = fields_.find(name);
    return found == fields_.end() ? nullptr : &found->second;
  }
  void verify() const;

 private:
  void check_format();
  void read_vocabulary(std::optional<Vocabulary> const& known);
  void open_sides();
  void open_fields();
  /// Reads and checks an array of /lengths, and adds its digest.
  LengthCounts read_lengths(hdf5::Array const& array);
  void check_lengths() const;
  void check_digest();
  void read_findings();

  hdf5::File file_;
  bool lines_ = false;
  std::optional<Vocabulary> vocabulary_;
  std::string vocabulary_digest_;
  std::vector<Side> sides_;
  std::map<SampleField, Field> fields_;
  std::map<SampleLength, LengthCounts> lengths_;
  std::vector<std::string> length_digests_;
  std::string digest_;
  std::map<std::string, double> findings_;
};

namespace {

struct SampleSums {
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
};

/// Throws DataError, which names `where`, if a sum is 2^63 or more.
SampleSums sum_of(LengthCounts const& counts, std::string const& where) {
  SampleSums sum;
  for (auto const& [length, samples] : counts) {
    std::int64_t tokens = 0;
    if (__builtin_mul_overflow(samples, length, &tokens) || __builtin_add_overflow(sum.tokens, tokens, &sum.tokens) ||
        __builtin_add_overflow(sum.samples, samples, &sum.samples)) {
      throw DataError("{}: counts more than 2^63 samples or tokens", where);
    }
  }
  return sum;
}

/// Refuses a text or another file with a better message than HDF5's.
std::filesystem::path const& require_hdf5(std::filesystem::path const& path) {
  constexpr std::string_view signature("\x89HDF\r\n\x1a\n");
  std::string begin(signature.size(), ' ');
  std::ifstream file;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {  // to open a FIFO would wait
    file.open(path, std::ios::binary);
  }
  if (file.is_open() && file.read(begin.data(), std::ssize(begin)) && begin != signature) {
    throw DataError("{}: is not a dataset; `heddle prepare` makes one of text", path.string());
  }
  return path;
}

}  // namespace

DatasetFile::DatasetFile(hdf5::File file, std::optional<Vocabulary> const& known) : file_(std::move(file)) {
  check_format();
  read_vocabulary(known);
  open_sides();
  open_fields();
  for (auto const& [of, array] : length_names(lines_)) {
    lengths_[of] = read_lengths(file_.array(std::string("lengths/") + array));
  }
  check_lengths();
  check_digest();
  read_findings();
}

void DatasetFile::check_format() {
  std::string const format = file_.has_attribute("format") ? file_.attribute<std::string>("format") : "";
  if (format != dataset_format::name) {
    throw DataError(
        "{}: not a dataset of Heddle's (its format is \"{}\", expected \"{}\"); make one with "
        "`heddle prepare`",
        file_.where(), format, dataset_format::name);
  }
  std::int64_t const found = file_.attribute<std::int64_t>("format_version");
  if (found != version && found != version_without_fields) {
    throw DataError("{}: dataset version {}; this Heddle reads versions {} and {}: run `heddle prepare` again",
                    file_.where(), found, version_without_fields, version);
  }
  lines_ = file_.contains("text");
}

void DatasetFile::read_vocabulary(std::optional<Vocabulary> const& known) {
  std::vector<std::string> models;
  for (char const* const side : side_names(lines_)) {
    models.push_back(file_.read_bytes(fmt::format("{}/model", side), max_model_bytes));
  }
  std::string const recorded = file_.attribute<std::string>("vocabulary_digest");
  vocabulary_digest_ = sha256(sha256(models.front()) + sha256(models.back()));
  if (recorded != vocabulary_digest_) {
    throw DataError("{}: its vocabulary (digest {}) is not the one it was made with (digest {})", file_.where(),
                    vocabulary_digest_, recorded);
  }
  if (known) {
    if (known->digest() != vocabulary_digest_) {
      throw DataError(
          "{}: its vocabulary is not the one of the files before it; prepare it again with theirs: heddle "
          "prepare --vocab-model and the first of them",
          file_.where());
    }
    vocabulary_ = known;
    return;
  }
  try {
    Tokenizer const source = Tokenizer::from_model(models.front());
    vocabulary_ = {source, models.size() == 1 ? source : Tokenizer::from_model(models.back())};
  } catch (Error const& error) {
    throw DataError("{}{}: {}", file_.where(), side_names(lines_).front(), error.what());
  }
}

void DatasetFile::open_sides() {
  SideIds const special = vocabulary_->special_ids_outside_texts();
  for (char const* const side : side_names(lines_)) {
    bool const first = sides_.empty();
    hdf5::Group const group = file_.group(side);
    auto tokens = std::make_unique<StoredTokens>(group, (first ? vocabulary_->source : vocabulary_->target).size(),
                                                 first ? special.source : special.target);
    auto offsets = std::make_unique<StoredOffsets>(group, tokens->size());
    sides_.push_back({std::move(offsets), std::move(tokens)});
  }
  std::int64_t const targets = sides_.back().offsets->sentences();
  if (targets != size()) {
    throw DataError("{}: {} source sentences but {} target sentences", file_.where(), readable_count(size()),
                    readable_count(targets));
  }
}

void DatasetFile::open_fields() {
  if (!file_.contains(fields_group)) {
    return;
  }
  for (SampleField const name : all_fields) {
    if (std::string const path = fmt::format("{}/{}", fields_group, name_of(name)); file_.contains(path)) {
      hdf5::Group const group = file_.group(path);
      Field& field = fields_[name];
      Sample const sample;
      visit_field(name, sample, [&]<class Value>(std::vector<Value> const&) {
        field.values = std::make_unique<StoredValues<typename Stored<Value>::Element>>(group);
      });
      field.offsets = std::make_unique<StoredOffsets>(group, field.values->size(), StoredOffsets::Empty::allowed);
      if (field.offsets->sentences() != size()) {
        throw DataError("{}: has {} samples, but there are {}", field.offsets->where(), field.offsets->sentences(),
                        size());
      }
    }
  }
}

void DatasetFile::verify() const {
  for (Side const& side : sides_) {
    side.offsets->verify();
    side.tokens->verify();
  }
  for (auto const& [name, field] : fields_) {
    field.offsets->verify();
    field.values->verify();
  }
}

LengthCounts DatasetFile::read_lengths(hdf5::Array const& array) {
  array.expect(hdf5::ElementType::int64, {hdf5::any_extent, 2});
  if (array.shape()[0] > max_lengths) {
    throw DataError("{}: counts {} lengths, expected at most {}", array.where(), array.shape()[0], max_lengths);
  }
  std::vector<std::int64_t> const flat = array.read<std::int64_t>();
  length_digests_.push_back(sha256(bytes_of(flat)));
  LengthCounts counts;
  for (std::size_t at = 0; at < flat.size(); at += 2) {
    if (flat[at] <= (counts.empty() ? 0 : counts.rbegin()->first) || flat[at + 1] < 1) {
      throw DataError("{}: has the length {} and the count {}; expected rising lengths and counts above 0",
                      array.where(), flat[at], flat[at + 1]);
    }
    counts.emplace_hint(counts.end(), flat[at], flat[at + 1]);
  }
  return counts;
}

void DatasetFile::check_lengths() const {
  for (auto const& [of, array] : length_names(lines_)) {
    LengthCounts const& counts = lengths_.at(of);
    std::string const where = fmt::format("{}lengths/{}", file_.where(), array);
    auto const [samples, tokens] = sum_of(counts, where);
    std::int64_t const first = sides_.front().tokens->size();
    std::int64_t const both = first + (lines_ ? 0 : sides_.back().tokens->size());
    std::int64_t const expected = of == SampleLength::both     ? both
                                  : of == SampleLength::target ? both - first
                                  : of == SampleLength::longer ? std::min(tokens, both)
                                                               : first;
    if (samples != size() || tokens != expected) {
      throw DataError("{}: counts {} samples of {} tokens, but there are {} of {}", where, samples, tokens, size(),
                      expected);
    }
  }
}

void DatasetFile::check_digest() {
  std::vector<std::string> tables;
  for (Side const& side : sides_) {
    tables.push_back(side.tokens->table_digest());
    tables.push_back(side.offsets->table_digest());
  }
  tables.insert(tables.end(), length_digests_.begin(), length_digests_.end());
  for (auto const& [name, field] : fields_) {
    tables.push_back(field.values->table_digest());
    tables.push_back(field.offsets->table_digest());
  }
  digest_ = file_.attribute<std::string>("digest");
  std::string const computed = whole_digest(vocabulary_digest_, tables);
  if (digest_ != computed) {
    throw DataError(
        "{}: its attribute digest is {}, but its tables of digests, lengths and vocabulary have {}: the "
        "file is damaged; run `heddle prepare` again",
        file_.where(), digest_, computed);
  }
}

void DatasetFile::read_findings() {
  if (!file_.contains(findings_group)) {
    return;
  }
  hdf5::Group const group = file_.group(findings_group);
  for (TextFinding const& finding : text_findings) {
    if (group.has_attribute(finding.name)) {
      findings_[finding.name] = group.attribute<double>(finding.name);
    }
  }
}

namespace {

/// Opens a file's copy, if it has one that can be opened; else the file.
std::unique_ptr<DatasetFile> open_file(std::string const& path, DatasetCopies const& copies,
                                       std::optional<Vocabulary> const& known) {
  if (auto const copy = copies.find(path); copy != copies.end()) {
    try {
      return std::make_unique<DatasetFile>(hdf5::File::open_copy(copy->second, path), known);
    } catch (DataError const& error) {
      note_file_trouble(copy->second,
                        fmt::format("the copy cannot be used ({}): {} is read in its place", error.what(), path));
    }
  }
  return std::make_unique<DatasetFile>(hdf5::File::open(require_hdf5(path)), known);
}

}  // namespace

/// The place of a side of a pair, or of a line: tokens [begin, end) of a side of a file.
struct Dataset::Sentence {
  DatasetFile::Side const& side;
  int64_t begin;
  int64_t end;
};

/// A sample of a file.
struct Dataset::Place {
  DatasetFile const& file;
  int64_t index;
};

std::string dataset_in(std::string const& path, char const* name) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? (std::filesystem::path(path) / name).string() : path;
}

Dataset::Dataset(std::span<std::string const> paths, int64_t memory_bytes, DatasetCopies const& copies)
    : cache_(std::make_unique<BlockCache>(memory_bytes)) {
  if (paths.empty()) {
    throw DataError("a dataset needs at least one file");
  }
  for (std::string const& path : paths) {
    DatasetFile const& file = *files_.emplace_back(open_file(path, copies, vocabulary_));
    if (file.has_lines() != has_lines()) {
      throw DataError("{} and {}: one has lines of text, the other sentence pairs", files_.front()->where(),
                      file.where());
    }
    vocabulary_ = file.vocabulary();
    digest_ += file.digest();
    ends_.push_back((ends_.empty() ? 0 : size()) + file.size());
    for (auto const& [of, counts] : file.lengths()) {
      for (auto const& [length, samples] : counts) {
        lengths_[of][length] += samples;
      }
    }
    std::ranges::copy_if(all_fields, std::inserter(fields_, fields_.end()),
                         [&](SampleField name) { return file.field(name) != nullptr; });
  }
  digest_ = paths.size() == 1 ? digest_ : sha256(digest_);
  name_ = paths.size() == 1 ? paths.front() : fmt::format("{} and {} more files", paths.front(), paths.size() - 1);
}

Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

Dataset Dataset::open(std::filesystem::path const& path, int64_t memory_bytes) {
  return open(std::array{path.string()}, memory_bytes);
}

Dataset Dataset::open(std::span<std::string const> paths, int64_t memory_bytes, DatasetCopies const& copies) {
  return {paths, memory_bytes, copies};
}

bool Dataset::has_lines() const noexcept {
  return files_.front()->has_lines();
}

Dataset::Sentence Dataset::find(SampleLength side, int64_t index) const {
  if (side == SampleLength::longer || side == SampleLength::both) {
    throw Error("{}: asked for the tokens of both sides at once; expected one side", name_);
  }
  if ((side == SampleLength::line) != has_lines()) {
    throw Error("{}: asked for {}, but it holds {}", name_, has_lines() ? "pairs" : "lines",
                has_lines() ? "lines" : "pairs");
  }
  auto const [file, place] = find(index);
  DatasetFile::Side const& found = file.side(side == SampleLength::target ? 1 : 0);
  auto const [begin, end] = found.offsets->range(*cache_, place);
  return {found, begin, end};
}

Dataset::Place Dataset::find(int64_t index) const {
  if (index < 0 || index >= size()) {
    throw Error("{}: there is no sample {}; expected 0 to {}", name_, index, size() - 1);
  }
  auto const file = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  return {*files_[file], index - (file == 0 ? 0 : ends_[file - 1])};
}

void Dataset::read_fields(int64_t index, SampleFields const& wanted, Sample& pair) const {
  auto const [file, place] = find(index);
  for (SampleField const name : all_fields) {
    DatasetFile::Field const* const field = wanted.contains(name) ? file.field(name) : nullptr;
    visit_field(name, pair, [&, &place = place]<class Value>(std::vector<Value>& values) {
      values.clear();
      if (field != nullptr) {
        auto const [begin, end] = field->offsets->range(*cache_, place);
        std::vector<typename Stored<Value>::Element> elements;
        static_cast<StoredValues<typename Stored<Value>::Element> const&>(*field->values)
            .read(*cache_, begin, end, elements);
        values.resize(elements.size() * sizeof(elements.front()) / sizeof(Value));
        if (!values.empty()) {  // memcpy takes no null pointer
          std::memcpy(static_cast<void*>(values.data()), elements.data(), values.size() * sizeof(Value));
        }
      }
    });
  }
  if (auto const problem = problem_of_fields(pair)) {
    throw DataError("{}: pair {}: {}", file.where(), place, *problem);
  }
}

int64_t Dataset::length(SampleLength side, int64_t index) const {
  Sentence const found = find(side, index);
  return found.end - found.begin;
}

void Dataset::read(SampleLength side, int64_t index, std::vector<int32_t>& tokens) const {
  Sentence const found = find(side, index);
  found.side.tokens->read(*cache_, found.begin, found.end, tokens);
}

std::vector<int32_t> Dataset::read(SampleLength side, int64_t index) const {
  std::vector<int32_t> tokens;
  read(side, index, tokens);
  return tokens;
}

std::vector<int32_t> Dataset::line(int64_t index, int64_t begin, int64_t count) const {
  auto const [side, first, end] = find(SampleLength::line, index);
  if (begin < 0 || count < 0 || begin > end - first || count > end - first - begin) {
    throw Error("{}: line {} has {} tokens; tokens {} to {} are not in it", name_, index, end - first, begin,
                begin + count);
  }
  std::vector<int32_t> tokens;
  side.tokens->read(*cache_, first + begin, first + begin + count, tokens);
  return tokens;
}

LengthCounts const& Dataset::lengths(SampleLength of) const {
  auto const found = lengths_.find(of);
  if (found == lengths_.end()) {
    throw Error("{}: holds {}, whose lengths are different", name_, kind());
  }
  return found->second;
}

int64_t Dataset::tokens(SampleLength of) const {
  return sum_of(lengths(of), name_).tokens;
}

void Dataset::verify() const {
  std::ranges::for_each(files_, [](auto const& file) { file->verify(); });
}

std::map<std::string, double> const& Dataset::findings() const noexcept {
  return files_.back()->findings();
}

std::string const& Dataset::vocabulary_digest() const noexcept {
  return files_.front()->vocabulary_digest();
}

}  // namespace heddle
