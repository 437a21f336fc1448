#include "dataset_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/files/sha256.hpp>
#include <string_view>

#include "format.hpp"

namespace heddle {

using namespace dataset_format;

namespace {

std::int64_t sum_of(LengthCounts const& counts, std::string const& where, bool tokens) {
  std::int64_t sum = 0;
  for (auto const& [length, samples] : counts) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(samples, tokens ? length : 1, &product) || __builtin_add_overflow(sum, product, &sum)) {
      throw DataError(fmt::format("{}: counts more than 2^63 samples or tokens", where));
    }
  }
  return sum;
}

}  // namespace

std::int64_t samples_of(LengthCounts const& counts, std::string const& where) {
  return sum_of(counts, where, false);
}

std::int64_t tokens_of(LengthCounts const& counts, std::string const& where) {
  return sum_of(counts, where, true);
}

namespace {

/// Says of a text or another file more than HDF5 would.
std::filesystem::path const& require_hdf5(std::filesystem::path const& path) {
  constexpr std::string_view signature("\x89HDF\r\n\x1a\n");
  std::string begin(signature.size(), ' ');
  std::ifstream file;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {  // to open a FIFO would wait
    file.open(path, std::ios::binary);
  }
  if (file.is_open() && file.read(begin.data(), std::ssize(begin)) && begin != signature) {
    throw DataError(fmt::format("{}: is no dataset; `heddle prepare` makes one of text", path.string()));
  }
  return path;
}

}  // namespace

DatasetFile::DatasetFile(std::filesystem::path const& path, std::optional<Vocabulary> const& known)
    : file_(hdf5::File::open(require_hdf5(path))) {
  check_format();
  read_vocabulary(known);
  open_sides();
  for (auto const& [of, array] : length_names(lines_)) {
    lengths_[of] = read_lengths(file_.array(std::string("lengths/") + array));
  }
  check_lengths();
  check_digest();
}

void DatasetFile::check_format() {
  std::string const format = file_.has_attribute("format") ? file_.string_attribute("format") : "";
  if (format != dataset_format::name) {
    throw DataError(
        fmt::format("{}: not a dataset of Heddle's (its format is \"{}\", expected \"{}\"); make one with "
                    "`heddle prepare`",
                    file_.where(), format, dataset_format::name));
  }
  std::int64_t const found = file_.integer_attribute("format_version");
  if (found != version) {
    throw DataError(fmt::format("{}: dataset version {}; this Heddle reads version {}: run `heddle prepare` again",
                                file_.where(), found, version));
  }
  lines_ = file_.contains("text");
}

void DatasetFile::read_vocabulary(std::optional<Vocabulary> const& known) {
  std::vector<std::string> models;
  for (char const* const side : side_names(lines_)) {
    models.push_back(file_.read_bytes(fmt::format("{}/model", side), max_model_bytes));
  }
  std::string const recorded = file_.string_attribute("vocabulary_digest");
  vocabulary_digest_ = sha256(sha256(models.front()) + sha256(models.back()));
  if (recorded != vocabulary_digest_) {
    throw DataError(fmt::format("{}: its vocabulary (digest {}) is not the one it was made with (digest {})",
                                file_.where(), vocabulary_digest_, recorded));
  }
  if (known) {
    if (known->digest() != vocabulary_digest_) {
      throw DataError(
          fmt::format("{}: its vocabulary is not that of the files before it; prepare them together", file_.where()));
    }
    vocabulary_ = known;
    return;
  }
  try {
    Tokenizer const source = Tokenizer::from_model(models.front());
    vocabulary_ = {source, models.size() == 1 ? source : Tokenizer::from_model(models.back())};
  } catch (Error const& error) {
    throw DataError(fmt::format("{}{}: {}", file_.where(), side_names(lines_).front(), error.what()));
  }
}

void DatasetFile::open_sides() {
  SideIds const special = vocabulary_->special_ids();
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
    throw DataError(fmt::format("{}: {} source sentences but {} target sentences", file_.where(),
                                readable_count(size()), readable_count(targets)));
  }
}

void DatasetFile::verify() const {
  for (Side const& side : sides_) {
    for (ProtectedArray const* const array : {static_cast<ProtectedArray const*>(side.offsets.get()),
                                              static_cast<ProtectedArray const*>(side.tokens.get())}) {
      for (std::int64_t begin = 0; begin < array->size(); begin += array->block_length()) {
        array->read_block(begin / array->block_length());
      }
    }
  }
}

LengthCounts DatasetFile::read_lengths(hdf5::Array const& array) const {
  array.expect(hdf5::ElementType::int64, {hdf5::any_extent, 2});
  if (array.shape()[0] > max_lengths) {
    throw DataError(
        fmt::format("{}: counts {} lengths, expected at most {}", array.where(), array.shape()[0], max_lengths));
  }
  std::vector<std::int64_t> const flat = array.read<std::int64_t>();
  LengthCounts counts;
  for (std::size_t at = 0; at < flat.size(); at += 2) {
    if (flat[at] <= (counts.empty() ? 0 : counts.back().length) || flat[at + 1] < 1) {
      throw DataError(fmt::format("{}: has the length {} and the count {}; expected rising lengths and counts above 0",
                                  array.where(), flat[at], flat[at + 1]));
    }
    counts.push_back({flat[at], flat[at + 1]});
  }
  return counts;
}

void DatasetFile::check_lengths() const {
  for (auto const& [of, array] : length_names(lines_)) {
    LengthCounts const& counts = lengths_.at(of);
    std::string const where = fmt::format("{}lengths/{}", file_.where(), array);
    std::int64_t const samples = samples_of(counts, where);
    std::int64_t const tokens = tokens_of(counts, where);
    std::int64_t const first = sides_.front().tokens->size();
    std::int64_t const both = first + (lines_ ? 0 : sides_.back().tokens->size());
    std::int64_t const expected = of == SampleLength::both     ? both
                                  : of == SampleLength::target ? both - first
                                  : of == SampleLength::longer ? std::min(tokens, both)
                                                               : first;
    if (samples != size() || tokens != expected) {
      throw DataError(fmt::format("{}: counts {} samples of {} tokens, but there are {} of {}", where, samples, tokens,
                                  size(), expected));
    }
  }
}

void DatasetFile::check_digest() {
  std::vector<std::string> tables;
  for (Side const& side : sides_) {
    tables.push_back(side.tokens->table_digest());
    tables.push_back(side.offsets->table_digest());
  }
  for (auto const& [of, array] : length_names(lines_)) {
    std::span<LengthCount const> const counts = lengths_.at(of);
    static_assert(sizeof(LengthCount) == 2 * sizeof(std::int64_t));
    tables.push_back(sha256({reinterpret_cast<std::uint8_t const*>(counts.data()), counts.size_bytes()}));
  }
  digest_ = file_.string_attribute("digest");
  std::string const computed = whole_digest(vocabulary_digest_, tables);
  if (digest_ != computed) {
    throw DataError(
        fmt::format("{}: its attribute digest is {}, but its tables of digests, lengths and vocabulary have {}: the "
                    "file is damaged; run `heddle prepare` again",
                    file_.where(), digest_, computed));
  }
}

}  // namespace heddle
