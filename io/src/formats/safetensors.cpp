#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <heddle/core/base/dtype.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/formats/float16.hpp>
#include <heddle/io/formats/safetensors.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <set>

#include "files/file_descriptor.hpp"
#include "safetensors_header.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "the files' order of bytes");

constexpr std::size_t read_piece = 65536;  // elements that are converted at once

/// Opens a file of a model; the message for a link says what to do about the hub's cache, which consists of links.
FileDescriptor open_weights(fs::path const& path) {
  std::error_code ignored;
  if (fs::is_symlink(path, ignored)) {
    throw DataError(path.string() +
                    ": is a symbolic link, which is not followed; copy the model with its files first "
                    "(`cp -rL`)");
  }
  return open_regular(path);
}

bool is_pickle(fs::path const& path) {
  constexpr std::array<std::string_view, 5> endings{".bin", ".pt", ".pth", ".ckpt", ".pkl"};
  return std::find(endings.begin(), endings.end(), path.extension()) != endings.end();
}

[[noreturn]] void refuse_pickle(fs::path const& path) {
  throw DataError(path.string() +
                  ": is a pickle, which can run any code and is not read; convert the model with "
                  "transformers: `AutoModel.from_pretrained(DIR)` of the model's own class, then "
                  "`model.save_pretrained(OUT, safe_serialization=True)`");
}

bool is_there(fs::path const& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

/// The file of a directory that leads to its weights.
fs::path weights_in(fs::path const& directory) {
  for (char const* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (is_there(directory / name)) {
      return directory / name;
    }
  }
  std::error_code problem;
  for (fs::directory_iterator entry(directory, problem); entry != fs::directory_iterator(); entry.increment(problem)) {
    if (is_pickle(entry->path())) {
      refuse_pickle(entry->path());
    }
  }
  throw DataError(directory.string() + ": has neither model.safetensors nor model.safetensors.index.json");
}

/// The index's file for each tensor. Its total_size is not read: of tied tensors, systems count one or all.
std::map<std::string, std::string> read_weight_map(fs::path const& path) {
  open_weights(path);
  std::string const text = read_regular(path, max_safetensors_header_bytes + 1).value_or("");
  if (std::ssize(text) > max_safetensors_header_bytes) {
    throw DataError("{}: is longer than {} bytes", path.string(), readable_count(max_safetensors_header_bytes));
  }
  std::map<std::string, std::string> weight_map;
  read_json_items(text, path.string(), [&](JsonItem const& item) {
    if (item.keys.size() != 2 || item.keys[0] != "weight_map") {
      return;
    }
    std::string const& name = item.keys[1];
    check_safetensors_name(name, path.string());
    bool const plain = item.kind == JsonItem::Kind::text && !item.in_list && item.text.ends_with(".safetensors") &&
                       item.text.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
    if (!plain) {
      throw DataError("{}: tensor {} must map to a plain file name ending in .safetensors in its directory",
                      path.string(), json_quoted(name));
    }
    if (!weight_map.emplace(name, item.text).second || weight_map.size() > max_safetensors_names) {
      throw DataError("{}: has tensor {} twice, or too many", path.string(), json_quoted(name));
    }
  });
  if (weight_map.empty()) {
    throw DataError(path.string() + ": is not the index of a model: it has no weight_map");
  }
  return weight_map;
}

/// The tensors in the header of an opened file, and the header's bytes, the length included.
std::pair<std::map<std::string, StoredTensor>, std::int64_t> read_header(FileDescriptor const& file,
                                                                         fs::path const& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) {
    throw DataError(path.string() + ": cannot be read: " + std::strerror(errno));
  }
  std::uint64_t length = 0;
  std::array<std::uint8_t, sizeof length> bytes{};
  std::int64_t const rest = status.st_size - safetensors_length_bytes;
  if (read_at(file, path, 0, bytes) < bytes.size() || rest < 0) {
    throw DataError(path.string() + ": is not a safetensors file: it ends before the length of its header");
  }
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > static_cast<std::uint64_t>(std::min(rest, max_safetensors_header_bytes))) {
    throw DataError(
        "{}: is not a safetensors file: it states a header of {} bytes, and the file has {} "
        "and the format {} at most",
        path.string(), length, rest, readable_count(max_safetensors_header_bytes));
  }
  std::string text(length, '\0');
  text.resize(read_at(file, path, safetensors_length_bytes, text_bytes(text)));
  auto const header_bytes = static_cast<std::int64_t>(length);
  return {parse_safetensors_header(text, rest - header_bytes, path.string()), safetensors_length_bytes + header_bytes};
}

template <class Half>
void widen(std::span<std::uint16_t const> from, float* to) {
  for (std::uint16_t const bits : from) {
    Half half;
    half.bits = bits;
    *to++ = static_cast<float>(half);
  }
}

}  // namespace

SafetensorsFiles SafetensorsFiles::open(fs::path const& place) {
  std::error_code ignored;
  fs::path const path = fs::is_directory(place, ignored) ? weights_in(place) : place;
  if (is_pickle(path)) {
    refuse_pickle(path);
  }
  SafetensorsFiles files;
  if (path.extension() == ".json") {
    files.add_shards(path);
  } else {
    files.add(path);
  }
  return files;
}

void SafetensorsFiles::add(fs::path const& path) {
  auto file = std::make_shared<FileDescriptor const>(open_weights(path));
  auto [tensors, bytes] = read_header(*file, path);
  for (auto& [name, stored] : tensors) {
    auto const [place, added] = places_.try_emplace(name, Place{files_.size(), bytes + stored.begin});
    if (!added) {
      throw DataError("{}: has tensor {}, as {} has", path.string(), json_quoted(name),
                      files_[place->second.file].path.string());
    }
    tensors_.emplace(name, std::move(stored.tensor));
  }
  files_.push_back({path, std::move(file)});
}

void SafetensorsFiles::add_shards(fs::path const& index) {
  std::map<std::string, std::string> const weight_map = read_weight_map(index);
  std::set<std::string> shards;
  for (auto const& [name, shard] : weight_map) {
    shards.insert(shard);
  }
  index_ = {index};
  for (std::string const& shard : shards) {
    add(index.parent_path() / shard);
  }
  for (auto const& [name, shard] : weight_map) {
    auto const place = places_.find(name);
    if (place == places_.end() || files_[place->second.file].path.filename() != shard) {
      throw DataError("{}: names {} for tensor {}, which is not in it", index.string(), shard, json_quoted(name));
    }
  }
}

std::vector<fs::path> SafetensorsFiles::files() const {
  std::vector<fs::path> paths = index_;
  std::transform(files_.begin(), files_.end(), std::back_inserter(paths), [](File const& file) { return file.path; });
  return paths;
}

void SafetensorsFiles::read_bytes(std::string const& name, std::int64_t offset, std::span<std::uint8_t> bytes) const {
  Place const& place = places_.at(name);
  File const& file = files_[place.file];
  if (read_at(*file.descriptor, file.path, place.offset + offset, bytes) < bytes.size()) {
    throw DataError("{}: ends within tensor {}: it became shorter since it was opened", file.path.string(),
                    json_quoted(name));
  }
}

void SafetensorsFiles::read(std::string const& name, IndexRange const& elements, std::span<float> into) const {
  auto const found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw Error("no tensor {} in {}", json_quoted(name), files().front().string());
  }
  ForeignTensor const& tensor = found->second;
  if (elements.begin < 0 || elements.count() != std::ssize(into) || elements.end > tensor.elements()) {
    throw Error("elements {} to {} of tensor {}, which has {}, into {}", elements.begin, elements.end,
                json_quoted(name), tensor.elements(), into.size());
  }
  fs::path const& path = files_[places_.at(name).file].path;
  bool const is_bfloat16 = tensor.dtype == "bfloat16";
  if (tensor.dtype == "float32") {
    read_bytes(name, elements.begin * std::int64_t{sizeof(float)},
               {reinterpret_cast<std::uint8_t*>(into.data()), into.size_bytes()});
  } else if (is_bfloat16 || tensor.dtype == "float16") {
    std::vector<std::uint16_t> halves(std::min(into.size(), read_piece));
    for (std::size_t done = 0; done < into.size(); done += halves.size()) {
      halves.resize(std::min(into.size() - done, read_piece));
      read_bytes(name, (elements.begin + static_cast<std::int64_t>(done)) * std::int64_t{sizeof(std::uint16_t)},
                 {reinterpret_cast<std::uint8_t*>(halves.data()), halves.size() * sizeof(std::uint16_t)});
      (is_bfloat16 ? widen<BFloat16> : widen<Float16>)(halves, into.data() + done);
    }
  } else {
    throw DataError("{}: tensor {} is of dtype {}; float32, bfloat16 and float16 are read", path.string(),
                    json_quoted(name), tensor.dtype);
  }
  auto const bad = std::find_if_not(into.begin(), into.end(), [](float value) { return std::isfinite(value); });
  if (bad != into.end()) {
    throw DataError("{}: tensor {} has {} at element {}", path.string(), json_quoted(name), *bad,
                    elements.begin + (bad - into.begin()));
  }
}

}  // namespace heddle
