#include "tensor_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/manifest.hpp>
#include <iterator>
#include <numeric>
#include <set>

namespace heddle {

namespace {

constexpr std::int64_t alignment = 4096;
/// HDF5's own bytes for a tensor: a group and up to three datasets.
constexpr std::int64_t metadata_of_tensor = 2048;
constexpr std::int64_t highest_rank = 8;

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

/// Reserves the places of the tensors of file `number`, and records them in `tensors`.
TensorFile plan_file(std::vector<TensorInfo>& tensors, std::size_t number) {
  TensorFile planned{std::make_shared<hdf5::FileImage>(), {}};
  std::int64_t const count =
      std::count_if(tensors.begin(), tensors.end(), [&](TensorInfo const& tensor) { return tensor.file == number; });
  hdf5::File file =
      hdf5::File::create(planned.image, tensor_file_name(number), alignment, alignment + count * metadata_of_tensor);
  set_checkpoint_format(file);
  {
    hdf5::Group parameters = file.create_group("parameters");
    for (std::size_t index = 0; index < tensors.size(); ++index) {
      TensorInfo& tensor = tensors[index];
      if (tensor.file != number) {
        continue;
      }
      hdf5::Group group = parameters.create_group(tensor.name);
      for (TensorPart const part : tensor.parts()) {
        std::int64_t const offset =
            group.reserve_array(part_name(part), hdf5::ElementType::float32, tensor.shape).file_offset();
        if (tensor.elements() > 0) {
          tensor.offsets[static_cast<std::size_t>(part)] = offset;
          planned.extents.push_back({index, part, offset, tensor.elements()});
        }
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

void check_checkpoint_format(hdf5::File const& file) {
  if (file.attribute<std::string>("format") != checkpoint_format_name) {
    throw DataError(file.path() + ": is not of format " + checkpoint_format_name);
  }
  require_format_version(file.path(), file.attribute<std::int64_t>("version"));
}

std::string tensor_file_name(std::size_t number) {
  return fmt::format("tensors-{:05}.h5", number);
}

char const* part_name(TensorPart part) {
  constexpr std::array names{"value", "first_moment", "second_moment"};
  return names.at(static_cast<std::size_t>(part));
}

std::int64_t TensorInfo::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t TensorInfo::bytes() const {
  return std::ssize(parts()) * elements() * static_cast<std::int64_t>(sizeof(float));
}

std::string refused_numbers(std::span<float const> numbers, TensorPart part) {
  constexpr std::uint32_t exponent = 0x7F800000;
  std::size_t not_finite = 0;
  std::size_t negative = 0;
  for (float const number : numbers) {
    not_finite += (std::bit_cast<std::uint32_t>(number) & exponent) == exponent ? 1 : 0;
    negative += number < 0 ? 1 : 0;
  }
  return not_finite > 0                                      ? "numbers that are not finite"
         : part == TensorPart::second_moment && negative > 0 ? "negative numbers"
                                                             : "";
}

void check_tensors(std::vector<TensorInfo> const& tensors) {
  std::set<std::string> names;
  for (TensorInfo const& tensor : tensors) {
    if (tensor.name.empty() || tensor.name.find('/') != tensor.name.npos || tensor.name.front() == '.' ||
        !names.insert(tensor.name).second) {
      throw Error("parameter name '" + tensor.name + "' is empty, starts with '.', has a '/' or is repeated");
    }
    if (tensor.shape.empty() || std::ssize(tensor.shape) > highest_rank) {
      throw Error("parameter '" + tensor.name + "' has the shape " + hdf5::to_string(tensor.shape) +
                  "; expected 1 to 8 extents");
    }
  }
}

TensorFiles plan_tensor_files(std::vector<StreamedTensor> const& tensors, std::int64_t writers) {
  auto const files =
      static_cast<std::size_t>(std::clamp<std::int64_t>(writers, 1, std::max<std::int64_t>(std::ssize(tensors), 1)));
  TensorFiles planned;
  for (StreamedTensor const& tensor : tensors) {
    planned.tensors.push_back({tensor});
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
  check_checkpoint_format(file);
  hdf5::Group const parameters = file.group("parameters");
  std::size_t expected = 0;
  for (TensorInfo const& tensor : tensors) {
    if (tensor.file != number) {
      continue;
    }
    ++expected;
    hdf5::Group const group = parameters.group(tensor.name);
    for (TensorPart const part : tensor.parts()) {
      hdf5::Array const array = group.array(part_name(part));
      array.expect(hdf5::ElementType::float32, tensor.shape);
      if (tensor.elements() > 0 && array.file_offset() != tensor.offsets[static_cast<std::size_t>(part)]) {
        throw DataError(array.where() + ": is not where the index in state.h5 places it");
      }
    }
    if (group.names().size() != tensor.parts().size()) {
      throw DataError(group.where() + ": holds other datasets than value, or value, first_moment and second_moment");
    }
  }
  if (parameters.names().size() != expected) {
    throw DataError(path + ": holds parameters that the index in state.h5 does not place there");
  }
}

}  // namespace heddle
