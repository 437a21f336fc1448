#include "protected_array.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/file_troubles.hpp>
#include <heddle/io/files/sha256.hpp>
#include <limits>
#include <system_error>

#include "format.hpp"

namespace heddle {

namespace {

using namespace dataset_format;

/// The next start makes another copy in place of one with a fault. `file` is the one that was copied.
void give_up_copy(std::string const& copy, std::string const& file) {
  std::error_code ignored;
  std::filesystem::remove(copy, ignored);
  note_file_trouble(
      copy, fmt::format("the copy is damaged, or cannot be read: it is removed, and {} is read in its place", file));
}

template <typename T>
T element(std::span<std::uint8_t const> bytes, std::int64_t index) {
  T value{};
  std::memcpy(&value, bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

ProtectedArray::ProtectedArray(hdf5::Array values, hdf5::Array const& digests, hdf5::ElementType type)
    : values_(std::move(values)), size_(values_.size()), block_length_(block_bytes / hdf5::element_bytes(type)) {
  values_.expect(type, {hdf5::any_extent});
  std::int64_t const blocks = (size_ + block_length_ - 1) / block_length_;
  digests.expect(hdf5::ElementType::uint8, {blocks * digest_bytes});
  digests_ = digests.read<std::uint8_t>();
}

std::string ProtectedArray::table_digest() const {
  return sha256(digests_);
}

std::span<std::uint8_t const> ProtectedArray::block(BlockCache& cache, std::int64_t index) const {
  return cache.block(this, index, [&](std::vector<std::uint8_t>& bytes) { read_block(index, bytes); });
}

void ProtectedArray::verify() const {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t begin = 0; begin < size_; begin += block_length_) {
    read_block(begin / block_length_, bytes);
  }
}

void ProtectedArray::read_block(std::int64_t index, std::vector<std::uint8_t>& bytes) const {
  try {
    read_recorded(index, bytes);
  } catch (DataError const&) {
    std::string const copy = values_.copy();
    if (copy.empty()) {
      throw;
    }
    values_ = hdf5::File::open(values_.path()).array(values_.name().substr(1));  // from the root, without its slash
    read_recorded(index, bytes);
    give_up_copy(copy, values_.path());
  }
  check(bytes, index * block_length_);
}

void ProtectedArray::read_recorded(std::int64_t index, std::vector<std::uint8_t>& bytes) const {
  std::int64_t const begin = index * block_length_;
  std::int64_t const count = std::min(block_length_, size_ - begin);
  values_.read_bytes(begin, count, bytes);
  auto const recorded = std::span(digests_).subspan(static_cast<std::size_t>(index * digest_bytes), digest_bytes);
  if (!std::ranges::equal(sha256_bytes(bytes), recorded)) {
    throw DataError(
        "{}: elements {} to {} do not have the digest that the file had for them when it was opened: it is damaged, or "
        "another dataset was written over it since then; run `heddle prepare` again, into another file while one is "
        "trained on",
        where(), begin, begin + count - 1);
  }
}

void ProtectedArray::for_each_block(BlockCache& cache, std::int64_t begin, std::int64_t end,
                                    std::function<void(std::span<std::uint8_t const>)> const& visit) const {
  std::int64_t const bytes = hdf5::element_bytes(type());
  while (begin < end) {
    auto const block = this->block(cache, begin / block_length());
    std::int64_t const from = begin % block_length();
    std::int64_t const count = std::min(end - begin, std::ssize(block) / bytes - from);
    visit(block.subspan(static_cast<std::size_t>(from * bytes), static_cast<std::size_t>(count * bytes)));
    begin += count;
  }
}

template <class Value>
StoredValues<Value>::StoredValues(hdf5::Group const& field)
    : ProtectedArray(field.array("values"), field.array("value_digests"), hdf5::element_type_of<Value>()) {}

template <class Value>
void StoredValues<Value>::read(BlockCache& cache, std::int64_t begin, std::int64_t end,
                               std::vector<Value>& values) const {
  values.clear();
  for_each_block(cache, begin, end, [&](std::span<std::uint8_t const> bytes) {
    for (std::int64_t index = 0; index < std::ssize(bytes) / static_cast<std::int64_t>(sizeof(Value)); ++index) {
      values.push_back(element<Value>(bytes, index));
    }
  });
}

template <class Value>
void StoredValues<Value>::check(std::span<std::uint8_t const> block, std::int64_t first) const {
  for (std::int64_t index = 0; index < std::ssize(block) / static_cast<std::int64_t>(sizeof(Value)); ++index) {
    auto const value = element<Value>(block, index);
    constexpr bool integers = std::is_integral_v<Value>;
    constexpr Value max = std::numeric_limits<Value>::max();
    if (!(value >= (integers ? 0 : -max) && value <= max)) {
      throw DataError("{}: element {} is {}; expected {}", where(), first + index, value,
                      integers ? "0 or more" : "a finite number");
    }
  }
}

template class StoredValues<std::int32_t>;
template class StoredValues<float>;

StoredTokens::StoredTokens(hdf5::Group const& side, std::int32_t vocabulary, SpecialIds const& special)
    : ProtectedArray(side.array("tokens"), side.array("token_digests"), token_type(vocabulary)),
      vocabulary_(vocabulary),
      special_(special) {}

void StoredTokens::append(std::span<std::uint8_t const> bytes, std::vector<std::int32_t>& ids) const {
  bool const narrow = type() == hdf5::ElementType::uint16;
  auto const count = std::ssize(bytes) / hdf5::element_bytes(type());
  for (std::int64_t index = 0; index < count; ++index) {
    ids.push_back(narrow ? element<std::uint16_t>(bytes, index) : element<std::int32_t>(bytes, index));
  }
}

void StoredTokens::read(BlockCache& cache, std::int64_t begin, std::int64_t end, std::vector<std::int32_t>& ids) const {
  ids.clear();
  ids.reserve(static_cast<std::size_t>(end - begin));
  for_each_block(cache, begin, end, [&](std::span<std::uint8_t const> bytes) { append(bytes, ids); });
}

void StoredTokens::check(std::span<std::uint8_t const> block, std::int64_t /*first*/) const {
  std::vector<std::int32_t> ids;
  append(block, ids);
  check_ids(ids, vocabulary_, special_, where());
}

StoredOffsets::StoredOffsets(hdf5::Group const& group, std::int64_t elements, Empty empty)
    : ProtectedArray(group.array("offsets"), group.array("offset_digests"), hdf5::ElementType::int64),
      elements_(elements),
      min_count_(empty == Empty::allowed ? 0 : 1) {
  if (size() < 2) {
    throw DataError("{}: holds no sentence", where());
  }
}

std::int64_t StoredOffsets::at(BlockCache& cache, std::int64_t index) const {
  return element<std::int64_t>(block(cache, index / block_length()), index % block_length());
}

std::pair<std::int64_t, std::int64_t> StoredOffsets::ends(BlockCache& cache, std::int64_t sentence) const {
  std::int64_t const place = sentence % block_length();
  if (place + 1 == block_length()) {
    return {at(cache, sentence), at(cache, sentence + 1)};
  }
  auto const offsets = block(cache, sentence / block_length());
  return {element<std::int64_t>(offsets, place), element<std::int64_t>(offsets, place + 1)};
}

std::pair<std::int64_t, std::int64_t> StoredOffsets::range(BlockCache& cache, std::int64_t sentence) const {
  if (sentence < 0 || sentence >= sentences()) {
    throw Error("{}: there is no sentence {}; expected 0 to {}", where(), sentence, sentences() - 1);
  }
  auto const range = ends(cache, sentence);
  if (range.second - range.first < min_count_) {  // inside a block this has been checked
    throw DataError("{}: sentence {} has no tokens ({} is followed by {})", where(), sentence, range.first,
                    range.second);
  }
  return range;
}

void StoredOffsets::check(std::span<std::uint8_t const> block, std::int64_t first) const {
  std::int64_t const count = std::ssize(block) / static_cast<std::int64_t>(sizeof(std::int64_t));
  std::int64_t before = first == 0 ? -min_count_ : 0;
  for (std::int64_t index = 0; index < count; ++index) {
    auto const offset = element<std::int64_t>(block, index);
    auto const agree = [&](bool at_end, bool has_value) {
      return min_count_ > 0 ? at_end == has_value : !at_end || has_value;
    };
    bool const at_ends =
        agree(first + index == 0, offset == 0) && agree(first + index == sentences(), offset == elements_);
    if (offset < before + min_count_ || offset > elements_ || !at_ends) {
      throw DataError("{}: element {} is {} after {}; expected places that rise from 0 to the number of tokens, {}",
                      where(), first + index, offset, before, elements_);
    }
    before = offset;
  }
}

}  // namespace heddle
