#pragma once

#include <filesystem>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/hdf5/hdf5.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "protected_array.hpp"

namespace heddle {

/// One file of a dataset.
class DatasetFile {
 public:
  /// One language's tokens.
  struct Side {
    std::unique_ptr<StoredOffsets> offsets;
    std::unique_ptr<StoredTokens> tokens;
  };

  /// Opens and checks it. The file must have the vocabulary, if one is given, which is otherwise read.
  DatasetFile(std::filesystem::path const& path, std::optional<Vocabulary> const& known);

  std::string where() const { return file_.where(); }
  bool has_lines() const { return lines_; }
  std::int64_t size() const { return sides_.front().offsets->sentences(); }
  /// The source or the lines, and the target.
  Side const& side(std::size_t index) const { return sides_[index]; }
  Vocabulary const& vocabulary() const { return *vocabulary_; }
  std::string const& vocabulary_digest() const { return vocabulary_digest_; }
  std::string const& digest() const { return digest_; }
  std::map<SampleLength, LengthCounts> const& lengths() const { return lengths_; }
  void verify() const;

 private:
  void check_format();
  void read_vocabulary(std::optional<Vocabulary> const& known);
  void open_sides();
  LengthCounts read_lengths(hdf5::Array const& array) const;
  void check_lengths() const;
  void check_digest();

  hdf5::File file_;
  bool lines_ = false;
  std::optional<Vocabulary> vocabulary_;
  std::string vocabulary_digest_;
  std::vector<Side> sides_;
  std::map<SampleLength, LengthCounts> lengths_;
  std::string digest_;
};

/// The number of samples, or of their tokens; DataError naming `where` if it is 2^63 or more.
std::int64_t samples_of(LengthCounts const& counts, std::string const& where);
std::int64_t tokens_of(LengthCounts const& counts, std::string const& where);

}  // namespace heddle
