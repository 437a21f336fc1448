#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>

#include "internal.hpp"
#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>
#endif

// The file driver under files that are being written. HDF5 cannot handle a failed write (a full disk, a quota): it
// cannot close the file any more, and the process crashes when the library shuts down at exit. So this driver reports
// success for every write and keeps the first errno in the FileState, where Array::write and File::close check it.
// Otherwise it behaves as HDF5's own POSIX driver. It also serves files that are not in a file system, but in a
// ByteStore.

namespace heddle::hdf5 {

namespace {

struct DriverInfo {
  FileState* state;
};

/// HDF5's view of an open file must be first: the library and this driver pass pointers to it.
struct WrittenFile {
  H5FD_t base;
  FileState* state;
  int descriptor;  ///< -1: the bytes are in state->bytes
  haddr_t allocated_end;
  haddr_t file_end;
};

WrittenFile& written(H5FD_t* file) {
  return *reinterpret_cast<WrittenFile*>(file);
}
WrittenFile const& written(H5FD_t const* file) {
  return *reinterpret_cast<WrittenFile const*>(file);
}

void note_error(WrittenFile const& file) {
  if (file.state->write_error == 0) {
    file.state->write_error = errno;
  }
}

/// Calls `work` with the file's ByteStore. False if it throws: no exception may pass through HDF5.
template <class Work>
bool with_bytes(WrittenFile const& file, Work const& work) {
  try {
    work(*file.state->bytes);
    return true;
  } catch (...) {
    return false;
  }
}

H5FD_t* new_file(FileState* state, int descriptor, std::int64_t bytes) {
  auto* file = new (std::nothrow) WrittenFile{{}, state, descriptor, 0, static_cast<haddr_t>(bytes)};
  if (file == nullptr && descriptor >= 0) {
    ::close(descriptor);
  }
  return file == nullptr ? nullptr : &file->base;
}

H5FD_t* open_file(char const* name, unsigned flags, hid_t access, haddr_t) {
  auto const* info = static_cast<DriverInfo const*>(H5Pget_driver_info(access));
  if (info != nullptr && info->state->bytes) {
    return new_file(info->state, -1, info->state->bytes->size());
  }
  int const mode = ((flags & H5F_ACC_RDWR) != 0 ? O_RDWR : O_RDONLY) | ((flags & H5F_ACC_TRUNC) != 0 ? O_TRUNC : 0) |
                   ((flags & H5F_ACC_CREAT) != 0 ? O_CREAT : 0) | ((flags & H5F_ACC_EXCL) != 0 ? O_EXCL : 0);
  if (info == nullptr) {
    return nullptr;
  }
  int const descriptor = ::open(name, mode | O_CLOEXEC, 0666);
  struct stat status {};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) {
    info->state->open_error = errno;
    return nullptr;
  }
  return new_file(info->state, descriptor, status.st_size);
}

herr_t close_file(H5FD_t* base) {
  WrittenFile* const file = &written(base);
  if (file->descriptor >= 0 && ::close(file->descriptor) != 0) {
    note_error(*file);  // network file systems may say only now that the disk was full
  }
  delete file;
  return 0;
}

herr_t query(H5FD_t const*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t get_allocated_end(H5FD_t const* file, H5FD_mem_t) {
  return written(file).allocated_end;
}

herr_t set_allocated_end(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  written(file).allocated_end = address;
  return 0;
}

haddr_t get_file_end(H5FD_t const* file, H5FD_mem_t) {
  return written(file).file_end;
}

herr_t read_bytes(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, std::size_t size, void* buffer) {
  WrittenFile const& file = written(base);
  if (file.descriptor < 0) {
    std::span const bytes(static_cast<std::uint8_t*>(buffer), size);
    return with_bytes(file, [&](ByteStore& store) { store.read(static_cast<std::int64_t>(address), bytes); }) ? 0 : -1;
  }
  auto* next = static_cast<char*>(buffer);
  while (size > 0) {
    ssize_t const got = ::pread(file.descriptor, next, size, static_cast<off_t>(address));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return -1;
    }
    if (got == 0) {  // beyond the end: zeros, as in HDF5's own driver
      std::memset(next, 0, size);
      return 0;
    }
    next += got;
    address += static_cast<haddr_t>(got);
    size -= static_cast<std::size_t>(got);
  }
  return 0;
}

herr_t write_bytes(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, std::size_t size, void const* buffer) {
  WrittenFile& file = written(base);
  auto const* next = static_cast<char const*>(buffer);
  file.file_end = std::max(file.file_end, address + size);
  if (file.descriptor < 0) {
    std::span const bytes(static_cast<std::uint8_t const*>(buffer), size);
    return with_bytes(file, [&](ByteStore& store) { store.write(static_cast<std::int64_t>(address), bytes); }) ? 0 : -1;
  }
  while (size > 0 && file.state->write_error == 0) {
    ssize_t const done = ::pwrite(file.descriptor, next, size, static_cast<off_t>(address));
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      errno = done == 0 ? ENOSPC : errno;
      note_error(file);
      break;
    }
    next += done;
    address += static_cast<haddr_t>(done);
    size -= static_cast<std::size_t>(done);
  }
  return 0;
}

herr_t truncate_file(H5FD_t* base, hid_t, hbool_t) {
  WrittenFile& file = written(base);
  if (file.descriptor < 0) {
    if (!with_bytes(file, [&](ByteStore& store) { store.resize(static_cast<std::int64_t>(file.allocated_end)); })) {
      return -1;
    }
    file.file_end = file.allocated_end;
  } else if (file.file_end != file.allocated_end) {
    if (file.state->write_error == 0 && ::ftruncate(file.descriptor, static_cast<off_t>(file.allocated_end)) != 0) {
      note_error(file);
    }
    file.file_end = file.allocated_end;
  }
  return 0;
}

H5FD_class_t driver_class() {
  H5FD_class_t driver{};
#if H5_VERSION_GE(1, 14, 0)
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(512);  // from the range that HDF5 reserves for other libraries
#endif
  driver.name = "heddle_write";
  driver.maxaddr = (haddr_t{1} << 63) - 1;
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.fapl_size = sizeof(DriverInfo);
  driver.open = open_file;
  driver.close = close_file;
  driver.query = query;
  driver.get_eoa = get_allocated_end;
  driver.set_eoa = set_allocated_end;
  driver.get_eof = get_file_end;
  driver.read = read_bytes;
  driver.write = write_bytes;
  driver.truncate = truncate_file;
  constexpr H5FD_mem_t free_lists[] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(free_lists), std::end(free_lists), std::begin(driver.fl_map));
  return driver;
}

}  // namespace

void use_write_driver(hid_t access, FileState& state) {
  static H5FD_class_t const driver = driver_class();
  static hid_t const driver_id = require(H5FDregister(&driver), state.path, "register the file driver");
  DriverInfo const info{&state};
  require(H5Pset_driver(access, driver_id, &info), state.path, "choose the file driver");
}

void check_written(FileState const& state, std::string const& where) {
  if (state.write_error != 0) {
    throw Error(where + ": could not be written: " + std::strerror(state.write_error));
  }
}

}  // namespace heddle::hdf5
