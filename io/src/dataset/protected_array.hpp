#pragma once

#include <cstdint>
#include <functional>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/io/hdf5/hdf5.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "files/block_cache.hpp"

namespace heddle {

/// A one-dimensional array of a dataset file whose blocks have digests.
class ProtectedArray {
 public:
  /// Reads the digests (32 bytes for each 128 KiB of values) and keeps them, so that what is written over the file
  /// later is refused. Throws DataError where the two arrays do not fit together.
  ProtectedArray(hdf5::Array values, hdf5::Array const& digests, hdf5::ElementType type);
  virtual ~ProtectedArray() = default;
  ProtectedArray(ProtectedArray const&) = delete;
  ProtectedArray& operator=(ProtectedArray const&) = delete;

  std::int64_t size() const { return size_; }
  std::int64_t block_length() const { return block_length_; }
  std::string where() const { return values_.where(); }
  /// SHA-256 (hexadecimal) of all digests.
  std::string table_digest() const;
  /// The bytes of a block, which are read unless the cache has them. From the first fault of a copy on, the file itself
  /// is read in its place, which is noted. Throws DataError unless they have the recorded digest and are allowed.
  std::span<std::uint8_t const> block(BlockCache& cache, std::int64_t index) const;
  /// Reads and checks all blocks.
  void verify() const;

 protected:
  hdf5::ElementType type() const { return values_.type(); }
  /// Calls visit(bytes) for the elements [begin, end), block by block.
  void for_each_block(BlockCache& cache, std::int64_t begin, std::int64_t end,
                      std::function<void(std::span<std::uint8_t const>)> const& visit) const;

 private:
  void read_block(std::int64_t index, std::vector<std::uint8_t>& bytes) const;
  /// Reads a block. Throws DataError unless it has the recorded digest.
  void read_recorded(std::int64_t index, std::vector<std::uint8_t>& bytes) const;
  /// Throws DataError for values that no writer writes. `first` is the index of the first of them.
  virtual void check(std::span<std::uint8_t const> block, std::int64_t first) const = 0;

  mutable hdf5::Array values_;         ///< of the file, or of a copy
  std::vector<std::uint8_t> digests_;  ///< digests of the blocks, as they were at opening
  std::int64_t size_;
  std::int64_t block_length_;
};

/// The elements of a field: int32, none below 0, or float32, all finite.
template <class Value>
class StoredValues final : public ProtectedArray {
 public:
  explicit StoredValues(hdf5::Group const& field);

  /// values = those in [begin, end), which must lie inside.
  void read(BlockCache& cache, std::int64_t begin, std::int64_t end, std::vector<Value>& values) const;

 private:
  void check(std::span<std::uint8_t const> block, std::int64_t first) const override;
};

/// Token ids: uint16 or int32.
class StoredTokens final : public ProtectedArray {
 public:
  StoredTokens(hdf5::Group const& side, std::int32_t vocabulary, SpecialIds const& special);

  /// ids = those in [begin, end), which must lie inside.
  void read(BlockCache& cache, std::int64_t begin, std::int64_t end, std::vector<std::int32_t>& ids) const;

 private:
  void check(std::span<std::uint8_t const> block, std::int64_t first) const override;
  void append(std::span<std::uint8_t const> bytes, std::vector<std::int32_t>& ids) const;

  std::int32_t vocabulary_;
  SpecialIds special_;
};

/// The places at which samples begin in a side's tokens or a field's values, and last the number of these.
class StoredOffsets final : public ProtectedArray {
 public:
  enum class Empty : std::uint8_t { refused, allowed };  ///< samples without tokens or values

  StoredOffsets(hdf5::Group const& group, std::int64_t elements, Empty empty = Empty::refused);

  std::int64_t sentences() const { return size() - 1; }
  /// The tokens or values [begin, end) of a sentence of [0, sentences()).
  std::pair<std::int64_t, std::int64_t> range(BlockCache& cache, std::int64_t sentence) const;

 private:
  std::int64_t at(BlockCache& cache, std::int64_t index) const;
  /// A sentence's offset and the next one.
  std::pair<std::int64_t, std::int64_t> ends(BlockCache& cache, std::int64_t sentence) const;
  void check(std::span<std::uint8_t const> block, std::int64_t first) const override;

  std::int64_t elements_;
  std::int64_t min_count_;  ///< of a sentence's tokens or values
};

}  // namespace heddle
