#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <heddle/core/base/error.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/files/sha256.hpp>
#include <map>
#include <optional>
#include <utility>

#include "dataset_file.hpp"

namespace heddle {

namespace {

/// Adds the counts of one more file.
void add(LengthCounts& sum, LengthCounts const& more) {
  std::map<int64_t, int64_t> samples;
  for (LengthCounts const* const counts : {static_cast<LengthCounts const*>(&sum), &more}) {
    for (auto const& [length, count] : *counts) {
      samples[length] += count;
    }
  }
  sum.clear();
  for (auto const& [length, count] : samples) {
    sum.push_back({length, count});
  }
}

}  // namespace

struct Dataset::State {
  State(std::span<std::string const> paths, int64_t memory_bytes) : cache(memory_bytes) {
    if (paths.empty()) {
      throw DataError("a dataset needs at least one file");
    }
    std::optional<Vocabulary> vocabulary;
    std::string digests;
    for (std::string const& path : paths) {
      DatasetFile const& file = *files.emplace_back(std::make_unique<DatasetFile>(path, vocabulary));
      if (file.has_lines() != files.front()->has_lines()) {
        throw DataError(fmt::format("{} and {}: one has lines of text, the other sentence pairs",
                                    files.front()->where(), file.where()));
      }
      vocabulary = file.vocabulary();
      digests += file.digest();
      size += file.size();
      ends.push_back(size);
      for (auto const& [of, counts] : file.lengths()) {
        add(lengths[of], counts);
      }
    }
    digest = paths.size() == 1 ? digests : sha256(digests);
    name = paths.size() == 1 ? paths.front() : fmt::format("{} and {} more files", paths.front(), paths.size() - 1);
  }

  bool has_lines() const { return files.front()->has_lines(); }

  /// The file's side that has a sample, and the sample's place there.
  std::pair<DatasetFile::Side const&, int64_t> find(SampleLength of, int64_t index) const {
    if ((of == SampleLength::line) != has_lines()) {
      throw Error(fmt::format("{}: asked for {}, but it holds {}", name, has_lines() ? "pairs" : "lines",
                              has_lines() ? "lines" : "pairs"));
    }
    if (index < 0 || index >= size) {
      throw Error(fmt::format("{}: there is no sample {}; expected 0 to {}", name, index, size - 1));
    }
    auto const file = std::upper_bound(ends.begin(), ends.end(), index) - ends.begin();
    auto const at = static_cast<std::size_t>(file);
    return {files[at]->side(of == SampleLength::target ? 1 : 0), index - (at == 0 ? 0 : ends[at - 1])};
  }

  int64_t length(SampleLength of, int64_t index) {
    auto const [side, place] = find(of, index);
    auto const [begin, end] = side.offsets->range(cache, place);
    return end - begin;
  }

  void read(SampleLength of, int64_t index, std::vector<int32_t>& tokens) {
    auto const [side, place] = find(of, index);
    auto const [begin, end] = side.offsets->range(cache, place);
    side.tokens->read(cache, begin, end, tokens);
  }

  std::vector<std::unique_ptr<DatasetFile>> files;
  std::vector<int64_t> ends;  ///< of each file's samples
  int64_t size = 0;
  std::map<SampleLength, LengthCounts> lengths;
  std::string digest;
  std::string name;
  ArrayCache cache;
};

std::string dataset_in(std::string const& path, char const* name) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? (std::filesystem::path(path) / name).string() : path;
}

Dataset::Dataset(std::unique_ptr<State> state) : state_(std::move(state)) {}
Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

Dataset Dataset::open(std::filesystem::path const& path, int64_t memory_bytes) {
  return open(std::array{path.string()}, memory_bytes);
}

Dataset Dataset::open(std::span<std::string const> paths, int64_t memory_bytes) {
  return Dataset(std::make_unique<State>(paths, memory_bytes));
}

int64_t Dataset::size() const noexcept {
  return state_->size;
}
bool Dataset::has_lines() const noexcept {
  return state_->has_lines();
}
std::string const& Dataset::name() const noexcept {
  return state_->name;
}
std::string const& Dataset::digest() const noexcept {
  return state_->digest;
}
std::vector<int32_t> Dataset::source(int64_t index) const {
  std::vector<int32_t> tokens;
  read_source(index, tokens);
  return tokens;
}
std::vector<int32_t> Dataset::target(int64_t index) const {
  std::vector<int32_t> tokens;
  read_target(index, tokens);
  return tokens;
}
void Dataset::read_source(int64_t index, std::vector<int32_t>& tokens) const {
  state_->read(SampleLength::source, index, tokens);
}
void Dataset::read_target(int64_t index, std::vector<int32_t>& tokens) const {
  state_->read(SampleLength::target, index, tokens);
}
std::vector<int32_t> Dataset::line(int64_t index, int64_t begin, int64_t count) const {
  auto const [side, place] = state_->find(SampleLength::line, index);
  auto const [first, end] = side.offsets->range(state_->cache, place);
  if (begin < 0 || count < 0 || begin > end - first || count > end - first - begin) {
    throw Error(fmt::format("{}: line {} has {} tokens; tokens {} to {} are not in it", name(), index, end - first,
                            begin, begin + count));
  }
  std::vector<int32_t> tokens;
  side.tokens->read(state_->cache, first + begin, first + begin + count, tokens);
  return tokens;
}
int64_t Dataset::source_length(int64_t index) const {
  return state_->length(SampleLength::source, index);
}
int64_t Dataset::target_length(int64_t index) const {
  return state_->length(SampleLength::target, index);
}
int64_t Dataset::line_length(int64_t index) const {
  return state_->length(SampleLength::line, index);
}
LengthCounts const& Dataset::lengths(SampleLength of) const {
  auto const found = state_->lengths.find(of);
  if (found == state_->lengths.end()) {
    throw Error(fmt::format("{}: holds {}, which have not these lengths", name(), content()));
  }
  return found->second;
}
int64_t Dataset::tokens(SampleLength of) const {
  return tokens_of(lengths(of), name());
}
void Dataset::verify() const {
  for (auto const& file : state_->files) {
    file->verify();
  }
}
Vocabulary const& Dataset::vocabulary() const noexcept {
  return state_->files.front()->vocabulary();
}
std::string const& Dataset::vocabulary_digest() const noexcept {
  return state_->files.front()->vocabulary_digest();
}

}  // namespace heddle
