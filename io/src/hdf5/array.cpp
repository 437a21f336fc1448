#include <fmt/format.h>

#include <array>
#include <heddle/io/hdf5/hdf5.hpp>
#include <limits>

#include "internal.hpp"

namespace heddle::hdf5 {

namespace {

struct TypeTraits {
  ElementType type;
  char const* name;
  std::int64_t bytes;
  hid_t stored;
};

/// HDF5 has no type of this name, but describes any format of binary floating-point numbers.
hid_t bfloat16_type() {
  hid_t const type = H5Tcopy(H5T_IEEE_F32LE);
  bool const described = type >= 0 && H5Tset_fields(type, 15, 7, 8, 0, 7) >= 0 && H5Tset_precision(type, 16) >= 0 &&
                         H5Tset_size(type, 2) >= 0 && H5Tset_ebias(type, 127) >= 0;
  return require(described ? type : hid_t{-1}, "bfloat16", "describe the type");
}

std::array<TypeTraits, 7> const& all_types() {
  LibraryLock const lock;  // the names of types are calls
  static std::array<TypeTraits, 7> const types{{{ElementType::int32, "int32", 4, H5T_STD_I32LE},
                                                {ElementType::int64, "int64", 8, H5T_STD_I64LE},
                                                {ElementType::float32, "float32", 4, H5T_IEEE_F32LE},
                                                {ElementType::float64, "float64", 8, H5T_IEEE_F64LE},
                                                {ElementType::uint8, "uint8", 1, H5T_STD_U8LE},
                                                {ElementType::uint16, "uint16", 2, H5T_STD_U16LE},
                                                {ElementType::bfloat16, "bfloat16", 2, bfloat16_type()}}};
  return types;
}

TypeTraits const& traits(ElementType type) {
  return all_types()[static_cast<std::size_t>(type)];
}

/// The product of the extents; throws DataError if one is negative or the product overflows.
std::int64_t element_count(Extents const& shape, std::string const& where) {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && count > std::numeric_limits<std::int64_t>::max() / 8 / extent)) {
      throw DataError(where + ": impossible extents " + to_string(shape));
    }
    count *= extent;
  }
  return count;
}

}  // namespace

char const* element_name(ElementType type) {
  return traits(type).name;
}

std::int64_t element_bytes(ElementType type) {
  return traits(type).bytes;
}

hid_t stored_type(ElementType type) {
  return traits(type).stored;
}

std::string to_string(Extents const& shape) {
  std::string text = "[";
  for (std::int64_t extent : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  }
  return text + "]";
}

ElementType element_type_of_stored(hid_t type, std::string const& where) {
  for (TypeTraits const& candidate : all_types()) {
    if (require(H5Tequal(type, candidate.stored), where, "compare its type") > 0) {
      return candidate.type;
    }
  }
  throw DataError(where +
                  ": its element type is none of little-endian int32, int64, float32, float64, bfloat16, uint8 and "
                  "uint16");
}

Extents shape_of_space(hid_t space, std::string const& where) {
  if (H5Sget_simple_extent_type(space) != H5S_SIMPLE) {
    throw DataError(where + ": is not an array of one or more dimensions");
  }
  int const rank = require(H5Sget_simple_extent_ndims(space), where, "read its rank");
  std::vector<hsize_t> dimensions(static_cast<std::size_t>(rank));
  require(H5Sget_simple_extent_dims(space, dimensions.data(), nullptr), where, "read its extents");
  Extents shape;
  for (hsize_t dimension : dimensions) {
    if (dimension > static_cast<hsize_t>(std::numeric_limits<std::int64_t>::max())) {
      throw DataError(where + ": an extent is larger than 2^63");
    }
    shape.push_back(static_cast<std::int64_t>(dimension));
  }
  element_count(shape, where);
  return shape;
}

Array::Array(std::shared_ptr<FileState> file, std::string name, Handle handle)
    : Object(std::move(file), std::move(name), std::move(handle)) {
  Handle type(require(H5Dget_type(handle_.id()), where(), "read its type"), H5Tclose);
  type_ = element_type_of_stored(type.id(), where());
  Handle space(require(H5Dget_space(handle_.id()), where(), "read its extents"), H5Sclose);
  shape_ = shape_of_space(space.id(), where());
}

std::int64_t Array::size() const {
  return element_count(shape_, where());
}

void Array::expect(ElementType type, Extents const& shape) const {
  bool fits = type == type_ && shape.size() == shape_.size();
  for (std::size_t axis = 0; fits && axis < shape.size(); ++axis) {
    fits = shape[axis] == any_extent || shape[axis] == shape_[axis];
  }
  if (!fits) {
    std::string extents;
    for (std::int64_t const extent : shape) {
      extents += (extents.empty() ? "" : ", ") + (extent == any_extent ? "any extent" : std::to_string(extent));
    }
    throw DataError(where() + ": holds " + element_name(type_) + " " + to_string(shape_) + ", expected " +
                    element_name(type) + " [" + extents + "]");
  }
}

void Array::require_type(ElementType type) const {
  if (type != type_) {
    throw DataError(where() + ": holds " + element_name(type_) + ", not " + element_name(type));
  }
}

std::int64_t Array::elements_of(std::int64_t begin, std::int64_t count) const {
  if (begin < 0 || count < 0 || begin > shape_[0] || count > shape_[0] - begin) {
    throw DataError("{}: {} rows from {} on lie outside its extents {}", where(), count, begin, to_string(shape_));
  }
  Extents rows = shape_;
  rows[0] = count;
  return element_count(rows, where());
}

void Array::transfer(std::int64_t begin, std::int64_t count, void* destination, void const* source) const {
  LibraryLock const lock;
  auto const elements = static_cast<hsize_t>(elements_of(begin, count));
  if (elements == 0) {
    return;
  }
  auto lengths = extents(shape_);
  lengths[0] = static_cast<hsize_t>(count);
  std::vector<hsize_t> offsets(shape_.size(), 0);
  offsets[0] = static_cast<hsize_t>(begin);
  Handle memory_space(require(H5Screate_simple(1, &elements, nullptr), where(), "describe memory"), H5Sclose);
  Handle file_space(require(H5Dget_space(handle_.id()), where(), "read its extents"), H5Sclose);
  require(H5Sselect_hyperslab(file_space.id(), H5S_SELECT_SET, offsets.data(), nullptr, lengths.data(), nullptr),
          where(), "select a hyperslab");
  hid_t const type = stored_type(type_);
  if (destination != nullptr) {
    require(H5Dread(handle_.id(), type, memory_space.id(), file_space.id(), H5P_DEFAULT, destination), where(),
            fmt::format("read {} rows from {} on", count, begin));
  } else {
    require(H5Dwrite(handle_.id(), type, memory_space.id(), file_space.id(), H5P_DEFAULT, source), where(),
            fmt::format("write {} rows from {} on", count, begin));
    check_written(*file_);
  }
}

void Array::write_rows(std::int64_t begin, std::span<std::uint8_t const> bytes) {
  std::int64_t const count = shape_[0] - begin;
  std::int64_t const expected = elements_of(begin, count) * element_bytes(type_);
  if (expected != std::ssize(bytes)) {
    throw DataError("{}: {} bytes in memory for {} in the file", where(), bytes.size(), expected);
  }
  transfer(begin, count, nullptr, bytes.data());
}

void Array::append_bytes(std::span<std::uint8_t const> bytes) {
  LibraryLock const lock;
  std::int64_t const begin = shape_[0];
  Extents grown = shape_;
  grown[0] = 1;
  std::int64_t const row = element_count(grown, where()) * element_bytes(type_);
  if (row == 0 || std::ssize(bytes) % row != 0) {
    throw DataError("{}: {} bytes are not a number of rows of {}", where(), bytes.size(), row);
  }
  if (!bytes.empty()) {
    grown[0] = begin + std::ssize(bytes) / row;
    require(H5Dset_extent(handle_.id(), extents(grown).data()), where(), "extend to " + to_string(grown));
    shape_ = grown;
  }
  write_rows(begin, bytes);
}

void Array::read_bytes(std::int64_t begin, std::int64_t count, std::vector<std::uint8_t>& bytes) const {
  bytes.resize(static_cast<std::size_t>(elements_of(begin, count) * element_bytes(type_)));
  transfer(begin, count, bytes.data(), nullptr);
}

std::int64_t Array::file_offset() const {
  LibraryLock const lock;
  haddr_t const offset = H5Dget_offset(handle_.id());
  if (offset == HADDR_UNDEF) {
    H5Eclear2(H5E_DEFAULT);
    return -1;
  }
  return static_cast<std::int64_t>(offset);
}

}  // namespace heddle::hdf5
