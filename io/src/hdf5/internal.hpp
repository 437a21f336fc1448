#pragma once

#include <hdf5.h>

#include <heddle/io/hdf5/hdf5.hpp>
#include <mutex>
#include <string>
#include <vector>

/// Shared by the HDF5 sources only.
namespace heddle::hdf5 {

/// One thread's turn at HDF5, which is not thread-safe, and whose error stack belongs to the process. Every function of
/// the public header that calls the library takes it first; the functions below are called with it. A thread may take
/// it again.
class LibraryLock {
 private:
  static std::recursive_mutex& mutex();
  std::lock_guard<std::recursive_mutex> held_{mutex()};
};

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

/// A file of the disk. `flags` are those of open(). Throws Error if it cannot be created, DataError if it cannot be
/// opened.
std::shared_ptr<ByteStore> disk_file(std::filesystem::path const& path, int flags);

/// More objects in a file are refused.
inline constexpr std::int64_t max_objects = 1'000'000;

struct Link {
  std::string name;
  H5L_type_t type;
};

/// The links of a group, in the order of their names. Throws DataError if there are more than max_objects.
std::vector<Link> links_of(hid_t group, std::string const& where);

/// Makes HDF5 read and write the bytes of `state`, which must outlive the file, and record failing writes there.
void use_byte_driver(hid_t access, FileState& state);

/// Throws the first error of a write to the file.
void check_written(FileState const& state);

/// Throws DataError for a file with anything other than groups and plainly stored datasets: see allow_list.cpp.
void check_allow_list(hid_t file, std::string const& path, std::int64_t file_bytes);

}  // namespace heddle::hdf5
