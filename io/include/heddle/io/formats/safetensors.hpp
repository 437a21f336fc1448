#pragma once

#include <filesystem>
#include <heddle/io/formats/foreign_tensors.hpp>
#include <memory>
#include <utility>

namespace heddle {

class FileDescriptor;

/// The tensors of a model in safetensors files (github.com/huggingface/safetensors): one file, or shards with an index.
/// Headers are checked whole before anything is read: at most 100 MB and 1,000,000 tensors, which cover the rest of
/// their file without holes or overlaps. The files are read, not mapped: one that shrinks is an error, not a signal.
class SafetensorsFiles final : public ForeignTensors {
 public:
  /// Opens a .safetensors file, an index (*.index.json) and its shards, or a directory that has model.safetensors or
  /// model.safetensors.index.json. Symbolic links and shards outside the index's directory are refused. Throws
  /// DataError for all that is not such a model; where the weights are pickles, it says how to convert them.
  static SafetensorsFiles open(std::filesystem::path const& place);

  /// A tensor that is not of float32, bfloat16 or float16 has the file's name of its dtype in lower case ("i64"), and
  /// reading it throws DataError: integer tensors (position ids) are never imported.
  std::map<std::string, ForeignTensor> const& tensors() const override { return tensors_; }
  void read(std::string const& name, IndexRange const& elements, std::span<float> into) const override;

  /// The files that were opened: the index, if there is one, and those with the tensors.
  std::vector<std::filesystem::path> files() const;

 private:
  struct File {
    std::filesystem::path path;
    std::shared_ptr<FileDescriptor const> descriptor;
  };
  struct Place {
    std::size_t file;
    std::int64_t offset;  ///< of the first element in the file, in bytes
  };

  SafetensorsFiles() = default;
  void add(std::filesystem::path const& path);
  void add_shards(std::filesystem::path const& index);
  void read_bytes(std::string const& name, std::int64_t offset, std::span<std::uint8_t> bytes) const;

  std::map<std::string, ForeignTensor> tensors_;
  std::map<std::string, Place> places_;
  std::vector<File> files_;
  std::vector<std::filesystem::path> index_;  ///< empty or one
};

/// Writes a model's tensors as `save_pretrained` of transformers does: model.safetensors, or shards
/// model-0000N-of-0000M.safetensors and their index, with the bytes that the safetensors library writes. Files appear
/// under their names in finish(); without it no file is left.
class SafetensorsWriter {
 public:
  using Tensors = std::vector<std::pair<std::string, ForeignTensor>>;  ///< their names, shapes and dtypes
  static constexpr std::int64_t default_shard_bytes = 5'000'000'000;

  /// Makes the directory if it does not exist. A shard has at most `max_shard_bytes` of tensors unless it has a single
  /// one. Throws Error if the directory has weights, and DataError for names, dtypes or shapes that no file can have.
  SafetensorsWriter(std::filesystem::path const& directory, Tensors tensors,
                    std::int64_t max_shard_bytes = default_shard_bytes);
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter const&) = delete;
  SafetensorsWriter& operator=(SafetensorsWriter const&) = delete;

  /// Writes the next elements, row major, of the tensors in their order; each is rounded to nearest even. Throws
  /// DataError that names the tensor where one is not finite or too large for the dtype, Error if there are more
  /// elements than the tensors have or the disk is full.
  void write(std::span<float const> elements);
  /// Gives the files their names, on the disk on return. Throws Error if elements are missing or that fails.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle
