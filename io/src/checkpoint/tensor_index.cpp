#include "tensor_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/hdf5/hdf5.hpp>

#include "tensors/tensor_files.hpp"

namespace heddle {

namespace {

namespace json = boost::json;

/// The arrays of an entry of the index by their keys. In version 1 (of format 3) they are among its members.
json::object arrays_of(json::object const& entry, std::int64_t version) {
  if (version > 1) {
    return entry.at("arrays").as_object();
  }
  json::object arrays;
  for (char const* const name : {"value", "first_moment", "second_moment"}) {
    if (entry.contains(name)) {
      arrays[key_of_format_3(name)] = entry.at(name);
    }
  }
  return arrays;
}

/// The number of elements of a shape. Throws Error where they are more than that or an extent is negative.
std::int64_t checked_size(std::string const& name, std::vector<std::int64_t> const& shape, std::int64_t max) {
  std::int64_t elements = 1;
  for (std::int64_t const extent : shape) {
    if (extent < 0 || (extent > 0 && elements > max / extent)) {
      throw Error("{} has the impossible shape {}", name, hdf5::to_string(shape));
    }
    elements *= extent;
  }
  return elements;
}

/// A tensor's entry of an index of this version; `file_bytes` are the lengths of the files.
TensorInfo read_tensor(json::object const& entry, std::int64_t version, std::vector<std::int64_t> const& file_bytes) {
  TensorInfo tensor;
  tensor.name = json::value_to<std::string>(entry.at("name"));
  tensor.shape = json::value_to<std::vector<std::int64_t>>(entry.at("shape"));
  tensor.keys.clear();
  auto const file = json::value_to<std::string>(entry.at("file"));
  while (tensor.file < file_bytes.size() && tensor_file_name(tensor.file) != file) {
    ++tensor.file;
  }
  if (tensor.file == file_bytes.size()) {
    throw Error("{} is in the file {}, which the manifest does not name", tensor.name, file);
  }
  std::int64_t const size = file_bytes[tensor.file];
  if (version > 2 && entry.contains("shapes")) {
    tensor.other_shapes = json::value_to<decltype(tensor.other_shapes)>(entry.at("shapes"));
  }
  if (version > 3 && entry.contains("dtype")) {
    if (entry.at("dtype").as_string() != name_of(DType::bfloat16)) {
      throw Error("{} is of the dtype {}; expected bfloat16 or none, which is float32", tensor.name,
                  json::serialize(entry.at("dtype")));
    }
    tensor.dtype = DType::bfloat16;
  }
  for (auto const& [key, value] : arrays_of(entry, version)) {
    std::int64_t const elements = checked_size(tensor.name, tensor.shape_of(key), size);
    std::int64_t const offset = value.as_int64();
    if (offset < 0 || elements * tensor.element_bytes() > size - offset) {
      throw Error("{}'s {} would extend past the end of its file", tensor.name, std::string(key));
    }
    tensor.keys.emplace_back(key);
    tensor.offsets.push_back(offset);
  }
  return tensor;
}

/// Throws Error unless the tensors of each file are what fills it: they neither share bytes, so that few bytes would be
/// read as a large model, nor leave a large part unused, so that a large file would be hashed for nothing.
void check_sizes(std::vector<TensorInfo> const& tensors, std::vector<std::int64_t> const& file_bytes) {
  constexpr std::int64_t unused_in_file = std::int64_t{1} << 20;
  constexpr std::int64_t unused_beside_array = 8192;  // HDF5's own bytes, and the alignment
  std::vector<std::int64_t> used(file_bytes.size());
  std::vector<std::int64_t> unused(file_bytes.size(), unused_in_file);
  for (TensorInfo const& tensor : tensors) {
    used[tensor.file] += tensor.bytes();
    unused[tensor.file] += (1 + std::ssize(tensor.keys)) * unused_beside_array;
    if (used[tensor.file] > file_bytes[tensor.file]) {
      throw Error("the tensors of {} have more bytes than the file", tensor_file_name(tensor.file));
    }
  }
  for (std::size_t file = 0; file < file_bytes.size(); ++file) {
    if (file_bytes[file] - used[file] > unused[file]) {
      throw Error("{} has {} bytes, its tensors have {}", tensor_file_name(file), file_bytes[file], used[file]);
    }
  }
}

}  // namespace

std::int64_t tensor_index_version(std::vector<TensorInfo> const& tensors) {
  auto const has = [&](auto const& property) { return std::ranges::any_of(tensors, property); };
  return has([](TensorInfo const& tensor) { return tensor.dtype != DType::float32; }) ? 4
         : has([](TensorInfo const& tensor) { return !tensor.other_shapes.empty(); }) ? 3
                                                                                      : 2;
}

std::string tensor_index(std::vector<TensorInfo> const& tensors) {
  std::string text = "[";
  char const* between = "\n";
  for (TensorInfo const& tensor : tensors) {
    json::object entry;
    entry["name"] = tensor.name;
    entry["shape"] = json::value_from(tensor.shape);
    entry["file"] = tensor_file_name(tensor.file);
    json::object& arrays = entry["arrays"].emplace_object();
    for (std::size_t key = 0; key < tensor.keys.size(); ++key) {
      arrays[tensor.keys[key]] = tensor.offsets[key];
    }
    if (!tensor.other_shapes.empty()) {
      entry["shapes"] = json::value_from(tensor.other_shapes);
    }
    if (tensor.dtype != DType::float32) {
      entry["dtype"] = json::string(name_of(tensor.dtype));
    }
    text += between + json::serialize(entry);
    between = ",\n";
  }
  return text + "\n]\n";
}

std::vector<TensorInfo> parse_tensor_index(std::string const& text, std::int64_t version,
                                           std::vector<std::int64_t> const& file_bytes) {
  std::vector<TensorInfo> tensors;
  json::value const parsed = json::parse(text);
  for (json::value const& entry : parsed.as_array()) {
    tensors.push_back(read_tensor(entry.as_object(), version, file_bytes));
  }
  check_tensors(tensors);
  check_sizes(tensors, file_bytes);
  return tensors;
}

}  // namespace heddle
