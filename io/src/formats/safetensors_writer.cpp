#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/formats/safetensors.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <optional>
#include <set>

#include "element_bytes.hpp"
#include "files/file_descriptor.hpp"
#include "files/pending_file.hpp"
#include "safetensors_header.hpp"

namespace heddle {

/// A tensor of the model and its place. Neither this nor the next is in a namespace without a name: State has them.
struct WrittenTensor {
  std::string name;
  StoredTensor stored;
  std::int64_t bytes;
  std::size_t shard = 0;
};

/// A file that is created with its first tensor and closed after its last.
struct WrittenShard {
  explicit WrittenShard(std::filesystem::path path) : pending(std::move(path)) {}

  PendingFile pending;
  std::string header;
  std::size_t missing = 0;  ///< tensors that are not complete
  std::optional<FileDescriptor> file;
};

namespace {

namespace fs = std::filesystem;

constexpr std::size_t write_piece = 65536;  // elements that are converted at once

void refuse_old_weights(fs::path const& directory) {
  for (auto const& entry : fs::directory_iterator(directory)) {
    std::string const name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) {
      throw Error(entry.path().string() + ": is there already; choose a new directory");
    }
  }
}

std::vector<WrittenTensor> checked_tensors(SafetensorsWriter::Tensors tensors, std::string const& where) {
  std::vector<WrittenTensor> checked;
  std::set<std::string_view> names{"__metadata__"};
  for (auto const& [name, tensor] : tensors) {
    check_safetensors_name(name, where);
    if (!names.insert(name).second) {
      throw DataError("{}: tensor {} comes twice, or has the name of the metadata", where, json_quoted(name));
    }
    if (tensor.dtype != "float32" && tensor.dtype != "bfloat16" && tensor.dtype != "float16") {
      throw DataError("{}: tensor {} is of dtype {}; float32, bfloat16 and float16 are written", where,
                      json_quoted(name), tensor.dtype);
    }
    std::int64_t const bytes = safetensors_bytes(name, tensor, where);  // outside of braces: gcc.gnu.org/PR66139
    checked.push_back({name, {tensor, 0}, bytes});
  }
  return checked;
}

/// Chooses each tensor's shard by the rule of huggingface_hub: a tensor that is too large gets a shard of its own, and
/// the other tensors stay in the current shard. Returns the number of shards, at least one.
std::size_t choose_shards(std::vector<WrittenTensor>& tensors, std::int64_t max_bytes) {
  std::vector<std::size_t*> open;  // of the tensors in the shard that is filled
  std::int64_t bytes = 0;
  std::size_t shards = 0;
  auto const close = [&] {
    for (std::size_t* shard : open) {
      *shard = shards;
    }
    shards += open.empty() ? 0 : 1;
    open.clear();
    bytes = 0;
  };
  for (WrittenTensor& tensor : tensors) {
    if (tensor.bytes > max_bytes) {
      tensor.shard = shards++;
      continue;
    }
    if (tensor.bytes > max_bytes - bytes) {
      close();
    }
    open.push_back(&tensor.shard);
    bytes += tensor.bytes;
  }
  close();
  return std::max<std::size_t>(shards, 1);
}

/// Gives the tensors of a shard their places in the library's order, in which each is aligned: float32, bfloat16,
/// float16, by name. Returns the header.
std::string lay_out(std::vector<WrittenTensor>& tensors, std::size_t shard) {
  std::vector<WrittenTensor*> ordered;
  for (WrittenTensor& tensor : tensors) {
    if (tensor.shard == shard) {
      ordered.push_back(&tensor);
    }
  }
  auto const key = [](WrittenTensor const* tensor) {
    std::string const& dtype = tensor->stored.tensor.dtype;
    return std::tuple(dtype == "float32" ? 0 : 1, dtype == "bfloat16" ? 0 : 1, std::string_view(tensor->name));
  };
  std::sort(ordered.begin(), ordered.end(),
            [&](WrittenTensor const* left, WrittenTensor const* right) { return key(left) < key(right); });
  std::vector<std::pair<std::string, StoredTensor>> entries;
  std::int64_t offset = 0;
  for (WrittenTensor* tensor : ordered) {
    tensor->stored.begin = offset;
    offset += tensor->bytes;
    entries.emplace_back(tensor->name, tensor->stored);
  }
  return safetensors_header_text(entries);
}

}  // namespace

struct SafetensorsWriter::State {
  State(fs::path const& place, Tensors list, std::int64_t max_shard_bytes);

  /// Completes the tensors up to the next that lacks elements.
  void settle();
  WrittenShard& begun(std::size_t number);
  void complete(std::size_t number);
  /// Writes elements of one tensor.
  void write_piece_of(WrittenTensor const& tensor, std::span<float const> elements);
  std::string index_text() const;

  fs::path directory;
  std::vector<WrittenTensor> tensors;
  std::deque<WrittenShard> shards;
  std::size_t next = 0;      ///< the tensor that is written
  std::int64_t written = 0;  ///< its elements that are written
  std::vector<std::uint16_t> halves;
};

SafetensorsWriter::State::State(fs::path const& place, Tensors list, std::int64_t max_shard_bytes)
    : directory(place), tensors(checked_tensors(std::move(list), place.string())) {
  make_directory(directory);
  refuse_old_weights(directory);
  std::size_t const count = choose_shards(tensors, max_shard_bytes);
  for (std::size_t shard = 0; shard < count; ++shard) {
    shards.emplace_back(directory / (count == 1 ? std::string("model.safetensors")
                                                : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, count)));
    shards.back().header = lay_out(tensors, shard);
  }
  for (WrittenTensor const& tensor : tensors) {
    ++shards[tensor.shard].missing;
  }
  settle();
}

WrittenShard& SafetensorsWriter::State::begun(std::size_t number) {
  WrittenShard& shard = shards[number];
  if (!shard.file) {
    shard.file.emplace(shard.pending.create());
    write_at(*shard.file, shard.pending.target(), 0, text_bytes(shard.header));
  }
  return shard;
}

void SafetensorsWriter::State::complete(std::size_t number) {
  WrittenShard& shard = begun(number);
  shard.pending.sync();
  if (!shard.file->close()) {
    fail_with_errno(shard.pending.target(), "close the file");
  }
}

void SafetensorsWriter::State::settle() {
  while (next < tensors.size() && written == tensors[next].stored.tensor.elements()) {
    std::size_t const shard = tensors[next].shard;
    if (--shards[shard].missing == 0) {
      complete(shard);
    }
    ++next;
    written = 0;
  }
}

void SafetensorsWriter::State::write_piece_of(WrittenTensor const& tensor, std::span<float const> elements) {
  auto const bytes = element_bytes(tensor.stored.tensor.dtype, elements, halves,
                                   fmt::format("{}: tensor {}", directory.string(), json_quoted(tensor.name)), written);
  WrittenShard& shard = begun(tensor.shard);
  std::int64_t const bytes_each = tensor.bytes / tensor.stored.tensor.elements();
  write_at(*shard.file, shard.pending.target(), std::ssize(shard.header) + tensor.stored.begin + written * bytes_each,
           bytes);
}

std::string SafetensorsWriter::State::index_text() const {
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  std::map<std::string_view, std::size_t> places;
  for (WrittenTensor const& tensor : tensors) {
    elements += tensor.stored.tensor.elements();
    bytes += tensor.bytes;
    places.emplace(tensor.name, tensor.shard);
  }
  std::string text = fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_parameters\": {},\n    \"total_size\": {}\n  }},\n", elements, bytes);
  char const* separator = "  \"weight_map\": {\n";
  for (auto const& [name, shard] : places) {
    text += fmt::format("{}    {}: \"{}\"", std::exchange(separator, ",\n"), json_quoted(name),
                        shards[shard].pending.target().filename().string());
  }
  return text + "\n  }\n}\n";
}

SafetensorsWriter::SafetensorsWriter(fs::path const& directory, Tensors tensors, std::int64_t max_shard_bytes)
    : state_(std::make_unique<State>(directory, std::move(tensors), max_shard_bytes)) {}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(std::span<float const> elements) {
  while (!elements.empty()) {
    if (state_->next == state_->tensors.size()) {
      throw Error("{}: {} elements more than the tensors have", state_->directory.string(), elements.size());
    }
    WrittenTensor const& tensor = state_->tensors[state_->next];
    std::int64_t const room = tensor.stored.tensor.elements() - state_->written;
    auto const count = std::min({elements.size(), static_cast<std::size_t>(room), write_piece});
    state_->write_piece_of(tensor, elements.first(count));
    state_->written += static_cast<std::int64_t>(count);
    elements = elements.subspan(count);
    state_->settle();
  }
}

void SafetensorsWriter::finish() {
  State& state = *state_;
  if (state.next < state.tensors.size()) {
    WrittenTensor const& tensor = state.tensors[state.next];
    throw Error("{}: tensor {} has {} of its {} elements", state.directory.string(), json_quoted(tensor.name),
                state.written, tensor.stored.tensor.elements());
  }
  if (state.tensors.empty()) {
    state.complete(0);
  }
  for (WrittenShard& shard : state.shards) {
    shard.pending.commit();
  }
  if (state.shards.size() > 1) {
    PendingFile index(state.directory / "model.safetensors.index.json");
    index.write(state.index_text());
    index.commit();
  }
}

}  // namespace heddle
