#include <fmt/format.h>

#include <heddle/io/hdf5/hdf5.hpp>
#include <limits>

#include "internal.hpp"

namespace heddle::hdf5 {

namespace {

constexpr ElementType all_types[] = {ElementType::int32,   ElementType::int64, ElementType::float32,
                                     ElementType::float64, ElementType::uint8, ElementType::uint16};

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
  switch (type) {
    case ElementType::int32:
      return "int32";
    case ElementType::int64:
      return "int64";
    case ElementType::float32:
      return "float32";
    case ElementType::float64:
      return "float64";
    case ElementType::uint8:
      return "uint8";
    case ElementType::uint16:
      return "uint16";
  }
  throw DataError("no such element type");
}

std::int64_t element_bytes(ElementType type) {
  switch (type) {
    case ElementType::uint8:
      return 1;
    case ElementType::uint16:
      return 2;
    case ElementType::int32:
    case ElementType::float32:
      return 4;
    case ElementType::int64:
    case ElementType::float64:
      return 8;
  }
  throw DataError("no such element type");
}

std::string to_string(Extents const& shape) {
  std::string text = "[";
  for (std::int64_t extent : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  }
  return text + "]";
}

hid_t stored_type(ElementType type) {
  switch (type) {
    case ElementType::int32:
      return H5T_STD_I32LE;
    case ElementType::int64:
      return H5T_STD_I64LE;
    case ElementType::float32:
      return H5T_IEEE_F32LE;
    case ElementType::float64:
      return H5T_IEEE_F64LE;
    case ElementType::uint8:
      return H5T_STD_U8LE;
    case ElementType::uint16:
      return H5T_STD_U16LE;
  }
  throw DataError("no such element type");
}

ElementType element_type_of_stored(hid_t type, std::string const& where) {
  for (ElementType candidate : all_types) {
    if (require(H5Tequal(type, stored_type(candidate)), where, "compare its type") > 0) {
      return candidate;
    }
  }
  throw DataError(where +
                  ": its element type is none of little-endian int32, int64, float32, float64, uint8 and uint16");
}

Extents shape_of_space(hid_t space, std::string const& where) {
  if (H5Sget_simple_extent_type(space) != H5S_SIMPLE) {
    throw DataError(where + ": is no array of one or more dimensions");
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

std::int64_t Array::check_slab(ElementType type, Extents const& start, Extents const& count) const {
  if (type != type_) {
    throw DataError(where() + ": holds " + element_name(type_) + ", not " + element_name(type));
  }
  bool inside = start.size() == shape_.size() && count.size() == shape_.size();
  for (std::size_t axis = 0; inside && axis < shape_.size(); ++axis) {
    inside = start[axis] >= 0 && count[axis] >= 0 && start[axis] <= shape_[axis] &&
             count[axis] <= shape_[axis] - start[axis];
  }
  if (!inside) {
    throw DataError(where() + ": start " + to_string(start) + " with count " + to_string(count) +
                    " lies outside its extents " + to_string(shape_));
  }
  return element_count(count, where());
}

void Array::check_length(std::int64_t expected, std::size_t given) const {
  if (static_cast<std::size_t>(expected) != given) {
    throw DataError(where() + ": " + std::to_string(given) + " elements in memory for " + std::to_string(expected) +
                    " in the file");
  }
}

void Array::transfer(Extents const& start, Extents const& count, void* destination, void const* source) const {
  std::int64_t const elements = element_count(count, where());
  if (elements == 0) {
    return;
  }
  auto const offsets = extents(start);
  auto const lengths = extents(count);
  auto const flat = static_cast<hsize_t>(elements);
  Handle memory_space(require(H5Screate_simple(1, &flat, nullptr), where(), "describe memory"), H5Sclose);
  Handle file_space(require(H5Dget_space(handle_.id()), where(), "read its extents"), H5Sclose);
  require(H5Sselect_hyperslab(file_space.id(), H5S_SELECT_SET, offsets.data(), nullptr, lengths.data(), nullptr),
          where(), "select a hyperslab");
  hid_t const type = stored_type(type_);
  if (destination != nullptr) {
    require(H5Dread(handle_.id(), type, memory_space.id(), file_space.id(), H5P_DEFAULT, destination), where(),
            fmt::format("read {} from {}", to_string(count), to_string(start)));
  } else {
    require(H5Dwrite(handle_.id(), type, memory_space.id(), file_space.id(), H5P_DEFAULT, source), where(),
            fmt::format("write {} at {}", to_string(count), to_string(start)));
    check_written(*file_, where());
  }
}

std::pair<Extents, Extents> Array::extend(ElementType type, std::int64_t elements) {
  Extents start(shape_.size(), 0);
  Extents count = shape_;
  count[0] = 1;
  std::int64_t const row = element_count(count, where());
  if (row == 0 || elements % row != 0) {
    throw DataError(where() + ": " + std::to_string(elements) + " elements appended are no whole number of rows of " +
                    std::to_string(row));
  }
  start[0] = shape_[0];
  count[0] = elements / row;
  if (elements > 0) {
    Extents grown = shape_;
    grown[0] += count[0];
    require(H5Dset_extent(handle_.id(), extents(grown).data()), where(), "extend to " + to_string(grown));
    shape_ = grown;
  }
  check_slab(type, start, count);
  return {start, count};
}

std::int64_t Array::file_offset() const {
  haddr_t const offset = H5Dget_offset(handle_.id());
  if (offset == HADDR_UNDEF) {
    H5Eclear2(H5E_DEFAULT);
    return -1;
  }
  return static_cast<std::int64_t>(offset);
}

}  // namespace heddle::hdf5
