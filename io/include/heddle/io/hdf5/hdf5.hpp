#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Move-only wrappers of HDF5: every return code is checked and becomes a DataError that names file and object; a file
/// that cannot be created or a write that fails is an Error. The library is used serially (one process per file);
/// `hid_t` is an int64_t here so that only the sources include hdf5.h.
namespace heddle::hdf5 {

/// The element types of arrays, always stored little-endian. Nothing else is read or written.
enum class ElementType { int32, int64, float32, float64, uint8, uint16 };

char const* element_name(ElementType type);
std::int64_t element_bytes(ElementType type);

template <typename T>
concept Element = std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t> || std::same_as<T, float> ||
    std::same_as<T, double> || std::same_as<T, std::uint8_t> || std::same_as<T, std::uint16_t>;

template <Element T>
constexpr ElementType element_type_of() {
  if constexpr (std::same_as<T, std::int32_t>) {
    return ElementType::int32;
  } else if constexpr (std::same_as<T, std::int64_t>) {
    return ElementType::int64;
  } else if constexpr (std::same_as<T, float>) {
    return ElementType::float32;
  } else if constexpr (std::same_as<T, double>) {
    return ElementType::float64;
  } else if constexpr (std::same_as<T, std::uint16_t>) {
    return ElementType::uint16;
  } else {
    return ElementType::uint8;
  }
}

/// Extents, slowest axis first (row major).
using Extents = std::vector<std::int64_t>;

/// The mark for "any extent" in Array::expect.
inline constexpr std::int64_t any_extent = -1;

/// The shape in the form of messages: "[3, 4]".
std::string to_string(Extents const& shape);

/// The bytes of an HDF5 file that is not read or written by path: it is in memory, or is verified while it is read.
class ByteStore {
 public:
  ByteStore() = default;
  ByteStore(ByteStore const&) = delete;
  ByteStore& operator=(ByteStore const&) = delete;
  virtual ~ByteStore() = default;

  virtual std::int64_t size() const = 0;
  /// Reads bytes; those beyond the end are zero.
  virtual void read(std::int64_t offset, std::span<std::uint8_t> bytes) = 0;
  virtual void write(std::int64_t offset, std::span<std::uint8_t const> bytes) = 0;
  virtual void resize(std::int64_t size) = 0;
};

/// A file in memory, which takes memory only for pages that were written; other bytes are zero.
class FileImage final : public ByteStore {
 public:
  FileImage() = default;
  /// A file with this content.
  explicit FileImage(std::span<std::uint8_t const> bytes) { write(0, bytes); }

  std::int64_t size() const override { return size_; }
  void read(std::int64_t offset, std::span<std::uint8_t> bytes) override;
  void write(std::int64_t offset, std::span<std::uint8_t const> bytes) override;
  void resize(std::int64_t size) override { size_ = size; }

 private:
  std::map<std::int64_t, std::vector<std::uint8_t>> pages_;  ///< by number
  std::int64_t size_ = 0;
};

/// The state that all handles of one file share.
struct FileState {
  std::string path;
  bool writable = false;
  bool close_failed = false;  ///< a handle's destructor could not write its data; File::close reports it
  int write_error = 0;        ///< errno of the first write that failed; see write_driver.cpp
  int open_error = 0;
  std::shared_ptr<ByteStore> bytes = nullptr;  ///< null: the bytes are in the file of that path
};

/// Owns one HDF5 identifier. Its destructor never throws; a failed close is recorded in the file's state.
class Handle {
 public:
  using Closer = int (*)(std::int64_t);

  Handle() = default;
  Handle(std::int64_t id, Closer closer, std::shared_ptr<FileState> file = nullptr)
      : id_(id), closer_(closer), file_(std::move(file)) {}
  Handle(Handle const&) = delete;
  Handle& operator=(Handle const&) = delete;
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, -1)), closer_(other.closer_), file_(std::move(other.file_)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      close();
      id_ = std::exchange(other.id_, -1);
      closer_ = other.closer_;
      file_ = std::move(other.file_);
    }
    return *this;
  }
  ~Handle() { close(); }

  std::int64_t id() const { return id_; }
  /// Returns false if the library reported an error.
  bool close() noexcept;

 private:
  std::int64_t id_ = -1;
  Closer closer_ = nullptr;
  std::shared_ptr<FileState> file_;
};

/// The common part of files, groups and arrays: a place in a file, and attributes.
class Object {
 public:
  /// The place for messages: "data/train.h5: /source/tokens".
  std::string where() const;
  std::string const& name() const { return name_; }

  void set_string_attribute(std::string const& attribute, std::string_view value);
  void set_integer_attribute(std::string const& attribute, std::int64_t value);
  void set_unsigned_attribute(std::string const& attribute, std::uint64_t value);
  void set_real_attribute(std::string const& attribute, double value);

  bool has_attribute(std::string const& attribute) const;
  /// Throws DataError if the attribute is missing, is no scalar or has another type.
  std::string string_attribute(std::string const& attribute) const;
  std::int64_t integer_attribute(std::string const& attribute) const;
  std::uint64_t unsigned_attribute(std::string const& attribute) const;
  double real_attribute(std::string const& attribute) const;

 protected:
  Object(std::shared_ptr<FileState> file, std::string name, Handle handle)
      : file_(std::move(file)), name_(std::move(name)), handle_(std::move(handle)) {}

  std::shared_ptr<FileState> file_;
  std::string name_;
  Handle handle_;

 private:
  void write_attribute(std::string const& attribute, std::int64_t type, void const* value);
  void read_attribute(std::string const& attribute, std::int64_t type, char const* type_name, void* value) const;
};

/// An N-dimensional array of one element type.
class Array : public Object {
 public:
  ElementType type() const { return type_; }
  Extents const& shape() const { return shape_; }
  /// The number of elements.
  std::int64_t size() const;

  /// Throws DataError unless the dataset holds `type` and has this shape; an extent may be `any_extent`.
  void expect(ElementType type, Extents const& shape) const;

  /// Reads the whole array, row major. Throws DataError if it does not hold T.
  template <Element T>
  std::vector<T> read() const {
    return read<T>(Extents(shape_.size(), 0), shape_);
  }
  /// The hyperslab of `count` elements from `start` along each axis, row major.
  template <Element T>
  std::vector<T> read(Extents const& start, Extents const& count) const {
    std::vector<T> values(static_cast<std::size_t>(check_slab(element_type_of<T>(), start, count)));
    transfer(start, count, values.data(), nullptr);
    return values;
  }

  template <Element T>
  void write(std::span<T const> values) {
    write<T>(Extents(shape_.size(), 0), shape_, values);
  }
  template <Element T>
  void write(Extents const& start, Extents const& count, std::span<T const> values) {
    check_length(check_slab(element_type_of<T>(), start, count), values.size());
    transfer(start, count, nullptr, values.data());
  }
  /// Extends the first axis by whole rows; only for datasets made with create_extendible_array.
  template <Element T>
  void append(std::span<T const> rows) {
    auto [start, count] = extend(element_type_of<T>(), static_cast<std::int64_t>(rows.size()));
    transfer(start, count, nullptr, rows.data());
  }

  /// The offset of a contiguous array's bytes in the file, once written; -1 if there are none (no elements).
  std::int64_t file_offset() const;

 private:
  friend class Group;
  Array(std::shared_ptr<FileState> file, std::string name, Handle handle);

  std::int64_t check_slab(ElementType type, Extents const& start, Extents const& count) const;
  void check_length(std::int64_t expected, std::size_t given) const;
  void transfer(Extents const& start, Extents const& count, void* destination, void const* source) const;
  std::pair<Extents, Extents> extend(ElementType type, std::int64_t elements);

  ElementType type_{};
  Extents shape_;
};

class Group : public Object {
 public:
  /// Names may be paths ("parameters/encoder.0.weight/value"); only create_* needs the parent group to exist.
  bool contains(std::string const& name) const;
  /// The links of this group, in the order of their names.
  std::vector<std::string> names() const;

  Group create_group(std::string const& name);
  Group group(std::string const& name) const;

  /// Makes a contiguous array of fixed shape.
  template <Element T>
  Array create_array(std::string const& name, Extents const& shape) {
    return create_array(name, element_type_of<T>(), shape, {});
  }
  /// As above, and writes it.
  template <Element T>
  void write_array(std::string const& name, Extents const& shape, std::span<T const> values) {
    create_array<T>(name, shape).write(values);
  }
  /// Chunked; starts with no rows and grows along the first axis by Array::append. `chunk[0]` is a chunk's number of
  /// rows, `chunk[1..]` are the extents of a row (a 1-D dataset of tokens: `{65536}`).
  template <Element T>
  Array create_extendible_array(std::string const& name, Extents const& chunk) {
    Extents shape = chunk;
    shape.at(0) = 0;
    return create_array(name, element_type_of<T>(), shape, chunk);
  }
  /// Makes a contiguous array of fixed shape that has its place in the file but is not written: others may write its
  /// bytes at its file_offset.
  template <Element T>
  Array reserve_array(std::string const& name, Extents const& shape) {
    return create_array(name, element_type_of<T>(), shape, {}, true);
  }
  Array array(std::string const& name) const;
  /// Writes text as a one-dimensional uint8 dataset, or reads it: at most `most` bytes, more are a DataError.
  std::string read_bytes(std::string const& name, std::int64_t max = std::int64_t{64} << 20) const;
  void write_bytes(std::string const& name, std::string_view bytes);

 protected:
  using Object::Object;

 private:
  Array create_array(std::string const& name, ElementType type, Extents const& shape, Extents const& chunk,
                     bool reserve = false);
  std::string child(std::string const& name) const;
};

/// An HDF5 file, which is also its root group.
class File : public Group {
 public:
  /// Creates a new file, which must not exist. Written content is safe only after close() returned (and fsync by
  /// path).
  static File create(std::filesystem::path const& path);

  /// Creates a file in `bytes`, which are empty. Arrays of at least `alignment` bytes begin at its multiples; about
  /// `metadata_bytes` of everything else lie together.
  static File create(std::shared_ptr<ByteStore> bytes, std::string const& name, std::int64_t alignment = 1,
                     std::int64_t metadata_bytes = 2048);

  /// Opens read-only. Checks the whole file against the allow-list first (see check_allow_list).
  static File open(std::filesystem::path const& path);
  /// The same for a file whose bytes are elsewhere; `name` is for messages.
  static File open(std::shared_ptr<ByteStore> bytes, std::string const& name);

  /// Writes everything out. Throws Error if that fails, DataError if objects of this file are still open.
  void close();

 private:
  File(std::shared_ptr<FileState> state, Handle file, Handle root)
      : Group(std::move(state), "/", std::move(root)), handle_of_file_(std::move(file)) {}
  static File create(std::shared_ptr<FileState> state, Handle const& access);
  static File open(std::shared_ptr<FileState> state, std::int64_t id, std::int64_t file_bytes);

  Handle handle_of_file_;
};

}  // namespace heddle::hdf5
