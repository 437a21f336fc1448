#include "tensor_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <iterator>
#include <numeric>
#include <set>

namespace heddle {

namespace {

constexpr std::int64_t alignment = 4096;
/// HDF5's own bytes for the group of a tensor, and for each of its arrays.
constexpr std::int64_t metadata_of_group = 1024;
constexpr std::int64_t metadata_of_array = 352;
constexpr std::string_view state_prefix_of_format_3 = "adam.";
constexpr std::int64_t highest_rank = 8;

/// Whether HDF5 takes it as the name of one link.
bool is_plain(std::string const& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == name.npos;
}

/// Chooses each tensor's file: the largest tensors first, each into the smallest file so far.
void choose_files(std::vector<TensorInfo>& tensors, std::size_t files) {
  std::vector<TensorInfo*> order;
  std::ranges::transform(tensors, std::back_inserter(order), [](TensorInfo& tensor) { return &tensor; });
  std::ranges::stable_sort(order, std::greater<>(), &TensorInfo::bytes);
  std::vector<std::int64_t> filled(files, 0);
  for (TensorInfo* const tensor : order) {
    auto const min = std::ranges::min_element(filled);
    *min += std::max<std::int64_t>(tensor->bytes(), 1);
    tensor->file = static_cast<std::size_t>(min - filled.begin());
  }
}

hdf5::ElementType element_type(TensorInfo const& tensor) {
  return tensor.dtype == DType::bfloat16 ? hdf5::ElementType::bfloat16 : hdf5::ElementType::float32;
}

/// Reserves the place of an array in the group of its tensor, and records it.
void reserve(hdf5::Group group, TensorInfo& tensor, TensorExtent extent, std::vector<TensorExtent>& extents) {
  std::string const& key = tensor.keys[extent.key];
  extent.offset = group.reserve_array(key, element_type(tensor), tensor.shape_of(key)).file_offset();
  extent.element_bytes = tensor.element_bytes();
  extent.elements = tensor.elements(key);
  if (extent.elements > 0) {
    tensor.offsets[extent.key] = extent.offset;
    extents.push_back(extent);
  }
}

/// Reserves the places of the tensors of file `number`, and records them in `tensors`.
TensorFile plan_file(std::vector<TensorInfo>& tensors, std::size_t number) {
  TensorFile planned{std::make_shared<hdf5::FileImage>(), {}};
  std::vector<std::size_t> own;
  std::int64_t metadata = alignment;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    if (tensors[index].file == number) {
      own.push_back(index);
      metadata += metadata_of_group + std::ssize(tensors[index].keys) * metadata_of_array;
    }
  }
  hdf5::File file = hdf5::File::create(planned.image, tensor_file_name(number), alignment, metadata);
  set_checkpoint_format(file);
  {
    hdf5::Group parameters = file.create_group("parameters");
    for (std::size_t const index : own) {
      TensorInfo& tensor = tensors[index];
      reserve(parameters.create_group(tensor.name), tensor, {index, 0, 0, 0}, planned.extents);
    }
    for (std::size_t const index : own) {
      for (std::size_t key = 1; key < tensors[index].keys.size(); ++key) {
        TensorInfo& tensor = tensors[index];
        reserve(parameters.group(tensor.name), tensor, {index, key, 0, 0}, planned.extents);
      }
    }
  }
  file.close();
  std::sort(planned.extents.begin(), planned.extents.end(),
            [](TensorExtent const& a, TensorExtent const& b) { return a.offset < b.offset; });
  return planned;
}

}  // namespace

void set_checkpoint_format(hdf5::File& file) {
  file.set_attribute("format", checkpoint_format_name);
  file.set_attribute("version", checkpoint_format_version);
}

std::int64_t checkpoint_format_of(hdf5::File const& file) {
  if (file.attribute<std::string>("format") != checkpoint_format_name) {
    throw DataError(file.path() + ": is not of format " + checkpoint_format_name);
  }
  auto const version = file.attribute<std::int64_t>("version");
  require_format_version(file.path(), version);
  return version;
}

std::string tensor_file_name(std::size_t number) {
  return fmt::format("tensors-{:05}.h5", number);
}

std::string key_of_format_3(std::string const& name) {
  return name == value_key ? name : std::string(state_prefix_of_format_3) + name;
}

std::string name_in_format_3(std::string const& key) {
  return key.starts_with(state_prefix_of_format_3) ? key.substr(state_prefix_of_format_3.size()) : key;
}

std::int64_t TensorInfo::elements(std::string const& key) const {
  auto const& extents = shape_of(key);
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t TensorInfo::bytes() const {
  std::int64_t all = 0;
  for (std::string const& key : keys) {
    all += elements(key);
  }
  return all * element_bytes();
}

std::optional<std::size_t> TensorInfo::find(std::string const& key) const {
  auto const found = std::ranges::find(keys, key);
  return found == keys.end() ? std::nullopt : std::optional<std::size_t>(found - keys.begin());
}

std::string refused_values(std::span<float const> numbers, std::string const& key) {
  constexpr std::uint32_t infinity = 0x7F800000;
  std::uint32_t largest = 0;  // magnitude, in bits: a maximum without branches is computed in vectors
  for (float const number : numbers) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(number) & 0x7FFFFFFFU);
  }
  if (largest >= infinity) {
    return "values that are not finite";
  }
  bool const negative =
      key.ends_with("second_moment") && std::ranges::any_of(numbers, [](float number) { return number < 0; });
  return negative ? "negative values" : "";
}

void check_tensors(std::vector<TensorInfo> const& tensors) {
  std::set<std::string> names;
  for (TensorInfo const& tensor : tensors) {
    if (!is_plain(tensor.name) || !names.insert(tensor.name).second) {
      throw Error("parameter name '" + tensor.name + "' is empty, starts with '.', has a '/' or is repeated");
    }
    for (std::string const& key : tensor.keys) {
      if (auto const& shape = tensor.shape_of(key); shape.empty() || std::ssize(shape) > highest_rank) {
        throw Error("parameter '" + tensor.name + "' has the shape " + hdf5::to_string(shape) +
                    "; expected 1 to 8 extents");
      }
    }
    if (tensor.dtype != DType::float32 && tensor.dtype != DType::bfloat16) {
      throw Error("parameter '" + tensor.name + "' is neither float32 nor bfloat16");
    }
    std::set<std::string> const keys(tensor.keys.begin(), tensor.keys.end());
    if (tensor.keys.empty() || tensor.keys.front() != value_key || keys.size() != tensor.keys.size() ||
        !std::ranges::all_of(keys, is_plain)) {
      throw Error(
          "parameter '" + tensor.name +
          "' does not have the key 'value' first, or a key is empty, starts with '.', has a '/' or is repeated");
    }
    for (auto const& [key, shape] : tensor.other_shapes) {
      if (key == value_key || !keys.contains(key)) {
        throw Error("parameter '" + tensor.name + "' names another shape for '" + key + "', which is not its state");
      }
    }
  }
}

TensorFiles plan_tensor_files(std::vector<StreamedTensor> const& tensors, std::int64_t writers) {
  auto const files =
      static_cast<std::size_t>(std::clamp<std::int64_t>(writers, 1, std::max<std::int64_t>(std::ssize(tensors), 1)));
  TensorFiles planned;
  for (StreamedTensor const& tensor : tensors) {
    planned.tensors.push_back({tensor, 0, std::vector<std::int64_t>(tensor.keys.size())});
  }
  check_tensors(planned.tensors);
  choose_files(planned.tensors, files);
  for (std::size_t number = 0; number < files; ++number) {
    planned.files.push_back(plan_file(planned.tensors, number));
  }
  return planned;
}

void check_tensor_file(std::shared_ptr<hdf5::ByteStore> bytes, std::string const& path,
                       std::vector<TensorInfo> const& tensors, std::size_t number) {
  hdf5::File const file = hdf5::File::open(std::move(bytes), path);
  bool const format_3 = checkpoint_format_of(file) == 3;
  hdf5::Group const parameters = file.group("parameters");
  std::size_t expected = 0;
  for (TensorInfo const& tensor : tensors) {
    if (tensor.file != number) {
      continue;
    }
    ++expected;
    hdf5::Group const group = parameters.group(tensor.name);
    for (std::size_t key = 0; key < tensor.keys.size(); ++key) {
      std::string const& name = tensor.keys[key];
      hdf5::Array const array = group.array(format_3 ? name_in_format_3(name) : name);
      array.expect(element_type(tensor), tensor.shape_of(name));
      if (tensor.elements(name) > 0 && array.file_offset() != tensor.offsets[key]) {
        throw DataError(array.where() + ": is not where the index in state.h5 places it");
      }
    }
    if (group.names().size() != tensor.keys.size()) {
      throw DataError(group.where() + ": holds datasets that the index in state.h5 does not name");
    }
  }
  if (parameters.names().size() != expected) {
    throw DataError(path + ": holds parameters that the index in state.h5 does not place there");
  }
}

}  // namespace heddle
