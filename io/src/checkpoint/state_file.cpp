#include "state_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/manifest.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/hdf5/hdf5.hpp>
#include <limits>
#include <memory>

#include "dataset/format.hpp"
#include "tensors/tensor_files.hpp"

namespace heddle {

namespace {

namespace json = boost::json;

/// Steps are 32-bit words of the counters of random numbers.
constexpr std::int64_t max_steps = std::numeric_limits<std::int32_t>::max();
/// Changes of the training data in one run: each starts an epoch, as otherwise only a step can.
constexpr std::int64_t max_new_data = std::int64_t{1} << 20;
/// Tokens of both sides of the largest batch.
constexpr std::int64_t max_tokens_in_step = std::int64_t{1} << 32;
constexpr std::int64_t max_config_bytes = std::int64_t{16} << 20;
constexpr std::int64_t max_index_bytes = std::int64_t{64} << 20;
static_assert(max_config_bytes + max_index_bytes + 2 * dataset_format::max_model_bytes < max_state_bytes);

/// Calls use(name, field) for each number of a training state; the names are those of the file's attributes.
template <class State, class Use>
void for_each_field(State& state, Use const& use) {
  use("step", state.step);
  use("epoch", state.epoch);
  use("position", state.position);
  use("tokens", state.tokens);
  use("seed", state.seed);
  use("seconds", state.seconds);
  use("best_valid_loss", state.best_valid_loss);
  use("best_step", state.best_step);
  use("validations_without_improvement", state.validations_without_improvement);
}

/// Writes a field as an attribute of an HDF5 object.
auto writer_of(hdf5::Object& object) {
  return [&object](char const* name, auto const& field) { object.set_attribute(name, field); };
}

auto reader_of(hdf5::Object const& object) {
  return [&object](char const* name, auto& field) {
    field = object.attribute<std::remove_reference_t<decltype(field)>>(name);
  };
}

/// Throws DataError for numbers that no training leaves. The digests of a checkpoint are not a signature: whoever can
/// write to its directory can write other numbers and the manifest that belongs to them.
void check_training(TrainingState const& state, std::string const& where) {
  if (std::min({state.step, state.epoch, state.position, state.tokens, state.best_step,
                state.validations_without_improvement}) < 0) {
    throw DataError(where + ": step, epoch, position, tokens, best_step or a count is negative");
  }
  if (state.step > max_steps || state.epoch > state.step + max_new_data || state.best_step > state.step) {
    throw DataError(
        fmt::format("{}: step {}, epoch {} or best_step {} is impossible; steps go up to {}, best_step up to the step, "
                    "and epochs up to the step + {}",
                    where, state.step, state.epoch, state.best_step, max_steps, max_new_data));
  }
  if (state.validations_without_improvement > state.step) {
    throw DataError(fmt::format("{}: validations_without_improvement {} is impossible in {} steps", where,
                                state.validations_without_improvement, state.step));
  }
  if (state.tokens / max_tokens_in_step > state.step) {
    throw DataError(fmt::format("{}: {} tokens in {} steps are impossible", where, state.tokens, state.step));
  }
  if (!std::isfinite(state.seconds) || state.seconds < 0) {
    throw DataError(
        fmt::format("{}: seconds = {} is impossible; expected a finite number from 0 on", where, state.seconds));
  }
  if (!std::isfinite(state.best_valid_loss)) {
    throw DataError(
        fmt::format("{}: best_valid_loss = {} is impossible; expected a finite number", where, state.best_valid_loss));
  }
}

TrainingState read_training(hdf5::File const& file) {
  hdf5::Group const training = file.group("training");
  TrainingState state;
  for_each_field(state, reader_of(training));
  check_training(state, training.where());
  return state;
}

/// The optional strings of a checkpoint; empty ones are not in the file.
template <class Contents, class Use>
void for_each_string(Contents& contents, Use const& use) {
  use("instruction_set", contents.instruction_set);
  use("dataset", contents.dataset);
  use("valid_dataset", contents.valid_dataset);
  use("cursor", contents.cursor);
}

void write_losses(hdf5::File& file, LossHistory const& losses) {
  if (losses.recent.empty()) {
    return;
  }
  hdf5::Group group = file.create_group("losses");
  group.write_array<double>("recent", {std::ssize(losses.recent)}, losses.recent);
  group.set_attribute("best_mean", losses.best_mean);
  group.set_attribute("best_step", losses.best_step);
  group.set_attribute("risen_steps", losses.risen_steps);
}

LossHistory read_losses(hdf5::File const& file, std::int64_t step) {
  LossHistory losses;
  if (!file.contains("losses")) {
    return losses;
  }
  hdf5::Group const group = file.group("losses");
  hdf5::Array const recent = group.array("recent");
  recent.expect(hdf5::ElementType::float64, {hdf5::any_extent});
  if (recent.size() > static_cast<std::int64_t>(LossHistory::max_recent)) {
    throw DataError(fmt::format("{}: holds {} losses, expected at most {}", recent.where(), recent.size(),
                                LossHistory::max_recent));
  }
  losses.recent = recent.read<double>();
  auto const read = reader_of(group);
  read("best_mean", losses.best_mean);
  read("best_step", losses.best_step);
  read("risen_steps", losses.risen_steps);
  bool const finite = std::ranges::all_of(losses.recent, [](double loss) { return std::isfinite(loss); });
  if (!finite || !std::isfinite(losses.best_mean) || std::min(losses.best_step, losses.risen_steps) < 0 ||
      std::max(losses.best_step, losses.risen_steps) > step) {
    throw DataError(group.where() + ": a loss is not finite, or best_step or risen_steps is impossible");
  }
  return losses;
}

std::string index_text(std::vector<TensorInfo> const& tensors) {
  std::string text = "[";
  char const* between = "\n";
  for (TensorInfo const& tensor : tensors) {
    json::object entry;
    entry["name"] = tensor.name;
    entry["shape"] = json::value_from(tensor.shape);
    entry["file"] = tensor_file_name(tensor.file);
    for (TensorPart const part : tensor.parts()) {
      entry[part_name(part)] = tensor.offsets[static_cast<std::size_t>(part)];
    }
    text += between + json::serialize(entry);
    between = ",\n";
  }
  return text + "\n]\n";
}

/// A tensor's entry of the index; `file_bytes` are the lengths of the files.
TensorInfo read_tensor(json::object const& entry, std::vector<std::int64_t> const& file_bytes) {
  TensorInfo tensor;
  tensor.name = json::value_to<std::string>(entry.at("name"));
  tensor.shape = json::value_to<std::vector<std::int64_t>>(entry.at("shape"));
  tensor.has_moments = entry.contains("first_moment");
  auto const file = json::value_to<std::string>(entry.at("file"));
  while (tensor.file < file_bytes.size() && tensor_file_name(tensor.file) != file) {
    ++tensor.file;
  }
  if (tensor.file == file_bytes.size()) {
    throw Error(fmt::format("{} is in the file {}, which the manifest does not name", tensor.name, file));
  }
  std::int64_t const size = file_bytes[tensor.file];
  std::int64_t elements = 1;
  for (std::int64_t const extent : tensor.shape) {
    if (extent < 0 || (extent > 0 && elements > size / extent)) {
      throw Error(fmt::format("{} has the impossible shape {}", tensor.name, hdf5::to_string(tensor.shape)));
    }
    elements *= extent;
  }
  for (TensorPart const part : tensor.parts()) {
    std::int64_t const offset = entry.at(part_name(part)).as_int64();
    if (offset < 0 || elements * static_cast<std::int64_t>(sizeof(float)) > size - offset) {
      throw Error(fmt::format("{}'s {} would lie behind the end of its file", tensor.name, part_name(part)));
    }
    tensor.offsets[static_cast<std::size_t>(part)] = offset;
  }
  return tensor;
}

/// Throws Error unless the tensors of each file are what fills it: they neither share bytes, so that few bytes would be
/// read as a large model, nor leave a large part unused, so that a large file would be hashed for nothing.
void check_sizes(std::vector<TensorInfo> const& tensors, std::vector<std::int64_t> const& file_bytes) {
  constexpr std::int64_t unused_in_file = std::int64_t{1} << 20;
  constexpr std::int64_t unused_beside_tensor = 32768;  // HDF5's own bytes, and the alignment of its parts
  std::vector<std::int64_t> used(file_bytes.size());
  std::vector<std::int64_t> unused(file_bytes.size(), unused_in_file);
  for (TensorInfo const& tensor : tensors) {
    used[tensor.file] += tensor.bytes();
    unused[tensor.file] += unused_beside_tensor;
    if (used[tensor.file] > file_bytes[tensor.file]) {
      throw Error(fmt::format("the tensors of {} have more bytes than the file", tensor_file_name(tensor.file)));
    }
  }
  for (std::size_t file = 0; file < file_bytes.size(); ++file) {
    if (file_bytes[file] - used[file] > unused[file]) {
      throw Error(
          fmt::format("{} has {} bytes, its tensors have {}", tensor_file_name(file), file_bytes[file], used[file]));
    }
  }
}

std::vector<TensorInfo> read_index(std::string const& text, std::string const& path,
                                   std::vector<std::int64_t> const& file_bytes) {
  std::vector<TensorInfo> tensors;
  try {
    json::value const parsed = json::parse(text);
    for (json::value const& entry : parsed.as_array()) {
      tensors.push_back(read_tensor(entry.as_object(), file_bytes));
    }
    check_tensors(tensors);
    check_sizes(tensors, file_bytes);
  } catch (std::bad_alloc const&) {
    throw;
  } catch (std::exception const& error) {
    throw DataError(fmt::format("{}: its index cannot be used: {}", path, error.what()));
  }
  return tensors;
}

}  // namespace

std::string state_file_bytes(CheckpointIndex const& index) {
  CheckpointContents const& contents = index.contents;
  auto const image = std::make_shared<hdf5::FileImage>();
  hdf5::File file = hdf5::File::create(image, state_file_name);
  set_checkpoint_format(file);
  for_each_string(contents, [&](char const* name, std::string const& value) {
    if (!value.empty()) {
      file.set_attribute(name, value);
    }
  });
  {
    hdf5::Group training = file.create_group("training");
    for_each_field(contents.state, writer_of(training));
  }
  write_losses(file, contents.losses);
  file.write_bytes("config", contents.config);
  file.write_bytes("index", index_text(index.tensors));
  {
    hdf5::Group vocabulary = file.create_group("vocabulary");
    vocabulary.write_bytes("source", contents.source_model);
    vocabulary.write_bytes("target", contents.target_model);
  }
  file.close();
  std::string bytes(static_cast<std::size_t>(image->size()), '\0');
  image->read(0, text_bytes(bytes));
  return bytes;
}

CheckpointIndex read_state_file(std::span<std::uint8_t const> bytes, std::string const& path,
                                std::vector<std::int64_t> const& file_bytes) {
  hdf5::File const file = hdf5::File::open(std::make_shared<hdf5::FileImage>(bytes), path);
  check_checkpoint_format(file);
  CheckpointIndex index;
  CheckpointContents& contents = index.contents;
  contents.state = read_training(file);
  for_each_string(contents, [&](char const* name, std::string& value) {
    value = file.has_attribute(name) ? file.attribute<std::string>(name) : "";
  });
  contents.losses = read_losses(file, contents.state.step);
  contents.config = file.read_bytes("config", max_config_bytes);
  contents.source_model = file.read_bytes("vocabulary/source", dataset_format::max_model_bytes);
  contents.target_model = file.read_bytes("vocabulary/target", dataset_format::max_model_bytes);
  index.tensors = read_index(file.read_bytes("index", max_index_bytes), path, file_bytes);
  return index;
}

}  // namespace heddle
