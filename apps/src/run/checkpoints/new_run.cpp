#include "new_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint.hpp"

namespace heddle {

namespace {

/// Tensors of files. The error of a commit is about the disk: here is why the files were refused, if they were.
class TensorsOfFiles final : public TensorStream {
 public:
  explicit TensorsOfFiles(TensorStream& stream) : stream_(stream) {}

  std::vector<StreamedTensor> const& tensors() const override { return stream_.tensors(); }
  void send(TensorChunk const& chunk, int receiver) override { stream_.send(chunk, receiver); }
  void receive(TensorChunk const& chunk, std::span<float> elements) override {
    try {
      stream_.receive(chunk, elements);
    } catch (DataError const& error) {
      refused = error;
      throw;
    }
  }
  void wait() override { stream_.wait(); }

  std::optional<DataError> refused;

 private:
  TensorStream& stream_;
};

}  // namespace

std::vector<StreamedTensor> tensors_like(Checkpoint const& checkpoint, DType dtype) {
  std::vector<StreamedTensor> tensors;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    tensors.push_back({.name = tensor.name, .shape = tensor.shape, .dtype = dtype});
  }
  return tensors;
}

void read_elements(Checkpoint const& from, std::string const& name, IndexRange const& elements, std::span<float> into) {
  std::ranges::copy(from.read(TensorSlice{.name = name, .elements = elements}), into.begin());
}

CheckpointContents contents_of_new_run(std::filesystem::path const& run, Checkpoint const& from) {
  if (!from.contents().base.checkpoint.empty()) {
    throw ConfigError(
        "{}: has adapters without their base (adapter.save_base = false); make a model of both first: "
        "heddle export {} --merge --format heddle --out DIRECTORY",
        from.directory().string(), from.directory().string());
  }
  Config const config =
      stored_config(from, {fmt::format("run.directory={}", boost::json::serialize(boost::json::string(run.string()))),
                           "train.initialize_from=\"\"", "train.initialize_missing=[]", "train.initialize_rename=[]",
                           "train.teacher=\"\""});
  CheckpointContents contents;
  contents.state.seed = config.train.seed;
  contents.config = to_toml(config);
  contents.source_model = from.contents().source_model;
  contents.target_model = from.contents().target_model;
  contents.origin = from.contents().origin;
  return contents;
}

std::filesystem::path write_new_run(std::filesystem::path const& directory, CheckpointContents const& contents,
                                    TensorStream& tensors) {
  TensorsOfFiles stream(tensors);
  CommitResult committed;
  try {
    committed = CheckpointStore(directory / "checkpoints", 2).commit(Communicator::self(), contents, stream, 1);
  } catch (Error const&) {
    if (stream.refused) {
      throw *stream.refused;
    }
    throw;
  }
  replace_file(directory / "config.toml", contents.config);
  replace_file(directory / "source.model", contents.source_model);
  replace_file(directory / "target.model", contents.target_model);
  return committed.directory.lexically_relative(directory);
}

}  // namespace heddle
