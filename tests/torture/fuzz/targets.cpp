#include "targets.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/files/measured_times.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <string>
#include <vector>

#include "checkpoint/state_file.hpp"
#include "formats/safetensors_header.hpp"

namespace heddle::fuzz {

namespace {

void require(bool good) {
  if (!good) {
    std::abort();
  }
}

void refused_or(std::function<void()> const& action) {
  try {
    action();
  } catch (Error const&) {
    return;
  }
}

std::string text_of(Bytes bytes) {
  return {bytes.begin(), bytes.end()};
}

/// A file in memory, always the same one.
std::string file_with(Bytes bytes) {
  static int const file = ::memfd_create("input", 0);
  require(::ftruncate(file, 0) == 0);
  require(::pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return "/proc/self/fd/" + std::to_string(file);
}

}  // namespace

void config(Bytes bytes) {
  refused_or([&] {
    std::string const read = to_toml(parse_config(text_of(bytes), "run.toml"));
    require(to_toml(parse_config(read, "run.toml")) == read);
  });
}

void manifest(Bytes bytes) {
  refused_or([&] { require(manifest_text(parse_manifest(text_of(bytes), "manifest")) == text_of(bytes)); });
  // The bytes as a manifest's content, with the digest that no fuzzer finds.
  Manifest forged{std::ssize(bytes) - 10, {}};
  for (; bytes.size() > 8; bytes = bytes.subspan(std::min<std::size_t>(bytes.size(), 24))) {
    std::int64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    std::vector<std::string> const blocks(bytes.front() % 4, std::string(64, 'f'));
    forged.files.push_back({text_of(bytes.subspan(8, std::min<std::size_t>(bytes.size() - 8, 16))), length, blocks});
  }
  std::string const text = manifest_text(forged);
  refused_or([&] { require(manifest_text(parse_manifest(text, "manifest")) == text); });
}

void state_file(Bytes bytes) {
  refused_or([&] {
    CheckpointIndex const index = read_state_file(bytes, "state.h5", {60'000});
    require(index.contents.state.step >= 0 && index.contents.state.step < std::int64_t{1} << 31);
    for (TensorInfo const& tensor : index.tensors) {
      require(tensor.file == 0 && tensor.elements() >= 0 && tensor.elements() <= 15'000);
      require(tensor.offsets[0] >= 0 && tensor.offsets[0] + 4 * tensor.elements() <= 60'000);
    }
  });
}

void dataset(Bytes bytes) {
  refused_or([&] {
    Dataset const dataset = Dataset::open(file_with(bytes));
    for (std::int64_t sample = 0; sample < dataset.size(); ++sample) {
      require(!(dataset.has_lines() ? dataset.line(sample) : dataset.source(sample)).empty());
    }
  });
}

void kernel_times(Bytes bytes) {
  refused_or([&] {
    std::string const read = to_json(parse_measured_times(text_of(bytes), "kernels.json"));
    require(to_json(parse_measured_times(read, "kernels.json")) == read);
  });
}

/// The bytes as the JSON of a header, before 60 bytes of tensors.
void safetensors(Bytes bytes) {
  constexpr std::int64_t data_bytes = 60;
  refused_or([&] {
    auto const header = parse_safetensors_header(text_of(bytes), data_bytes, "model");
    std::vector<std::pair<std::string, StoredTensor>> tensors(header.begin(), header.end());
    std::int64_t covered = 0;
    for (auto const& [name, stored] : tensors) {
      std::int64_t const size = safetensors_bytes(name, stored.tensor, "model");
      require(size >= 0 && stored.begin >= 0 && stored.begin <= data_bytes - size && stored.tensor.elements() >= 0);
      covered += size;
    }
    require(covered == data_bytes);
    std::string const text = safetensors_header_text(tensors).substr(safetensors_length_bytes);
    auto const again = parse_safetensors_header(text, data_bytes, "model");
    require(
        std::equal(tensors.begin(), tensors.end(), again.begin(), again.end(), [](auto const& left, auto const& right) {
          return left.first == right.first && left.second.begin == right.second.begin &&
                 left.second.tensor.shape == right.second.tensor.shape &&
                 left.second.tensor.dtype == right.second.tensor.dtype;
        }));
  });
}

}  // namespace heddle::fuzz
