#include "state_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/hdf5/hdf5.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <limits>
#include <map>
#include <memory>

#include "tensor_index.hpp"
#include "tensors/tensor_files.hpp"
#include "tokenizers/tokenizer_model.hpp"

namespace heddle {

namespace {

namespace json = boost::json;

/// The dataset that lists the fields.
constexpr char const* fields_name = "fields";

/// Steps are 32-bit words of the counters of random numbers.
constexpr std::int64_t max_steps = std::numeric_limits<std::int32_t>::max();
/// Changes of the training data in one run: each starts an epoch, as otherwise only a step can.
constexpr std::int64_t max_new_data = std::int64_t{1} << 20;
/// Tokens of both sides of the largest batch.
constexpr std::int64_t max_tokens_in_step = std::int64_t{1} << 32;
constexpr std::int64_t max_config_bytes = std::int64_t{16} << 20;
constexpr std::int64_t max_index_bytes = std::int64_t{64} << 20;
constexpr std::int64_t max_fields_bytes = std::int64_t{1} << 20;
constexpr std::int64_t max_cursor_bytes = std::int64_t{512} << 10;
constexpr std::int64_t max_base_bytes = std::int64_t{4} << 20;
constexpr std::int64_t max_state_begin_bytes = max_index_bytes / 8;  // an entry of the index has more than 64 bytes
static_assert(max_config_bytes + max_index_bytes + max_state_begin_bytes + max_fields_bytes + 3 * max_cursor_bytes +
                  max_base_bytes + max_origin_bytes + 2 * max_model_bytes <
              max_state_bytes);

/// Calls use(name, field) for each number of a training state; the names are those of the file's attributes.
template <class State, class Use>
void for_each_field(State& state, Use const& use) {
  use("step", state.step);
  use("epoch", state.epoch);
  use("position", state.position);
  use("tokens", state.tokens);
  use("seed", state.seed);
  use("seconds", state.seconds);
  use("best_valid_loss", state.best_value);
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

/// Throws DataError for numbers that no training leaves. The digests of a checkpoint are not a signature: anyone who
/// can write to its directory can write other numbers and the manifest that belongs to them.
void check_training(TrainingState const& state, std::string const& where) {
  if (std::min({state.step, state.epoch, state.position, state.tokens, state.best_step,
                state.validations_without_improvement}) < 0) {
    throw DataError(where + ": step, epoch, position, tokens, best_step or a count is negative");
  }
  if (state.step > max_steps || state.epoch > state.step + max_new_data || state.best_step > state.step) {
    throw DataError(
        "{}: step {}, epoch {} or best_step {} is impossible; steps go up to {}, best_step up to the step, "
        "and epochs up to the step + {}",
        where, state.step, state.epoch, state.best_step, max_steps, max_new_data);
  }
  if (state.validations_without_improvement > state.step) {
    throw DataError("{}: validations_without_improvement {} is impossible in {} steps", where,
                    state.validations_without_improvement, state.step);
  }
  if (state.tokens / max_tokens_in_step > state.step) {
    throw DataError("{}: {} tokens in {} steps are impossible", where, state.tokens, state.step);
  }
  if (!std::isfinite(state.seconds) || state.seconds < 0) {
    throw DataError("{}: seconds = {} is impossible; expected a finite number from 0 on", where, state.seconds);
  }
  if (!std::isfinite(state.best_value)) {
    throw DataError("{}: best_valid_loss = {} is impossible; expected a finite number", where, state.best_value);
  }
}

/// Runs `parse`, and throws DataError where it fails: the file's `what` cannot be used.
template <class Parse>
void parse_or_refuse(std::string const& path, char const* what, Parse const& parse) {
  try {
    parse();
  } catch (std::bad_alloc const&) {
    throw;
  } catch (std::exception const& error) {
    throw DataError("{}: its {} cannot be used: {}", path, what, error.what());
  }
}

/// A state file that is being read.
struct Reading {
  hdf5::File const& file;
  std::int64_t version;  ///< version of the field
  std::vector<std::int64_t> const& file_bytes;
};

bool write_training(hdf5::File& file, CheckpointIndex const& index) {
  hdf5::Group training = file.create_group("training");
  for_each_field(index.contents.state, writer_of(training));
  return true;
}

void read_training(Reading const& from, CheckpointIndex& index) {
  hdf5::Group const training = from.file.group("training");
  for_each_field(index.contents.state, reader_of(training));
  check_training(index.contents.state, training.where());
}

bool write_losses(hdf5::File& file, CheckpointIndex const& index) {
  LossHistory const& losses = index.contents.losses;
  if (losses.recent.empty()) {
    return false;
  }
  hdf5::Group group = file.create_group("losses");
  group.write_array<double>("recent", {std::ssize(losses.recent)}, losses.recent);
  group.set_attribute("best_mean", losses.best_mean);
  group.set_attribute("best_step", losses.best_step);
  group.set_attribute("risen_steps", losses.risen_steps);
  return true;
}

void read_losses(Reading const& from, CheckpointIndex& index) {
  LossHistory& losses = index.contents.losses;
  hdf5::Group const group = from.file.group("losses");
  hdf5::Array const recent = group.array("recent");
  recent.expect(hdf5::ElementType::float64, {hdf5::any_extent});
  if (recent.size() > static_cast<std::int64_t>(LossHistory::max_recent)) {
    throw DataError("{}: holds {} losses, expected at most {}", recent.where(), recent.size(), LossHistory::max_recent);
  }
  losses.recent = recent.read<double>();
  auto const read = reader_of(group);
  read("best_mean", losses.best_mean);
  read("best_step", losses.best_step);
  read("risen_steps", losses.risen_steps);
  bool const finite = std::ranges::all_of(losses.recent, [](double loss) { return std::isfinite(loss); });
  if (!finite || !std::isfinite(losses.best_mean) || std::min(losses.best_step, losses.risen_steps) < 0 ||
      std::max(losses.best_step, losses.risen_steps) > index.contents.state.step) {
    throw DataError(group.where() + ": a loss is not finite, or best_step or risen_steps is impossible");
  }
}

bool write_config(hdf5::File& file, CheckpointIndex const& index) {
  file.write_bytes("config", index.contents.config);
  return true;
}

void read_config(Reading const& from, CheckpointIndex& index) {
  index.contents.config = from.file.read_bytes("config", max_config_bytes);
}

bool write_tensors(hdf5::File& file, CheckpointIndex const& index) {
  file.write_bytes("index", tensor_index(index.tensors));
  return true;
}

void read_tensors(Reading const& from, CheckpointIndex& index) {
  std::string const text = from.file.read_bytes("index", max_index_bytes);
  parse_or_refuse(from.file.path(), "index",
                  [&] { index.tensors = parse_tensor_index(text, from.version, from.file_bytes); });
}

/// One number for each tensor of the index, 0 where its state began with the run or there is none.
bool write_state_begins(hdf5::File& file, CheckpointIndex const& index) {
  auto const& begins = index.contents.state_begins;
  std::vector<std::int64_t> steps;
  for (TensorInfo const& tensor : index.tensors) {
    auto const found = begins.find(tensor.name);
    steps.push_back(found == begins.end() ? 0 : found->second);
  }
  if (!begins.empty()) {
    file.write_array<std::int64_t>("state_begins", {std::ssize(steps)}, steps);
  }
  return !begins.empty();
}

void read_state_begins(Reading const& from, CheckpointIndex& index) {
  hdf5::Array const array = from.file.array("state_begins");
  array.expect(hdf5::ElementType::int64, {std::ssize(index.tensors)});
  std::vector<std::int64_t> const steps = array.read<std::int64_t>();
  for (std::size_t tensor = 0; tensor < steps.size(); ++tensor) {
    if (steps[tensor] < 0 || steps[tensor] > index.contents.state.step) {
      throw DataError("{}: the state of {} began after step {}, which is impossible at step {}", array.where(),
                      index.tensors[tensor].name, steps[tensor], index.contents.state.step);
    }
    if (steps[tensor] > 0) {
      index.contents.state_begins[index.tensors[tensor].name] = steps[tensor];
    }
  }
}

bool write_vocabulary(hdf5::File& file, CheckpointIndex const& index) {
  hdf5::Group vocabulary = file.create_group("vocabulary");
  vocabulary.write_bytes("source", index.contents.source_model);
  vocabulary.write_bytes("target", index.contents.target_model);
  return true;
}

void read_vocabulary(Reading const& from, CheckpointIndex& index) {
  index.contents.source_model = from.file.read_bytes("vocabulary/source", max_model_bytes);
  index.contents.target_model = from.file.read_bytes("vocabulary/target", max_model_bytes);
}

bool write_origin(hdf5::File& file, CheckpointIndex const& index) {
  if (index.contents.origin.empty()) {
    return false;
  }
  hdf5::Group origin = file.create_group("origin");
  for (auto const& [name, bytes] : index.contents.origin) {
    origin.write_bytes(name, bytes);
  }
  return true;
}

void read_origin(Reading const& from, CheckpointIndex& index) {
  hdf5::Group const origin = from.file.group("origin");
  constexpr std::int64_t for_record = std::int64_t{1} << 20;  // and for pieces that were added to the vocabulary
  std::int64_t left = max_origin_bytes + for_record;
  for (std::string const& name : origin.names()) {
    std::string const& bytes = index.contents.origin[name] = origin.read_bytes(name, left);
    left -= std::ssize(bytes);
  }
}

bool write_base(hdf5::File& file, CheckpointIndex const& index) {
  CheckpointBase const& base = index.contents.base;
  if (!base.digest.empty()) {
    json::object written{
        {"checkpoint", base.checkpoint}, {"digest", base.digest}, {"names", json::value_from(base.names)}};
    if (!base.rounded.empty()) {
      written["rounded"] = json::value_from(base.rounded);
    }
    file.write_bytes("base", json::serialize(written));
  }
  return !base.digest.empty();
}

void read_base(Reading const& from, CheckpointIndex& index) {
  std::string const text = from.file.read_bytes("base", max_base_bytes);
  parse_or_refuse(from.file.path(), "base", [&] {
    json::value const parsed = json::parse(text);
    index.contents.base = {json::value_to<std::string>(parsed.at("checkpoint")),
                           json::value_to<std::string>(parsed.at("digest")),
                           json::value_to<std::map<std::string, std::string>>(parsed.at("names"))};
    if (parsed.as_object().contains("rounded")) {
      index.contents.base.rounded = json::value_to<std::set<std::string>>(parsed.at("rounded"));
    }
  });
}

/// A part of the state file that has a version of its own.
struct Field {
  std::string name;
  std::int64_t version;  ///< the newest one; older ones are read, too
  bool may_be_absent;    ///< there may be nothing to write
  bool optional;         ///< a reader that does not know this version may leave it out
  /// Returns false if there is nothing to write.
  std::function<bool(hdf5::File& file, CheckpointIndex const& index)> write;
  std::function<void(Reading const& from, CheckpointIndex& index)> read;
  /// The version that is written, the lowest that can hold the content; null: the newest.
  std::function<std::int64_t(CheckpointIndex const& index)> written = nullptr;
};

/// A string that may be empty; then it is not in the file. With `max_bytes` it is a dataset, else an attribute, which
/// has at most 64 KiB: some hundred corpora.
Field string_field(std::string const& name, std::string CheckpointContents::*member, std::int64_t max_bytes = 0,
                   bool optional = true) {
  auto const write = [=](hdf5::File& file, CheckpointIndex const& index) {
    std::string const& text = index.contents.*member;
    if (!text.empty()) {
      max_bytes > 0 ? file.write_bytes(name, text) : file.set_attribute(name, text);
    }
    return !text.empty();
  };
  auto const read = [=](Reading const& from, CheckpointIndex& index) {
    index.contents.*member =
        max_bytes > 0 ? from.file.read_bytes(name, max_bytes) : from.file.attribute<std::string>(name);
  };
  return {name, 1, true, optional, write, read};
}

/// A step up to the training state's, or a boolean, that is 0 in most files; then it is not there.
template <class Member>
Field state_field(std::string const& name, Member TrainingState::*member) {
  auto const write = [=](hdf5::File& file, CheckpointIndex const& index) {
    auto const number = static_cast<std::int64_t>(index.contents.state.*member);
    if (number != 0) {
      file.set_attribute(name, number);
    }
    return number != 0;
  };
  auto const read = [=](Reading const& from, CheckpointIndex& index) {
    auto const number = from.file.attribute<std::int64_t>(name);
    if (number < 0 || number > (std::is_same_v<Member, bool> ? 1 : index.contents.state.step)) {
      throw DataError("{}: {} = {} is impossible at step {}", from.file.path(), name, number,
                      index.contents.state.step);
    }
    index.contents.state.*member = static_cast<Member>(number);
  };
  return {name, 1, true, true, write, read};
}

/// All fields, in the order in which they are read: the state's step comes first.
std::vector<Field> const& known_fields() {
  static std::vector<Field> const fields{
      Field{"training", 1, false, false, write_training, read_training},
      state_field("earlier_best", &TrainingState::earlier_best),
      state_field("plateaus", &TrainingState::plateaus),
      state_field("validation_pending", &TrainingState::validation_pending),
      state_field("values_better", &TrainingState::values_better),
      Field{"losses", 1, true, true, write_losses, read_losses},
      Field{"config", 1, false, false, write_config, read_config},
      Field{"vocabulary", 1, false, false, write_vocabulary, read_vocabulary},
      Field{"index", 4, false, false, write_tensors, read_tensors,
            [](CheckpointIndex const& index) { return tensor_index_version(index.tensors); }},
      Field{"state_begins", 1, true, false, write_state_begins, read_state_begins},
      string_field("instruction_set", &CheckpointContents::instruction_set),
      string_field("dataset", &CheckpointContents::dataset),
      string_field("valid_dataset", &CheckpointContents::valid_dataset),
      string_field("further_best", &CheckpointContents::further_best, max_cursor_bytes),
      string_field("begun_line", &CheckpointContents::begun_line, max_cursor_bytes),
      string_field("cursor", &CheckpointContents::cursor, max_cursor_bytes, false),
      Field{"origin", 1, true, true, write_origin, read_origin},
      Field{"base", 2, true, false, write_base, read_base,
            [](CheckpointIndex const& index) { return index.contents.base.rounded.empty() ? 1 : 2; }}};
  return fields;
}

Field const* find_field(std::string const& name) {
  auto const found = std::ranges::find(known_fields(), name, &Field::name);
  return found == known_fields().end() ? nullptr : &*found;
}

/// The versions of the fields that a file lists, {"NAME": {"version": N, "optional": true}}, without optional ones that
/// are not known. Format 3 has no list: each field that is there has its first version.
std::map<std::string, std::int64_t> versions_of_fields(hdf5::File const& file) {
  std::map<std::string, std::int64_t> versions;
  if (checkpoint_format_of(file) == 3) {
    for (Field const& field : known_fields()) {
      if (!field.may_be_absent || file.contains(field.name) || file.has_attribute(field.name)) {
        versions[field.name] = 1;
      }
    }
    return versions;
  }
  auto const add = [&](std::string const& name, json::object const& listed) {
    std::int64_t const version = listed.at("version").as_int64();
    Field const* const field = find_field(name);
    if (field != nullptr && version >= 1 && version <= field->version) {
      versions[name] = version;
      return;
    }
    if (!listed.contains("optional") || !listed.at("optional").as_bool()) {
      throw Error(
          "it has the field \"{}\" of version {}, which this Heddle does not know and must not "
          "leave out; use the Heddle that wrote the checkpoint, or a newer one",
          name, version);
    }
  };
  parse_or_refuse(file.path(), "fields", [&] {
    json::value const parsed = json::parse(file.read_bytes(fields_name, max_fields_bytes));
    for (auto const& [name, listed] : parsed.as_object()) {
      add(name, listed.as_object());
    }
  });
  return versions;
}

}  // namespace

std::string state_file_bytes(CheckpointIndex const& index) {
  auto const image = std::make_shared<hdf5::FileImage>();
  hdf5::File file = hdf5::File::create(image, state_file_name);
  set_checkpoint_format(file);
  json::object written;
  for (Field const& field : known_fields()) {
    if (field.write(file, index)) {
      std::int64_t const version = field.written ? field.written(index) : field.version;
      written[field.name] = {{"version", version}, {"optional", field.optional}};
    }
  }
  file.write_bytes(fields_name, json::serialize(written));
  file.close();
  std::string bytes(static_cast<std::size_t>(image->size()), '\0');
  image->read(0, text_bytes(bytes));
  return bytes;
}

CheckpointIndex read_state_file(std::span<std::uint8_t const> bytes, std::string const& path,
                                std::vector<std::int64_t> const& file_bytes) {
  hdf5::File const file = hdf5::File::open(std::make_shared<hdf5::FileImage>(bytes), path);
  auto const versions = versions_of_fields(file);
  CheckpointIndex index;
  for (Field const& field : known_fields()) {
    auto const found = versions.find(field.name);
    if (found != versions.end()) {
      field.read({file, found->second, file_bytes}, index);
    } else if (!field.may_be_absent) {
      throw DataError("{}: the field \"{}\" is missing", path, field.name);
    }
  }
  return index;
}

}  // namespace heddle
