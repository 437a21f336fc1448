#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Move-only wrappers of HDF5: every return code is checked and becomes a DataError that names file and object; a file
/// that cannot be created or a write that fails is an Error. The library is used serially: one process per file, and a
/// lock lets one thread of a process call it at a time. The objects of one file are one thread's at a time. `hid_t` is
/// an int64_t here so that only the sources include hdf5.h.
namespace heddle::hdf5 {

/// The element types of arrays, always stored little-endian. Nothing else is read or written.
enum class ElementType { int32, int64, float32, float64, uint8, uint16, bfloat16 };

char const* element_name(ElementType type);
std::int64_t element_bytes(ElementType type);

template <typename T>
concept Element = std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t> || std::same_as<T, float> ||
    std::same_as<T, double> || std::same_as<T, std::uint8_t> || std::same_as<T, std::uint16_t>;

template <Element T>
constexpr ElementType element_type_of() {
  if constexpr (std::floating_point<T>) {
    return sizeof(T) == 4 ? ElementType::float32 : ElementType::float64;
  } else if constexpr (std::signed_integral<T>) {
    return sizeof(T) == 4 ? ElementType::int32 : ElementType::int64;
  } else {
    return sizeof(T) == 1 ? ElementType::uint8 : ElementType::uint16;
  }
}

/// Extents, slowest axis first (row major).
using Extents = std::vector<std::int64_t>;

/// The mark for "any extent" in Array::expect.
inline constexpr std::int64_t any_extent = -1;

/// The shape in the form of messages: "[3, 4]".
std::string to_string(Extents const& shape);

/// The bytes of an HDF5 file: on the disk, in memory, or verified while they are read.
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
  /// Throws what was wrong with earlier writes and shows only now.
  virtual void close() {}
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
  std::shared_ptr<ByteStore> bytes;
  bool writable = false;
  bool close_failed = false;                 ///< a handle's destructor could not write its data; File::close reports it
  std::exception_ptr write_error = nullptr;  ///< error of the first write that failed; see byte_stores.cpp
  std::string copy{};                        ///< the file that is read in the place of `path`; "": that itself
};

/// Owns one HDF5 identifier. Its destructor never throws; a failed close is recorded in the file's state.
class Handle {
 public:
  using Closer = int (*)(std::int64_t);

  Handle() = default;
  Handle(std::int64_t id, Closer closer, std::shared_ptr<FileState> file = nullptr)
      : id_(id), closer_(closer), file_(std::move(file)) {}
  Handle(Handle&& other) noexcept { *this = std::move(other); }
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(closer_, other.closer_);
    std::swap(file_, other.file_);
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
  /// The file's path or name.
  std::string const& path() const { return file_->path; }
  /// The copy that is read in place of that file; "" for none.
  std::string const& copy() const { return file_->copy; }
  /// Its place in the file: "/source/tokens".
  std::string const& name() const { return name_; }

  void set_attribute(std::string const& attribute, std::string_view value);
  /// `Number` is std::int64_t, std::uint64_t or double.
  template <class Number>
  void set_attribute(std::string const& attribute, Number value) requires std::is_arithmetic_v<Number>;

  bool has_attribute(std::string const& attribute) const;
  /// The value, a std::string or a number of one of the types above. Throws DataError if the attribute is missing, is
  /// not a scalar or has another type.
  template <class T>
  T attribute(std::string const& attribute) const;

 protected:
  Object(std::shared_ptr<FileState> file, std::string name, Handle handle)
      : file_(std::move(file)), name_(std::move(name)), handle_(std::move(handle)) {}

  std::shared_ptr<FileState> file_;
  std::string name_;
  Handle handle_;

 private:
  void write_attribute(std::string const& attribute, std::int64_t type, void const* value);
  void read_attribute(std::string const& attribute, std::int64_t type, char const* type_name, void* value) const;
  Handle open_attribute(std::string const& attribute) const;
};

template <>
std::string Object::attribute(std::string const& attribute) const;

/// An N-dimensional array of one element type, row major.
class Array : public Object {
 public:
  ElementType type() const { return type_; }
  Extents const& shape() const { return shape_; }
  /// The number of elements.
  std::int64_t size() const;

  /// Throws DataError unless the dataset holds `type` and has this shape; an extent may be `any_extent`.
  void expect(ElementType type, Extents const& shape) const;

  /// Reads the whole array. Throws DataError if it does not hold T.
  template <Element T>
  std::vector<T> read() const {
    return read<T>(0, shape_[0]);
  }
  /// Reads `count` indices of the first axis from `begin` on.
  template <Element T>
  std::vector<T> read(std::int64_t begin, std::int64_t count) const {
    require_type(element_type_of<T>());
    std::vector<T> values(static_cast<std::size_t>(elements_of(begin, count)));
    transfer(begin, count, values.data(), nullptr);
    return values;
  }
  /// Writes the whole array. Throws DataError if it does not hold T.
  template <Element T>
  void write(std::span<T const> values) {
    require_type(element_type_of<T>());
    write_bytes({reinterpret_cast<std::uint8_t const*>(values.data()), values.size_bytes()});
  }

  /// Reads the bytes of `count` indices of the first axis from `begin` on, whatever the type of the elements.
  void read_bytes(std::int64_t begin, std::int64_t count, std::vector<std::uint8_t>& bytes) const;
  void write_bytes(std::span<std::uint8_t const> bytes) { write_rows(0, bytes); }
  /// Extends the first axis by whole rows; only for datasets made with create_extendible_array.
  void append_bytes(std::span<std::uint8_t const> bytes);

  /// The offset of a contiguous array's bytes in the file, once written; -1 if there are none (no elements).
  std::int64_t file_offset() const;

 private:
  friend class Group;
  Array(std::shared_ptr<FileState> file, std::string name, Handle handle);

  void require_type(ElementType type) const;
  /// The number of elements of these rows. Throws DataError if they are not in the array.
  std::int64_t elements_of(std::int64_t begin, std::int64_t count) const;
  void transfer(std::int64_t begin, std::int64_t count, void* destination, void const* source) const;
  /// Writes all rows from `begin` on.
  void write_rows(std::int64_t begin, std::span<std::uint8_t const> bytes);

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
  Array create_array(std::string const& name, ElementType type, Extents const& shape) {
    return create_array(name, type, shape, {}, false);
  }
  /// Makes a contiguous array of fixed shape and writes it.
  template <Element T>
  void write_array(std::string const& name, Extents const& shape, std::span<T const> values) {
    create_array(name, element_type_of<T>(), shape).write(values);
  }
  /// Makes a chunked array, which starts with no rows and grows along the first axis by Array::append. `chunk[0]` is a
  /// chunk's number of rows, `chunk[1..]` are the extents of a row (a 1-D dataset of tokens: `{65536}`).
  Array create_extendible_array(std::string const& name, ElementType type, Extents const& chunk) {
    Extents shape = chunk;
    shape.at(0) = 0;
    return create_array(name, type, shape, chunk, false);
  }
  /// Makes a contiguous array of fixed shape that has its place in the file but is not written: others may write its
  /// bytes at its file_offset.
  Array reserve_array(std::string const& name, ElementType type, Extents const& shape) {
    return create_array(name, type, shape, {}, true);
  }
  Array array(std::string const& name) const;
  /// Writes text as a one-dimensional uint8 dataset, or reads it: at most `max` bytes, more are a DataError.
  std::string read_bytes(std::string const& name, std::int64_t max = std::int64_t{64} << 20) const;
  void write_bytes(std::string const& name, std::string_view bytes);

 protected:
  using Object::Object;

 private:
  Array create_array(std::string const& name, ElementType type, Extents const& shape, Extents const& chunk,
                     bool reserve);
  std::string child(std::string const& name) const;
};

/// An HDF5 file, which is also its root group.
class File : public Group {
 public:
  /// Creates a new file, which must not exist. Written content is safe only after close() returned (and fsync by
  /// path).
  static File create(std::filesystem::path const& path);

  /// Creates a file in `bytes`, which are empty. Arrays of at least `alignment` bytes start at its multiples; about
  /// `metadata_bytes` of everything else lie together.
  static File create(std::shared_ptr<ByteStore> bytes, std::string const& name, std::int64_t alignment = 1,
                     std::int64_t metadata_bytes = 2048);

  /// Opens read-only. Checks the whole file against the allow-list first (see allow_list.cpp).
  static File open(std::filesystem::path const& path);
  /// The same, of a copy of it: messages name `path`.
  static File open_copy(std::filesystem::path const& copy, std::string const& path);
  /// Opens a file whose bytes are given, in the same way; `name` is for messages.
  static File open(std::shared_ptr<ByteStore> bytes, std::string const& name);

  /// Writes everything out. Throws Error if that fails, DataError if objects of this file are still open.
  void close();

 private:
  File(std::shared_ptr<FileState> state, Handle file);

  Handle handle_of_file_;
};

}  // namespace heddle::hdf5
