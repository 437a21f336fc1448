#include "file.hpp"

#include <algorithm>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <set>

namespace heddle {

namespace {

constexpr Checkpoint::Part all_parts[] = {Checkpoint::Part::value, Checkpoint::Part::first_moment,
                                          Checkpoint::Part::second_moment};

std::span<float const> part_of(CheckpointTensor const& tensor, Checkpoint::Part part) {
  switch (part) {
    case Checkpoint::Part::value:
      return tensor.value;
    case Checkpoint::Part::first_moment:
      return tensor.first_moment;
    case Checkpoint::Part::second_moment:
      return tensor.second_moment;
  }
  throw Error("no such part of a checkpoint's tensor");
}

std::int64_t element_count(std::vector<std::int64_t> const& shape) {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) {
    count *= extent;
  }
  return count;
}

bool has_moments(CheckpointTensor const& tensor) {
  return tensor.value.empty() || !tensor.first_moment.empty() || !tensor.second_moment.empty();
}

void write_training(hdf5::File& file, TrainingState const& state) {
  hdf5::Group training = file.create_group("training");
  training.set_integer_attribute("step", state.step);
  training.set_integer_attribute("epoch", state.epoch);
  training.set_integer_attribute("position", state.position);
  training.set_integer_attribute("tokens", state.tokens);
  training.set_unsigned_attribute("seed", state.seed);
  training.set_real_attribute("seconds", state.seconds);
  training.set_real_attribute("best_valid_loss", state.best_valid_loss);
  training.set_integer_attribute("best_step", state.best_step);
  training.set_integer_attribute("validations_without_improvement", state.validations_without_improvement);
}

TrainingState read_training(hdf5::File const& file) {
  hdf5::Group const training = file.group("training");
  TrainingState state;
  state.step = training.integer_attribute("step");
  state.epoch = training.integer_attribute("epoch");
  state.position = training.integer_attribute("position");
  state.tokens = training.integer_attribute("tokens");
  state.seed = training.unsigned_attribute("seed");
  state.seconds = training.real_attribute("seconds");
  state.best_valid_loss = training.real_attribute("best_valid_loss");
  state.best_step = training.integer_attribute("best_step");
  state.validations_without_improvement = training.integer_attribute("validations_without_improvement");
  if (std::min({state.step, state.epoch, state.position, state.tokens}) < 0) {
    throw DataError(training.where() + ": step, epoch, position or tokens is negative");
  }
  return state;
}

TensorInfo read_tensor_info(hdf5::Group const& parameters, std::string const& name) {
  hdf5::Group const group = parameters.group(name);
  hdf5::Array const value = group.array("value");
  value.expect(hdf5::ElementType::float32, value.shape());
  TensorInfo info{name, value.shape(), group.contains("first_moment") && group.contains("second_moment")};
  if (info.has_moments) {
    group.array("first_moment").expect(hdf5::ElementType::float32, info.shape);
    group.array("second_moment").expect(hdf5::ElementType::float32, info.shape);
  }
  if (group.names().size() != (info.has_moments ? 3U : 1U)) {
    throw DataError(group.where() + ": holds other datasets than value, or value, first_moment and second_moment");
  }
  return info;
}

/// Bytes of the file that must equal bytes in memory.
struct Extent {
  std::int64_t offset;
  std::span<std::uint8_t const> bytes;
  std::string where;
};

/// Compares a block of the file with the parts of the extents (sorted by offset) that lie in it. Returns how many
/// bytes were compared.
std::int64_t compare_block(std::vector<Extent> const& extents, std::int64_t offset,
                           std::span<std::uint8_t const> block) {
  std::int64_t const block_end = offset + std::ssize(block);
  auto const ends_before = [](Extent const& extent, std::int64_t begin) {
    return extent.offset + std::ssize(extent.bytes) <= begin;
  };
  std::int64_t compared = 0;
  for (auto extent = std::lower_bound(extents.begin(), extents.end(), offset, ends_before);
       extent != extents.end() && extent->offset < block_end; ++extent) {
    std::int64_t const begin = std::max(offset, extent->offset);
    std::int64_t const end = std::min(block_end, extent->offset + std::ssize(extent->bytes));
    auto const length = static_cast<std::size_t>(end - begin);
    if (std::memcmp(block.data() + (begin - offset), extent->bytes.data() + (begin - extent->offset), length) != 0) {
      throw DataError(extent->where + ": what was read back is not what was written, between bytes " +
                      std::to_string(begin) + " and " + std::to_string(end) + " of the file");
    }
    compared += end - begin;
  }
  return compared;
}

/// Checks everything but the tensors' elements. Returns the places of those elements.
std::vector<Extent> compare_index(hdf5::File const& file, CheckpointContents const& contents) {
  static_assert(sizeof(TrainingState) == 9 * 8, "compared as bytes, so that no field is forgotten and NaN equals NaN");
  CheckpointIndex const index = read_index(file);
  if (std::memcmp(&index.state, &contents.state, sizeof(TrainingState)) != 0 || index.config != contents.config ||
      index.source_model != contents.source_model || index.target_model != contents.target_model ||
      index.instruction_set != contents.instruction_set || index.tensors.size() != contents.tensors.size()) {
    throw DataError(file.where() + ": the state, configuration or vocabulary read back is not what was written");
  }
  std::vector<Extent> extents;
  for (CheckpointTensor const& tensor : contents.tensors) {
    hdf5::Group const group = file.group("parameters/" + tensor.name);
    for (Checkpoint::Part part : all_parts) {
      auto const bytes = std::as_bytes(part_of(tensor, part));
      if (bytes.empty()) {
        continue;
      }
      hdf5::Array const dataset = group.array(part_name(part));
      dataset.expect(hdf5::ElementType::float32, tensor.shape);
      extents.push_back({dataset.file_offset(),
                         {reinterpret_cast<std::uint8_t const*>(bytes.data()), bytes.size()},
                         dataset.where()});
    }
  }
  std::sort(extents.begin(), extents.end(), [](Extent const& a, Extent const& b) { return a.offset < b.offset; });
  return extents;
}

}  // namespace

char const* part_name(Checkpoint::Part part) {
  switch (part) {
    case Checkpoint::Part::value:
      return "value";
    case Checkpoint::Part::first_moment:
      return "first_moment";
    case Checkpoint::Part::second_moment:
      return "second_moment";
  }
  throw Error("no such part of a checkpoint's tensor");
}

void check_contents(CheckpointContents const& contents) {
  std::set<std::string> names;
  for (CheckpointTensor const& tensor : contents.tensors) {
    if (tensor.name.empty() || tensor.name.find('/') != tensor.name.npos || tensor.name.front() == '.' ||
        !names.insert(tensor.name).second) {
      throw Error("checkpoint: parameter name '" + tensor.name +
                  "' is empty, starts with '.', has a '/' or is repeated");
    }
    auto const elements = static_cast<std::size_t>(element_count(tensor.shape));
    std::size_t const moments = has_moments(tensor) ? elements : 0;
    if (tensor.shape.empty() || tensor.value.size() != elements || tensor.first_moment.size() != moments ||
        tensor.second_moment.size() != moments) {
      throw Error("checkpoint: parameter '" + tensor.name + "' of shape " + hdf5::to_string(tensor.shape) +
                  " comes with " + std::to_string(tensor.value.size()) + " values, " +
                  std::to_string(tensor.first_moment.size()) + " first and " +
                  std::to_string(tensor.second_moment.size()) + " second moments");
    }
  }
}

void write_state_file(std::filesystem::path const& path, CheckpointContents const& contents) {
  hdf5::File file = hdf5::File::create(path);
  file.set_string_attribute("format", checkpoint_format_name);
  file.set_integer_attribute("version", checkpoint_format_version);
  if (!contents.instruction_set.empty()) {
    file.set_string_attribute("instruction_set", contents.instruction_set);
  }
  write_training(file, contents.state);
  file.write_bytes("config", contents.config);
  {
    hdf5::Group vocabulary = file.create_group("vocabulary");
    vocabulary.write_bytes("source", contents.source_model);
    vocabulary.write_bytes("target", contents.target_model);
    hdf5::Group parameters = file.create_group("parameters");
    for (CheckpointTensor const& tensor : contents.tensors) {
      hdf5::Group group = parameters.create_group(tensor.name);
      for (Checkpoint::Part part : all_parts) {
        if (part == Checkpoint::Part::value || has_moments(tensor)) {
          group.write_array<float>(part_name(part), tensor.shape, part_of(tensor, part));
        }
      }
    }
  }
  file.close();
}

CheckpointIndex read_index(hdf5::File const& file) {
  if (file.string_attribute("format") != checkpoint_format_name) {
    throw DataError(file.where() + ": is not of format heddle-checkpoint");
  }
  require_format_version(file.where(), file.integer_attribute("version"));
  CheckpointIndex index;
  index.state = read_training(file);
  index.instruction_set = file.has_attribute("instruction_set") ? file.string_attribute("instruction_set") : "";
  index.config = file.read_bytes("config");
  index.source_model = file.read_bytes("vocabulary/source");
  index.target_model = file.read_bytes("vocabulary/target");
  hdf5::Group const parameters = file.group("parameters");
  for (std::string const& name : parameters.names()) {
    index.tensors.push_back(read_tensor_info(parameters, name));
  }
  return index;
}

FileDigest read_back_state_file(std::filesystem::path const& path, CheckpointContents const& contents) {
  hdf5::File file = hdf5::File::open(path);
  std::vector<Extent> const extents = compare_index(file, contents);
  file.close();
  std::int64_t expected = 0;
  for (Extent const& extent : extents) {
    expected += std::ssize(extent.bytes);
  }
  std::int64_t compared = 0;
  FileDigest digest = digest_file(path, [&](std::int64_t offset, std::span<std::uint8_t const> block) {
    compared += compare_block(extents, offset, block);
  });
  if (compared != expected) {
    throw DataError(path.string() + ": only " + std::to_string(compared) + " of " + std::to_string(expected) +
                    " bytes of tensors could be read back");
  }
  return digest;
}

}  // namespace heddle
