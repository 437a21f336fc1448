#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/checkpoint/manifest.hpp>
#include <heddle/io/checkpoint/store.hpp>

#include "file.hpp"

namespace heddle {

Checkpoint::Checkpoint(std::filesystem::path directory, std::int64_t step)
    : directory_(std::move(directory)), file_(hdf5::File::open(directory_ / state_file_name)) {
  index_ = read_index(file_);
  if (index_.state.step != step) {
    throw DataError(file_.where() + ": is of step " + std::to_string(index_.state.step) + ", the manifest of step " +
                    std::to_string(step));
  }
  std::string name = directory_.filename().string();
  auto const named_step = checkpoint_step(name.empty() ? directory_.parent_path().filename().string() : name);
  if (named_step && *named_step != step) {
    throw DataError(directory_.string() + ": holds a checkpoint of step " + std::to_string(step));
  }
  for (std::size_t tensor = 0; tensor < index_.tensors.size(); ++tensor) {
    by_name_[index_.tensors[tensor].name] = tensor;
  }
}

Checkpoint Checkpoint::open(std::filesystem::path const& directory) {
  return {directory, verify_directory(directory).step};
}

Checkpoint Checkpoint::open_verified_elsewhere(std::filesystem::path const& directory) {
  return {directory, verify_file_sizes(directory).step};
}

TensorInfo const& Checkpoint::tensor(std::string const& name) const {
  auto const found = by_name_.find(name);
  if (found == by_name_.end()) {
    throw DataError(directory_.string() + ": has no parameter '" + name + "'");
  }
  return index_.tensors[found->second];
}

std::vector<float> Checkpoint::read(std::string const& name, Part part) const {
  return read(name, part, -1, 0, 0);
}

std::vector<float> Checkpoint::read(std::string const& name, Part part, int axis, std::int64_t begin,
                                    std::int64_t count) const {
  TensorInfo const& info = tensor(name);
  if (part != Part::value && !info.has_moments) {
    throw DataError(directory_.string() + ": parameter '" + name + "' has no " + part_name(part) +
                    "; this is an exported model, from which training cannot resume");
  }
  if (axis < -1 || axis >= static_cast<int>(info.shape.size())) {
    throw Error(directory_.string() + ": parameter '" + name + "' has no axis " + std::to_string(axis));
  }
  hdf5::Extents start(info.shape.size(), 0);
  hdf5::Extents counts = info.shape;
  if (axis >= 0) {
    start[static_cast<std::size_t>(axis)] = begin;
    counts[static_cast<std::size_t>(axis)] = count;
  }
  return file_.array("parameters/" + name + "/" + part_name(part)).read<float>(start, counts);
}

}  // namespace heddle
