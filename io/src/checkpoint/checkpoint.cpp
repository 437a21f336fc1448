#include <algorithm>
#include <array>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/core/tensor/slice.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/hdf5/hdf5.hpp>
#include <heddle/io/tensors/manifest.hpp>

#include "parallel/run_collectively.hpp"
#include "state_file.hpp"
#include "tensors/block_reader.hpp"
#include "tensors/spread_files.hpp"
#include "tensors/tensor_files.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

/// The texts of the manifest and of the state file.
struct SmallFiles {
  std::string manifest;
  std::string state;
};

/// Reads both once, for all ranks. Collective over `world`.
SmallFiles read_small_files(fs::path const& directory, Communicator const& world) {
  SmallFiles texts;
  on_rank_0(world, [&] {
    Manifest const manifest = verify_file_sizes(directory);
    texts.manifest = manifest_text(manifest);
    FileDigest const& state = manifest.files.front();
    if (state.name != state_file_name || state.bytes > max_state_bytes) {
      throw DataError((directory / manifest_file_name).string() + ": does not begin with a state.h5 of at most " +
                      std::to_string(max_state_bytes >> 20) + " MiB");
    }
    BlockReader reader(directory / state.name, state, make_block_cache());
    texts.state.resize(static_cast<std::size_t>(state.bytes));
    reader.read(0, text_bytes(texts.state));
  });
  texts.manifest = broadcast_text(world, texts.manifest);
  texts.state = broadcast_text(world, texts.state);
  return texts;
}

/// The readers of the files with tensors. Throws DataError if the manifest names other files.
std::vector<std::shared_ptr<BlockReader>> open_tensor_files(fs::path const& directory, Manifest const& manifest) {
  auto const cache = make_block_cache();
  std::vector<std::shared_ptr<BlockReader>> files;
  for (std::size_t number = 0; number + 1 < manifest.files.size(); ++number) {
    FileDigest const& file = manifest.files[number + 1];
    if (file.name != tensor_file_name(number)) {
      throw DataError((directory / manifest_file_name).string() + ": names the file " + file.name + ", expected " +
                      tensor_file_name(number));
    }
    files.push_back(std::make_shared<BlockReader>(directory / file.name, file, cache));
  }
  return files;
}

void check_step(fs::path const& directory, std::int64_t step, std::int64_t manifest_step) {
  if (step != manifest_step) {
    throw DataError((directory / state_file_name).string() + ": is of step " + std::to_string(step) +
                    ", the manifest of step " + std::to_string(manifest_step));
  }
  std::string name = directory.filename().string();
  auto const named_step = checkpoint_step(name.empty() ? directory.parent_path().filename().string() : name);
  if (named_step && *named_step != step) {
    throw DataError(directory.string() + ": holds a checkpoint of step " + std::to_string(step));
  }
}

/// Marks the blocks of a file that have these bytes, which are not empty.
void mark(std::vector<bool>& blocks, IndexRange const& bytes) {
  std::int64_t const last = (bytes.end - 1) / manifest_block_bytes;
  for (std::int64_t block = bytes.begin / manifest_block_bytes; block <= last; ++block) {
    blocks[static_cast<std::size_t>(block)] = true;
  }
}

bool is_wanted(WantedKeys const& keys, std::string const& key) {
  return keys.empty() || std::ranges::find(keys, key) != keys.end();
}

/// Verifies this rank's share of the blocks that have arrays of these keys, or of all blocks.
void verify_share(std::vector<std::shared_ptr<BlockReader>> const& files, std::vector<TensorInfo> const& tensors,
                  WantedKeys const& keys, Communicator const& world) {
  std::vector<std::vector<bool>> wanted;
  for (auto const& file : files) {
    wanted.emplace_back(file->blocks(), keys.empty());
  }
  for (TensorInfo const& tensor : tensors) {
    for (std::size_t key = 0; key < tensor.keys.size(); ++key) {
      std::int64_t const bytes = tensor.elements(tensor.keys[key]) * tensor.element_bytes();
      if (bytes > 0 && is_wanted(keys, tensor.keys[key])) {
        mark(wanted[tensor.file], {tensor.offsets[key], tensor.offsets[key] + bytes});
      }
    }
  }
  std::vector<std::pair<BlockReader*, std::int64_t>> blocks;
  for (std::size_t file = 0; file < files.size(); ++file) {
    for (std::int64_t block = 0; block < files[file]->blocks(); ++block) {
      if (wanted[file][static_cast<std::size_t>(block)]) {
        blocks.emplace_back(files[file].get(), block);
      }
    }
  }
  IndexRange const mine = share(std::ssize(blocks), world.rank(), world.size());
  for (auto index = mine.begin; index < mine.end; ++index) {
    auto const& [file, block] = blocks[static_cast<std::size_t>(index)];
    file->verify(block);
  }
}

/// Lets readers of values find the averages there, where an update has made one.
void exchange_averages(CheckpointIndex& index) {
  CheckpointContents const& contents = index.contents;
  for (TensorInfo& tensor : index.tensors) {
    auto const average = tensor.find(average_key);
    auto const begin = contents.state_begins.find(tensor.name);
    if (average && contents.state.step > (begin == contents.state_begins.end() ? 0 : begin->second)) {
      std::swap(tensor.offsets.at(*average), tensor.offsets.at(*tensor.find(value_key)));
    }
  }
}

/// The index in a state file's text. Throws DataError unless it is of the manifest's step and files.
CheckpointIndex read_index(fs::path const& directory, std::string const& text, Manifest const& manifest) {
  if (digest_of(state_file_name, text).blocks != manifest.files.front().blocks) {
    throw DataError((directory / state_file_name).string() + ": arrived here with other bytes than were read");
  }
  std::vector<std::int64_t> file_bytes;
  for (std::size_t number = 1; number < manifest.files.size(); ++number) {
    file_bytes.push_back(manifest.files[number].bytes);
  }
  CheckpointIndex index = read_state_file(text_bytes(text), (directory / state_file_name).string(), file_bytes);
  check_step(directory, index.contents.state.step, manifest.step);
  return index;
}

/// Bytes of a file and the memory for them.
struct Piece {
  IndexRange bytes;
  std::uint8_t* into;
};

std::int64_t bytes_in(std::vector<IndexRange> const& ranges) {
  std::int64_t bytes = 0;
  for (IndexRange const& range : ranges) {
    bytes += range.count();
  }
  return bytes;
}

/// The last `bytes` bytes of the memory of numbers.
std::span<std::uint8_t> last_bytes(std::span<float> numbers, std::int64_t bytes) {
  return std::span(reinterpret_cast<std::uint8_t*>(numbers.data()), numbers.size_bytes())
      .last(static_cast<std::size_t>(bytes));
}

/// The beginning of messages about a parameter.
std::string describe(fs::path const& directory, std::string const& parameter) {
  return directory.string() + ": parameter '" + parameter + "'";
}

}  // namespace

std::vector<IndexRange> Checkpoint::bytes_of(TensorSlice const& slice) const {
  TensorInfo const& info = tensor(slice.name);
  std::string const where = describe(directory_, slice.name);
  auto const key = info.find(slice.key);
  if (!key) {
    throw DataError(where + " has no " + slice.key + ", without which training cannot resume");
  }
  if (!is_wanted(keys_, slice.key)) {
    throw Error(where + ": its " + slice.key + " was not verified, because it was opened without that key");
  }
  std::vector<std::int64_t> const& shape = info.shape_of(slice.key);
  if (slice.ranges.size() > shape.size()) {
    throw Error(where + " has no axis " + std::to_string(shape.size()));
  }
  for (std::size_t axis = 0; axis < slice.ranges.size(); ++axis) {
    IndexRange const& wanted = slice.ranges[axis];
    if (wanted.begin < 0 || wanted.begin > wanted.end || wanted.end > shape[axis]) {
      throw DataError(where + " has " + std::to_string(shape[axis]) + " indices along axis " + std::to_string(axis) +
                      ", not " + std::to_string(wanted.begin) + " to " + std::to_string(wanted.end));
    }
  }
  Slice const wanted(shape, slice.ranges);
  IndexRange const kept = slice.elements.value_or(IndexRange{0, wanted.size()});
  if (kept.begin < 0 || kept.begin > kept.end || kept.end > wanted.size()) {
    throw DataError(where + " has " + std::to_string(wanted.size()) + " elements there, not " +
                    std::to_string(kept.begin) + " to " + std::to_string(kept.end));
  }
  std::int64_t const size = info.element_bytes();
  std::vector<IndexRange> ranges;
  wanted.for_each_run(kept, [&](std::int64_t /*first*/, std::int64_t index, std::int64_t count) {
    std::int64_t const begin = info.offsets[*key] + index * size;
    ranges.push_back({begin, begin + count * size});
  });
  return ranges;
}

std::vector<TensorSlice> slabs_of(TensorInfo const& tensor, std::string const& key, std::int64_t max_elements) {
  std::int64_t const rows = tensor.shape_of(key).front();
  std::int64_t const elements = tensor.elements(key);
  if (elements <= max_elements || rows < 2) {
    return {{tensor.name, key, {{0, rows}}}};
  }
  std::int64_t const max_rows = std::max<std::int64_t>(1, max_elements / (elements / rows));
  std::vector<TensorSlice> slabs;
  for (std::int64_t row = 0; row < rows; row += max_rows) {
    slabs.push_back({tensor.name, key, {{row, std::min(row + max_rows, rows)}}});
  }
  return slabs;
}

Checkpoint::Checkpoint(fs::path directory, std::string digest, CheckpointIndex index, Files files, WantedKeys keys)
    : directory_(std::move(directory)),
      digest_(std::move(digest)),
      index_(std::move(index)),
      files_(std::move(files)),
      keys_(std::move(keys)) {
  number_tensors();
}

void Checkpoint::number_tensors() {
  for (std::size_t tensor = 0; tensor < index_.tensors.size(); ++tensor) {
    by_name_[index_.tensors[tensor].name] = tensor;
  }
}

Checkpoint Checkpoint::open(fs::path const& directory, Communicator const& world, WantedKeys const& keys,
                            Verification verification) {
  SmallFiles const texts = read_small_files(directory, world);
  CheckpointIndex index;
  std::vector<TensorInfo> stored;
  std::vector<std::shared_ptr<BlockReader>> files;
  run_collectively(world, [&] {
    Manifest const manifest = parse_manifest(texts.manifest, (directory / manifest_file_name).string());
    files = open_tensor_files(directory, manifest);
    index = read_index(directory, texts.state, manifest);
    stored = index.tensors;
    if (keys == WantedKeys{value_key} && !index.contents.state.values_better) {
      exchange_averages(index);
    }
    if (verification == Verification::at_opening) {
      verify_share(files, index.tensors, keys, world);
    }
  });
  // After the digests of the blocks, whose errors name the damage better than HDF5 does.
  run_collectively(world, [&] {
    if (verification == Verification::at_reading) {
      return;  // the index says where the arrays are
    }
    for (auto number = static_cast<std::size_t>(world.rank()); number < files.size();
         number += static_cast<std::size_t>(world.size())) {
      check_tensor_file(files[number], files[number]->path().string(), stored, number);
    }
  });
  return {directory, sha256(texts.manifest), std::move(index), {files.begin(), files.end()}, keys};
}

Checkpoint Checkpoint::open(fs::path const& directory, std::shared_ptr<SpreadFiles> spread, Communicator const& world) {
  Manifest const& manifest = spread->manifest();
  std::string const state = spread->state();
  CheckpointIndex index;
  Files files;
  run_collectively(world, [&] {
    index = read_index(directory, state, manifest);
    for (std::size_t number = 0; number + 1 < manifest.files.size(); ++number) {
      auto const& reader = spread->reader(number + 1);
      files.push_back(reader);
      if (spread->parses(number + 1)) {
        check_tensor_file(reader, reader->path().string(), index.tensors, number);
      }
    }
  });
  Checkpoint opened(directory, sha256(manifest_text(manifest)), std::move(index), std::move(files), {});
  opened.spread_ = std::move(spread);
  return opened;
}

TensorInfo const& Checkpoint::tensor(std::string const& name) const {
  auto const found = by_name_.find(name);
  if (found == by_name_.end()) {
    throw DataError(directory_.string() + ": has no parameter '" + name + "'");
  }
  return index_.tensors[found->second];
}

bool Checkpoint::lacks_base() const {
  return std::ranges::any_of(contents().base.names, [&](auto const& name) { return !contains(name.first); });
}

void Checkpoint::attach(std::shared_ptr<Checkpoint const> base) {
  for (auto const& [here, there] : contents().base.names) {
    if (!contains(here)) {
      TensorInfo& tensor = index_.tensors.emplace_back(base->tensor(there));
      tensor.name = here;
      tensor.keys = {value_key};
      tensor.other_shapes.clear();
      in_base_[here] = there;
    }
  }
  try {
    check_tensors(index_.tensors);
  } catch (Error const& error) {
    throw DataError(directory_.string() + ", with parameters of its base: " + error.what());
  }
  std::ranges::sort(index_.tensors, {}, &TensorInfo::name);
  number_tensors();
  base_ = std::move(base);
}

void Checkpoint::finish(TensorSlice const& slice, std::span<float> numbers) const {
  if (tensor(slice.name).dtype == DType::bfloat16) {
    auto const* const halves =
        reinterpret_cast<std::uint8_t const*>(numbers.data() + numbers.size()) - numbers.size() * sizeof(BFloat16);
    std::array<BFloat16, 256> some;
    for (std::size_t done = 0; done < numbers.size();) {  // never writes to halves that are still to be read
      std::size_t const count = std::min(some.size(), numbers.size() - done);
      std::memcpy(some.data(), halves + done * sizeof(BFloat16), count * sizeof(BFloat16));
      std::transform(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count),
                     numbers.begin() + static_cast<std::ptrdiff_t>(done),
                     [](BFloat16 half) { return static_cast<float>(half); });
      done += count;
    }
  }
  std::string const refused = refused_values(numbers, slice.key);
  if (!refused.empty()) {
    throw DataError(describe(directory_, slice.name) + "'s " + slice.key + " holds " + refused +
                    ", which no training leaves");
  }
}

std::vector<float> Checkpoint::read(TensorSlice const& slice) const {
  if (auto const found = in_base_.find(slice.name); found != in_base_.end()) {
    TensorSlice there = slice;
    there.name = found->second;
    std::vector<float> numbers = base_->read(there);
    round_of_base(slice.name, numbers);
    return numbers;
  }
  TensorInfo const& info = tensor(slice.name);
  auto const& file = files_[info.file];
  std::vector<IndexRange> const ranges = bytes_of(slice);
  if (!ranges.empty() && file == nullptr) {
    throw Error(describe(directory_, slice.name) + " is on another host, and was not fetched");
  }
  std::vector<float> numbers(static_cast<std::size_t>(bytes_in(ranges) / info.element_bytes()));
  std::span left = last_bytes(numbers, bytes_in(ranges));
  for (IndexRange const& range : ranges) {
    auto const count = static_cast<std::size_t>(range.count());
    file->read(range.begin, left.first(count));
    left = left.subspan(count);
  }
  finish(slice, numbers);
  return numbers;
}

void Checkpoint::read(std::span<SliceInto const> wanted) const {
  std::vector<SliceInto> here, in_base;
  for (SliceInto const& each : wanted) {
    auto const found = in_base_.find(each.slice.name);
    (found == in_base_.end() ? here : in_base).push_back(each);
    if (found != in_base_.end()) {
      in_base.back().slice.name = found->second;
    }
  }
  read_blocks(here);
  if (!in_base.empty()) {
    base_->read(in_base);
  }
  for (SliceInto const& each : wanted) {
    round_of_base(each.slice.name, each.into);
  }
}

void Checkpoint::round_of_base(std::string const& name, std::span<float> numbers) const {
  if (in_base(name) && contents().base.rounded.contains(name)) {
    std::ranges::transform(numbers, numbers.begin(), [](float number) { return static_cast<float>(BFloat16(number)); });
  }
}

void Checkpoint::read_blocks(std::span<SliceInto const> wanted) const {
  std::map<std::pair<std::size_t, std::int64_t>, std::vector<Piece>> by_block;
  for (auto const& [slice, into] : wanted) {
    TensorInfo const& info = tensor(slice.name);
    std::vector<IndexRange> const ranges = bytes_of(slice);
    if (bytes_in(ranges) != std::ssize(into) * info.element_bytes()) {
      throw Error(describe(directory_, slice.name) + ": memory for " + std::to_string(into.size()) + " elements");
    }
    std::uint8_t* memory = last_bytes(into, bytes_in(ranges)).data();
    for (IndexRange left : ranges) {
      while (left.begin < left.end) {
        std::int64_t const block = left.begin / manifest_block_bytes;
        std::int64_t const end = std::min(left.end, (block + 1) * manifest_block_bytes);
        by_block[{info.file, block}].push_back({{left.begin, end}, memory});
        memory += end - left.begin;
        left.begin = end;
      }
    }
  }
  std::vector<decltype(by_block)::value_type const*> blocks;
  std::ranges::transform(by_block, std::back_inserter(blocks), [](auto const& block) { return &block; });
  in_threads(std::ssize(blocks), [&] {
    return [&, bytes = std::vector<std::uint8_t>()](std::int64_t index) mutable {
      auto const& [place, pieces] = *blocks[static_cast<std::size_t>(index)];
      auto const* const file = dynamic_cast<BlockReader const*>(files_[place.first].get());
      if (file == nullptr) {
        throw Error(directory_.string() + ": is not on the disk, and cannot be read by blocks");
      }
      file->load(place.second, bytes);
      for (Piece const& piece : pieces) {
        std::memcpy(piece.into, bytes.data() + (piece.bytes.begin - place.second * manifest_block_bytes),
                    static_cast<std::size_t>(piece.bytes.count()));
      }
    };
  });
  in_threads(std::ssize(wanted), [&] {
    return [&](std::int64_t index) {
      auto const& [slice, into] = wanted[static_cast<std::size_t>(index)];
      finish(slice, into);
    };
  });
}

void Checkpoint::fetch(std::vector<TensorSlice> const& slices, Communicator const& world) {
  if (spread_ == nullptr) {
    return;
  }
  std::vector<FileDigest> const& files = spread_->manifest().files;
  SpreadFiles::Blocks needed(files.size());
  for (std::size_t file = 0; file < files.size(); ++file) {
    needed[file].resize(files[file].blocks.size());
  }
  run_collectively(world, [&] {
    for (TensorSlice const& slice : slices) {
      if (in_base_.contains(slice.name)) {
        continue;
      }
      for (IndexRange const& bytes : bytes_of(slice)) {
        mark(needed[tensor(slice.name).file + 1], bytes);
      }
    }
  });
  spread_->fetch(needed);
  for (std::size_t number = 0; number < files_.size(); ++number) {
    files_[number] = spread_->reader(number + 1);
  }
}

}  // namespace heddle
