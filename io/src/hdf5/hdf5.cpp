#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <heddle/core/base/paths.hpp>
#include <heddle/io/hdf5/hdf5.hpp>

#include "internal.hpp"

namespace heddle::hdf5 {

static_assert(std::is_same_v<hid_t, std::int64_t>, "HDF5 1.10 or newer is needed: hid_t must be 64 bits wide");
static_assert(std::endian::native == std::endian::little, "files hold little-endian numbers, read without conversion");

namespace {

constexpr std::int64_t longest_string_attribute = 60000;  // compact attributes end at 64 KiB

herr_t remember_message(unsigned, H5E_error2_t const* error, void* data) {
  if (error->desc != nullptr && *error->desc != '\0') {
    try {
      *static_cast<std::string*>(data) = error->desc;
    } catch (...) {
      return -1;
    }
  }
  return 0;
}

/// No messages on the terminal, and no plug-in filters from a path in the environment.
void prepare_library() {
  if (H5open() < 0 || H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) < 0 || H5PLset_loading_state(0) < 0) {
    fail("HDF5", "start the library");
  }
}

/// Access by the file driver for the bytes of `state`, which must outlive the file.
Handle access_properties(FileState& state) {
  Handle access(require(H5Pcreate(H5P_FILE_ACCESS), state.path, "make access properties"), H5Pclose);
  // 1.8's format checksums its metadata, and every later library reads it.
  require(H5Pset_libver_bounds(access.id(), H5F_LIBVER_V18, H5F_LIBVER_LATEST), state.path, "set the format version");
  use_byte_driver(access.id(), state);
  return access;
}

/// Creation properties without time stamps, so that equal content makes equal files.
Handle creation_properties(hid_t property_class, std::string const& where) {
  Handle creation(require(H5Pcreate(property_class), where, "make creation properties"), H5Pclose);
  require(H5Pset_obj_track_times(creation.id(), 0), where, "switch time stamps off");
  return creation;
}

template <class Number>
hid_t attribute_type() {
  return std::is_floating_point_v<Number> ? H5T_IEEE_F64LE : std::is_signed_v<Number> ? H5T_STD_I64LE : H5T_STD_U64LE;
}

}  // namespace

std::recursive_mutex& LibraryLock::mutex() {
  static std::recursive_mutex one;
  return one;
}

std::string last_error() {
  std::string message;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, remember_message, &message);
  H5Eclear2(H5E_DEFAULT);
  return message;
}

void fail(std::string const& where, std::string const& what) {
  std::string const detail = last_error();
  throw DataError(where + ": HDF5 could not " + what + (detail.empty() ? "" : " (" + detail + ")"));
}

bool Handle::close() noexcept {
  if (id_ < 0) {
    return true;
  }
  LibraryLock const lock;
  bool const closed = closer_(std::exchange(id_, -1)) >= 0;
  if (!closed && file_) {
    file_->close_failed = true;
  }
  file_.reset();
  return closed;
}

File::File(std::shared_ptr<FileState> state, Handle file)
    : Group(
          state, "/",
          Handle(require(H5Gopen2(file.id(), "/", H5P_DEFAULT), state->path, "open the root group"), H5Gclose, state)),
      handle_of_file_(std::move(file)) {}

File File::create(std::filesystem::path const& path) {
  return create(disk_file(path, O_RDWR | O_CREAT | O_EXCL), path.string());
}

File File::create(std::shared_ptr<ByteStore> bytes, std::string const& name, std::int64_t alignment,
                  std::int64_t metadata_bytes) {
  LibraryLock const lock;
  prepare_library();
  auto state = std::make_shared<FileState>(FileState{name, std::move(bytes), true});
  Handle const access = access_properties(*state);
  auto const multiple = static_cast<hsize_t>(alignment);
  require(H5Pset_alignment(access.id(), multiple, multiple), name, "set the alignment");
  require(H5Pset_meta_block_size(access.id(), static_cast<hsize_t>(metadata_bytes)), name, "set the metadata's block");
  Handle const creation = creation_properties(H5P_FILE_CREATE, name);
  hid_t const id = H5Fcreate(name.c_str(), H5F_ACC_EXCL, creation.id(), access.id());
  return {state, Handle(require(id, name, "create the file"), H5Fclose, state)};
}

File File::open(std::filesystem::path const& path) {
  if (std::string const problem = file_problem(path); !problem.empty()) {
    throw DataError(problem);
  }
  return open(disk_file(path, O_RDONLY), path.string());
}

File File::open_copy(std::filesystem::path const& copy, std::string const& path) {
  if (std::string const problem = file_problem(copy); !problem.empty()) {
    throw DataError(problem);
  }
  File file = open(disk_file(copy, O_RDONLY), path);
  file.file_->copy = copy.string();
  return file;
}

File File::open(std::shared_ptr<ByteStore> bytes, std::string const& name) {
  LibraryLock const lock;
  prepare_library();
  std::int64_t const file_bytes = bytes->size();
  auto state = std::make_shared<FileState>(FileState{name, std::move(bytes)});
  Handle const access = access_properties(*state);
  hid_t const id = H5Fopen(name.c_str(), H5F_ACC_RDONLY, access.id());
  Handle file(require(id, name, "open the file"), H5Fclose, state);
  check_allow_list(file.id(), name, file_bytes);
  return {state, std::move(file)};
}

void File::close() {
  LibraryLock const lock;
  if (handle_of_file_.id() < 0) {
    return;
  }
  handle_.close();
  constexpr unsigned all_but_file = H5F_OBJ_DATASET | H5F_OBJ_GROUP | H5F_OBJ_DATATYPE | H5F_OBJ_ATTR;
  if (H5Fget_obj_count(handle_of_file_.id(), all_but_file) > 0) {
    throw DataError(file_->path + ": closed while a group or dataset of it is still open");
  }
  if (file_->writable) {
    require(H5Fflush(handle_of_file_.id(), H5F_SCOPE_LOCAL), file_->path, "write the file");
  }
  bool const closed = handle_of_file_.close();
  check_written(*file_);
  if (!closed || file_->close_failed) {
    fail(file_->path, "write the file out when closing it");
  }
}

std::string Group::child(std::string const& name) const {
  return name_ == "/" ? name_ + name : name_ + "/" + name;
}

bool Group::contains(std::string const& name) const {
  LibraryLock const lock;
  for (std::size_t slash = name.find('/');; slash = name.find('/', slash + 1)) {
    std::string const prefix = name.substr(0, slash);
    if (require(H5Lexists(handle_.id(), prefix.c_str(), H5P_DEFAULT), where(), "look for '" + prefix + "'") == 0) {
      return false;
    }
    if (slash == std::string::npos) {
      return true;
    }
  }
}

std::vector<Link> links_of(hid_t group, std::string const& where) {
  std::vector<Link> links;
  auto const collect = [](hid_t, char const* name, H5L_info_t const* info, void* data) -> herr_t {
    try {
      auto& found = *static_cast<std::vector<Link>*>(data);
      found.push_back({name, info->type});
      return std::ssize(found) <= max_objects ? 0 : -1;
    } catch (...) {
      return -1;
    }
  };
  require(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, collect, &links), where, "list its links");
  return links;
}

std::vector<std::string> Group::names() const {
  LibraryLock const lock;
  std::vector<std::string> names;
  std::ranges::transform(links_of(handle_.id(), where()), std::back_inserter(names), &Link::name);
  return names;
}

Group Group::create_group(std::string const& name) {
  LibraryLock const lock;
  std::string const path = child(name);
  Handle creation = creation_properties(H5P_GROUP_CREATE, where());
  hid_t const id = H5Gcreate2(handle_.id(), name.c_str(), H5P_DEFAULT, creation.id(), H5P_DEFAULT);
  return {file_, path, {require(id, file_->path + ": " + path, "create the group"), H5Gclose, file_}};
}

Group Group::group(std::string const& name) const {
  LibraryLock const lock;
  std::string const path = child(name);
  hid_t const id = contains(name) ? H5Gopen2(handle_.id(), name.c_str(), H5P_DEFAULT) : H5I_INVALID_HID;
  return {file_, path, {require(id, file_->path + ": " + path, "open the group, is it missing?"), H5Gclose, file_}};
}

Array Group::create_array(std::string const& name, ElementType type, Extents const& shape, Extents const& chunk,
                          bool reserve) {
  LibraryLock const lock;
  std::string const path = child(name);
  std::string const where = file_->path + ": " + path;
  std::vector<hsize_t> const dimensions = extents(shape);
  std::vector<hsize_t> maximum = dimensions;
  Handle creation = creation_properties(H5P_DATASET_CREATE, where);
  if (!chunk.empty()) {
    maximum[0] = H5S_UNLIMITED;
    auto const sizes = extents(chunk);
    require(H5Pset_chunk(creation.id(), static_cast<int>(sizes.size()), sizes.data()), where,
            "set the chunk's extents");
  }
  if (reserve) {
    require(H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY), where, "set the time of allocation");
    require(H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER), where, "switch filling off");
  }
  hid_t const space_id = H5Screate_simple(static_cast<int>(shape.size()), dimensions.data(), maximum.data());
  Handle space(require(space_id, where, "make a space of shape " + to_string(shape)), H5Sclose);
  hid_t const id =
      H5Dcreate2(handle_.id(), name.c_str(), stored_type(type), space.id(), H5P_DEFAULT, creation.id(), H5P_DEFAULT);
  return {file_, path, {require(id, where, "create the dataset"), H5Dclose, file_}};
}

Array Group::array(std::string const& name) const {
  LibraryLock const lock;
  std::string const path = child(name);
  hid_t const id = contains(name) ? H5Dopen2(handle_.id(), name.c_str(), H5P_DEFAULT) : H5I_INVALID_HID;
  return {file_, path, {require(id, file_->path + ": " + path, "open the dataset, is it missing?"), H5Dclose, file_}};
}

std::string Group::read_bytes(std::string const& name, std::int64_t max) const {
  Array const bytes = array(name);
  bytes.expect(ElementType::uint8, {any_extent});
  if (bytes.size() > max) {
    throw DataError(bytes.where() + ": has " + std::to_string(bytes.size()) + " bytes, expected at most " +
                    std::to_string(max));
  }
  auto const values = bytes.read<std::uint8_t>();
  return {values.begin(), values.end()};
}

void Group::write_bytes(std::string const& name, std::string_view bytes) {
  write_array<std::uint8_t>(name, {static_cast<std::int64_t>(bytes.size())},
                            {reinterpret_cast<std::uint8_t const*>(bytes.data()), bytes.size()});
}

std::string Object::where() const {
  return file_->path + ": " + name_;
}

bool Object::has_attribute(std::string const& attribute) const {
  LibraryLock const lock;
  return require(H5Aexists(handle_.id(), attribute.c_str()), where(), "look for attribute '" + attribute + "'") > 0;
}

void Object::write_attribute(std::string const& attribute, std::int64_t type, void const* value) {
  std::string const what = "write attribute '" + attribute + "'";
  Handle space(require(H5Screate(H5S_SCALAR), where(), what), H5Sclose);
  hid_t const id = H5Acreate2(handle_.id(), attribute.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT);
  Handle created(require(id, where(), what), H5Aclose, file_);
  require(H5Awrite(created.id(), type, value), where(), what);
}

Handle Object::open_attribute(std::string const& attribute) const {
  hid_t const id = has_attribute(attribute) ? H5Aopen(handle_.id(), attribute.c_str(), H5P_DEFAULT) : H5I_INVALID_HID;
  return {require(id, where(), "read attribute '" + attribute + "', is it missing?"), H5Aclose};
}

void Object::read_attribute(std::string const& attribute, std::int64_t type, char const* type_name, void* value) const {
  std::string const what = "read attribute '" + attribute + "'";
  Handle const opened = open_attribute(attribute);
  Handle space(require(H5Aget_space(opened.id()), where(), what), H5Sclose);
  Handle stored(require(H5Aget_type(opened.id()), where(), what), H5Tclose);
  if (H5Sget_simple_extent_type(space.id()) != H5S_SCALAR || H5Tequal(stored.id(), type) <= 0) {
    throw DataError(where() + ": attribute '" + attribute + "' is not one " + type_name);
  }
  require(H5Aread(opened.id(), type, value), where(), what);
}

template <class Number>
void Object::set_attribute(std::string const& attribute, Number value) requires std::is_arithmetic_v<Number> {
  LibraryLock const lock;
  write_attribute(attribute, attribute_type<Number>(), &value);
}
template void Object::set_attribute(std::string const& attribute, std::int64_t value);
template void Object::set_attribute(std::string const& attribute, std::uint64_t value);
template void Object::set_attribute(std::string const& attribute, double value);

void Object::set_attribute(std::string const& attribute, std::string_view value) {
  LibraryLock const lock;
  if (std::ssize(value) > longest_string_attribute || value.find('\0') != value.npos) {
    throw DataError(where() + ": attribute '" + attribute + "' can hold at most " +
                    std::to_string(longest_string_attribute) + " bytes, none of them zero");
  }
  Handle type(require(H5Tcopy(H5T_C_S1), where(), "copy a type"), H5Tclose);
  std::string const padded(value.empty() ? std::string(1, '\0') : std::string(value));
  require(H5Tset_size(type.id(), padded.size()), where(), "size a string type");
  require(H5Tset_cset(type.id(), H5T_CSET_UTF8), where(), "mark a string type as UTF-8");
  require(H5Tset_strpad(type.id(), H5T_STR_NULLPAD), where(), "set a string type's padding");
  write_attribute(attribute, type.id(), padded.data());
}

template <class Number>
Number Object::attribute(std::string const& attribute) const {
  LibraryLock const lock;
  Number value = 0;
  read_attribute(attribute, attribute_type<Number>(),
                 std::is_floating_point_v<Number> ? "64-bit floating-point number"
                 : std::is_signed_v<Number>       ? "64-bit integer"
                                                  : "unsigned 64-bit integer",
                 &value);
  return value;
}
template std::int64_t Object::attribute(std::string const& attribute) const;
template std::uint64_t Object::attribute(std::string const& attribute) const;
template double Object::attribute(std::string const& attribute) const;

template <>
std::string Object::attribute(std::string const& attribute) const {
  LibraryLock const lock;
  Handle const opened = open_attribute(attribute);
  Handle type(require(H5Aget_type(opened.id()), where(), "read attribute '" + attribute + "'"), H5Tclose);
  std::size_t const size = H5Tget_size(type.id());
  if (H5Tget_class(type.id()) != H5T_STRING || H5Tis_variable_str(type.id()) != 0 || size == 0 ||
      static_cast<std::int64_t>(size) > longest_string_attribute) {
    throw DataError(where() + ": attribute '" + attribute + "' is not one string of fixed length");
  }
  std::string value(size, '\0');
  read_attribute(attribute, type.id(), "string of fixed length", value.data());
  value.resize(std::min(value.find('\0'), value.size()));
  return value;
}

}  // namespace heddle::hdf5
