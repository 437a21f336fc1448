#pragma once

#include <array>
#include <cstdint>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/hdf5/hdf5.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// The layout of dataset files, which the writer and the reader share; docs/reference/dataset-format.md describes it.
namespace heddle::dataset_format {

inline constexpr char const* name = "heddle-dataset";
/// A file without fields besides tokens has the version before, which is the same except for them.
inline constexpr std::int64_t version = 4;
inline constexpr std::int64_t version_without_fields = 3;
/// The group whose attributes are numbers of text_findings; optional.
inline constexpr char const* findings_group = "findings";
/// The group with a group for each SampleField that the samples have, by its name.
inline constexpr char const* fields_group = "fields";
/// The bytes of tokens, offsets or values that one digest protects.
inline constexpr std::int64_t block_bytes = std::int64_t{128} << 10;
inline constexpr std::int64_t digest_bytes = 32;
inline constexpr std::array all_fields{SampleField::alignment, SampleField::weights};
/// More different lengths are refused.
inline constexpr std::int64_t max_lengths = 1'000'000;

inline hdf5::ElementType token_type(std::int32_t vocabulary) {
  return vocabulary <= 65536 ? hdf5::ElementType::uint16 : hdf5::ElementType::int32;
}

/// The groups of a dataset's sides.
inline std::vector<char const*> side_names(bool lines) {
  return lines ? std::vector{"text"} : std::vector{"source", "target"};
}

/// A kind of length that a file counts, and its array in the group /lengths.
struct Lengths {
  SampleLength of;
  char const* name;
};

inline std::vector<Lengths> length_names(bool lines) {
  if (lines) {
    return {{SampleLength::line, "text"}};
  }
  return {{SampleLength::source, "source"},
          {SampleLength::target, "target"},
          {SampleLength::longer, "longer"},
          {SampleLength::both, "both"}};
}

/// The digest of a whole dataset: SHA-256 (hexadecimal) of these hexadecimal digests one after another: the
/// vocabulary's; of each side the SHA-256 of its token_digests and of its offset_digests; the SHA-256 of each array of
/// /lengths; of each field, in the order of SampleField, the SHA-256 of its value_digests and of its offset_digests.
inline std::string whole_digest(std::string const& vocabulary, std::vector<std::string> const& tables) {
  return sha256(std::accumulate(tables.begin(), tables.end(), vocabulary));
}

/// The bytes of an array of /lengths.
inline std::span<std::uint8_t const> bytes_of(std::vector<std::int64_t> const& lengths) {
  return {reinterpret_cast<std::uint8_t const*>(lengths.data()), lengths.size() * sizeof(std::int64_t)};
}

/// Calls visit(list) with a pair's list of a field's values.
template <class Pair, class Visit>
void visit_field(SampleField field, Pair& pair, Visit const& visit) {
  switch (field) {
    case SampleField::alignment:
      return visit(pair.alignment);
    case SampleField::weights:
      return visit(pair.target.weights);
  }
}

/// The elements of a file that are a field's value: one of its type, or several.
template <class Value>
struct Stored {
  using Element = Value;
};
template <>
struct Stored<TokenLink> {
  using Element = std::int32_t;
};

/// The reason why a pair cannot have these fields beside its tokens; null if it can.
std::optional<std::string> problem_of_fields(PairView const& pair);

/// Throws DataError for an id outside the vocabulary and for one that no sentence has: padding, begin, end.
void check_ids(std::span<std::int32_t const> ids, std::int32_t vocabulary, SpecialIds const& special,
               std::string const& where);

}  // namespace heddle::dataset_format
