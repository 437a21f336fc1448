#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/checkpoint/manifest.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/hdf5/hdf5.hpp>
#include <span>

#include "block_reader.hpp"
#include "state_file.hpp"
#include "tensor_files.hpp"
#include "together.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t largest_state_file = std::int64_t{1} << 30;

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
    if (state.name != state_file_name || state.bytes > largest_state_file) {
      throw DataError((directory / manifest_file_name).string() + ": does not begin with a state.h5 of at most 1 GiB");
    }
    BlockReader reader(directory / state.name, state, std::make_shared<BlockCache>());
    texts.state.resize(static_cast<std::size_t>(state.bytes));
    reader.read(0, {reinterpret_cast<std::uint8_t*>(texts.state.data()), texts.state.size()});
  });
  texts.manifest = broadcast_text(world, texts.manifest);
  texts.state = broadcast_text(world, texts.state);
  return texts;
}

/// The readers of the files with tensors. Throws DataError if the manifest names other files.
std::vector<std::shared_ptr<BlockReader>> open_tensor_files(fs::path const& directory, Manifest const& manifest) {
  auto const cache = std::make_shared<BlockCache>();
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

/// Verifies this rank's share of the blocks of all files.
void verify_share(std::vector<std::shared_ptr<BlockReader>> const& files, Communicator const& world) {
  std::int64_t blocks = 0;
  for (auto const& file : files) {
    blocks += file->blocks();
  }
  IndexRange const mine = share(blocks, world.rank(), world.size());
  std::int64_t first = 0;
  for (auto const& file : files) {
    std::int64_t const end = std::min(mine.end - first, file->blocks());
    for (std::int64_t block = std::max<std::int64_t>(mine.begin - first, 0); block < end; ++block) {
      file->verify(block);
    }
    first += file->blocks();
  }
}

void check_numbers(std::vector<float> const& numbers, TensorPart part, std::string const& where) {
  bool const good = std::all_of(numbers.begin(), numbers.end(), [part](float number) {
    return std::isfinite(number) && (part != TensorPart::second_moment || number >= 0);
  });
  if (!good) {
    throw DataError(where + " holds numbers that no training leaves: infinite, not a number" +
                    (part == TensorPart::second_moment ? ", or negative" : ""));
  }
}

}  // namespace

Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint::Checkpoint(fs::path directory, CheckpointIndex index, std::vector<std::shared_ptr<BlockReader>> files)
    : directory_(std::move(directory)), index_(std::move(index)), files_(std::move(files)) {
  for (std::size_t tensor = 0; tensor < index_.tensors.size(); ++tensor) {
    by_name_[index_.tensors[tensor].name] = tensor;
  }
}

Checkpoint Checkpoint::open(fs::path const& directory, Communicator const& world) {
  SmallFiles const texts = read_small_files(directory, world);
  CheckpointIndex index;
  std::vector<std::shared_ptr<BlockReader>> files;
  together(world, [&] {
    Manifest const manifest = parse_manifest(texts.manifest, (directory / manifest_file_name).string());
    std::span const state(reinterpret_cast<std::uint8_t const*>(texts.state.data()), texts.state.size());
    FileHash hash(state_file_name);
    hash.add(state);
    if (hash.finish().blocks != manifest.files.front().blocks) {
      throw DataError((directory / state_file_name).string() + ": arrived here with other bytes than rank 0 has read");
    }
    files = open_tensor_files(directory, manifest);
    std::vector<std::int64_t> file_bytes;
    for (auto const& file : files) {
      file_bytes.push_back(file->size());
    }
    index = read_state_file(state, (directory / state_file_name).string(), file_bytes);
    check_step(directory, index.contents.state.step, manifest.step);
    verify_share(files, world);
    for (auto number = static_cast<std::size_t>(world.rank()); number < files.size();
         number += static_cast<std::size_t>(world.size())) {
      check_tensor_file(files[number], files[number]->path().string(), index.tensors, number);
    }
  });
  return {directory, std::move(index), std::move(files)};
}

TensorInfo const& Checkpoint::tensor(std::string const& name) const {
  auto const found = by_name_.find(name);
  if (found == by_name_.end()) {
    throw DataError(directory_.string() + ": has no parameter '" + name + "'");
  }
  return index_.tensors[found->second];
}

std::vector<float> Checkpoint::read(std::string const& name, Part part) const {
  return read(name, part, 0, 0, tensor(name).shape.front());
}

std::vector<float> Checkpoint::read(std::string const& name, Part part, int axis, std::int64_t begin,
                                    std::int64_t count) const {
  TensorInfo const& info = tensor(name);
  std::string const where = directory_.string() + ": parameter '" + name + "'";
  if (part != Part::value && !info.has_moments) {
    throw DataError(where + " has no " + part_name(part) +
                    "; this is an exported model, from which training cannot resume");
  }
  if (axis < -1 || axis >= static_cast<int>(info.shape.size())) {
    throw Error(where + " has no axis " + std::to_string(axis));
  }
  std::int64_t const extent = axis < 0 ? 1 : info.shape[static_cast<std::size_t>(axis)];
  IndexRange const wanted = axis < 0 ? IndexRange{0, 1} : IndexRange{begin, begin + count};
  if (wanted.begin < 0 || wanted.begin > wanted.end || wanted.end > extent) {
    throw DataError(where + " has " + std::to_string(extent) + " indices along axis " + std::to_string(axis) +
                    ", not " + std::to_string(wanted.begin) + " to " + std::to_string(wanted.end));
  }
  std::int64_t inner = 1;
  for (auto later = static_cast<std::size_t>(axis + 1); later < info.shape.size(); ++later) {
    inner *= info.shape[later];
  }
  std::int64_t const elements = info.elements();
  std::int64_t const run = wanted.count() * inner;
  std::vector<float> numbers(static_cast<std::size_t>(elements == 0 ? 0 : elements / (extent * inner) * run));
  std::span<float> left(numbers);
  for (std::int64_t first = wanted.begin * inner; !left.empty(); first += extent * inner) {
    auto const to = std::as_writable_bytes(left.first(static_cast<std::size_t>(run)));
    files_[info.file]->read(
        info.offsets[static_cast<std::size_t>(part)] + first * static_cast<std::int64_t>(sizeof(float)),
        {reinterpret_cast<std::uint8_t*>(to.data()), to.size()});
    left = left.subspan(static_cast<std::size_t>(run));
  }
  check_numbers(numbers, part, where + "'s " + part_name(part));
  return numbers;
}

}  // namespace heddle
