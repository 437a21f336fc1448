#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <new>
#include <span>

#include "files/file_descriptor.hpp"
#include "internal.hpp"
#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>
#endif

// The bytes of HDF5 files, and the file driver through which the library uses them. HDF5 cannot handle a failed write
// (a full disk, a quota): it cannot close the file any more, and the process crashes when the library shuts down at
// exit. So the driver reports success for every write and keeps the first error in the FileState, where Array::write
// and File::close check it. Otherwise it behaves as HDF5's own POSIX driver without file locks: Heddle never changes a
// file that it may also read.

namespace heddle::hdf5 {

namespace {

constexpr std::int64_t page_bytes = 4096;

/// Calls work(page, offset in it, index of the first byte, count) for the part of the bytes that lies in each page.
template <class Work>
void for_each_page(std::int64_t offset, std::size_t bytes, Work const& work) {
  for (std::size_t done = 0; done < bytes;) {
    std::int64_t const at = offset + static_cast<std::int64_t>(done);
    auto const within = static_cast<std::size_t>(at % page_bytes);
    std::size_t const count = std::min(static_cast<std::size_t>(page_bytes) - within, bytes - done);
    work(at / page_bytes, within, done, count);
    done += count;
  }
}

class DiskFile final : public ByteStore {
 public:
  DiskFile(std::filesystem::path path, int flags) : path_(std::move(path)), file_(path_, flags) {
    if (!file_.is_open()) {
      if ((flags & O_CREAT) == 0) {
        throw DataError(open_problem(path_, errno));
      }
      fail_with_errno(path_, "create the file");
    }
  }

  std::int64_t size() const override {
    struct stat status {};
    return ::fstat(file_.get(), &status) == 0 ? status.st_size : 0;
  }
  void read(std::int64_t offset, std::span<std::uint8_t> bytes) override {
    auto const beyond_the_end = bytes.subspan(read_at(file_, path_, offset, bytes));
    std::ranges::fill(beyond_the_end, std::uint8_t{0});
  }
  void write(std::int64_t offset, std::span<std::uint8_t const> bytes) override {
    write_at(file_, path_, offset, bytes);
  }
  void resize(std::int64_t size) override {
    if (::ftruncate(file_.get(), static_cast<off_t>(size)) != 0) {
      fail_with_errno(path_, "resize the file");
    }
  }
  void close() override {
    if (!file_.close()) {  // network file systems may say only now that the disk was full
      fail_with_errno(path_, "write the file");
    }
  }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

struct DriverInfo {
  FileState* state;
};

/// HDF5's view of an open file must be first: the library and this driver pass pointers to it.
struct OpenFile {
  H5FD_t base;
  FileState* state;
  haddr_t allocated_end;
  haddr_t file_end;
};

OpenFile& opened(H5FD_t* file) {
  return *reinterpret_cast<OpenFile*>(file);
}
OpenFile const& opened(H5FD_t const* file) {
  return *reinterpret_cast<OpenFile const*>(file);
}

/// Runs `action` unless an earlier one failed, and keeps its error: no exception may pass through HDF5.
template <class Action>
herr_t attempt(FileState& state, Action const& action) {
  if (!state.write_error) {
    try {
      action(*state.bytes);
    } catch (...) {
      state.write_error = std::current_exception();
    }
  }
  return 0;
}

H5FD_t* open_file(char const*, unsigned, hid_t access, haddr_t) {
  auto const* info = static_cast<DriverInfo const*>(H5Pget_driver_info(access));
  if (info == nullptr) {
    return nullptr;
  }
  auto const end = static_cast<haddr_t>(info->state->bytes->size());
  auto* file = new (std::nothrow) OpenFile{{}, info->state, 0, end};
  return file == nullptr ? nullptr : &file->base;
}

herr_t close_file(H5FD_t* base) {
  OpenFile* const file = &opened(base);
  attempt(*file->state, [](ByteStore& bytes) { bytes.close(); });
  delete file;
  return 0;
}

herr_t query(H5FD_t const*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t get_allocated_end(H5FD_t const* file, H5FD_mem_t) {
  return opened(file).allocated_end;
}

herr_t set_allocated_end(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  opened(file).allocated_end = address;
  return 0;
}

haddr_t get_file_end(H5FD_t const* file, H5FD_mem_t) {
  return opened(file).file_end;
}

herr_t read_bytes(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, std::size_t size, void* buffer) {
  try {
    opened(base).state->bytes->read(static_cast<std::int64_t>(address), {static_cast<std::uint8_t*>(buffer), size});
    return 0;
  } catch (std::exception const& error) {
    H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_IO, H5E_READERROR, "%s", error.what());
    return -1;
  }
}

herr_t write_bytes(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, std::size_t size, void const* buffer) {
  OpenFile& file = opened(base);
  file.file_end = std::max(file.file_end, address + size);
  return attempt(*file.state, [&](ByteStore& bytes) {
    bytes.write(static_cast<std::int64_t>(address), {static_cast<std::uint8_t const*>(buffer), size});
  });
}

herr_t truncate_file(H5FD_t* base, hid_t, hbool_t) {
  OpenFile& file = opened(base);
  if (file.file_end != file.allocated_end) {
    attempt(*file.state, [&](ByteStore& bytes) { bytes.resize(static_cast<std::int64_t>(file.allocated_end)); });
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
  driver.name = "heddle_bytes";
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

void FileImage::read(std::int64_t offset, std::span<std::uint8_t> bytes) {
  for_each_page(offset, bytes.size(), [&](std::int64_t page, std::size_t within, std::size_t first, std::size_t count) {
    auto const found = pages_.find(page);
    auto const to = bytes.begin() + static_cast<std::ptrdiff_t>(first);
    if (found == pages_.end()) {
      std::fill_n(to, count, std::uint8_t{0});
    } else {
      std::copy_n(found->second.begin() + static_cast<std::ptrdiff_t>(within), count, to);
    }
  });
}

void FileImage::write(std::int64_t offset, std::span<std::uint8_t const> bytes) {
  for_each_page(offset, bytes.size(), [&](std::int64_t page, std::size_t within, std::size_t first, std::size_t count) {
    auto& content = pages_[page];
    content.resize(static_cast<std::size_t>(page_bytes));
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(first), count,
                content.begin() + static_cast<std::ptrdiff_t>(within));
  });
  size_ = std::max(size_, offset + static_cast<std::int64_t>(bytes.size()));
}

std::shared_ptr<ByteStore> disk_file(std::filesystem::path const& path, int flags) {
  return std::make_shared<DiskFile>(path, flags);
}

void use_byte_driver(hid_t access, FileState& state) {
  static H5FD_class_t const driver = driver_class();
  static hid_t const driver_id = require(H5FDregister(&driver), state.path, "register the file driver");
  DriverInfo const info{&state};
  require(H5Pset_driver(access, driver_id, &info), state.path, "choose the file driver");
}

void check_written(FileState const& state) {
  if (state.write_error) {
    std::rethrow_exception(state.write_error);
  }
}

}  // namespace heddle::hdf5
