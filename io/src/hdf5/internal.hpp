#pragma once

#include <hdf5.h>

#include <heddle/core/base/error.hpp>
#include <heddle/io/hdf5/hdf5.hpp>
#include <string>

/// Shared by the HDF5 sources of this room only.
namespace heddle::hdf5 {

/// The innermost message on HDF5's error stack (it contains errno's text); clears the stack. "" if there is none.
std::string last_error();

[[noreturn]] void fail(std::string const& where, std::string const& what);

template <typename Id>
Id require(Id id, std::string const& where, std::string const& what) {
  if (id < 0) {
    fail(where, what);
  }
  return id;
}

/// The library's own identifier of the stored (little-endian) type; not to be closed.
hid_t stored_type(ElementType type);

/// Returns which of these types `type` is. Throws DataError naming `where` for any other.
ElementType element_type_of_stored(hid_t type, std::string const& where);

Extents shape_of_space(hid_t space, std::string const& where);

inline std::vector<hsize_t> extents(Extents const& shape) {
  return {shape.begin(), shape.end()};
}

/// Makes a file created with these access properties record failing writes in `state`, which must outlive it, and use
/// `state.bytes` if there are any.
void use_write_driver(hid_t access, FileState& state);

/// Throws Error naming `where` and errno's text if a write to the file has failed.
void check_written(FileState const& state, std::string const& where);

/// Throws DataError for a file with anything but groups and plainly stored datasets: see allow_list.cpp.
void check_allow_list(hid_t file, std::string const& path, std::int64_t file_bytes);

}  // namespace heddle::hdf5
