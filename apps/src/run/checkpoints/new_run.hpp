#pragma once

#include <filesystem>
#include <functional>
#include <heddle/core/parallel/tensor_stream.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Tensors for one rank, made as they are asked for: `make` fills in these elements of a tensor.
class MadeTensors final : public OneRankTensors {
 public:
  using Make = std::function<void(StreamedTensor const& tensor, IndexRange const& elements, std::span<float> into)>;
  MadeTensors(std::vector<StreamedTensor> tensors, Make make) : make_(std::move(make)) {
    tensors_ = std::move(tensors);
  }

  void receive(TensorChunk const& chunk, std::span<float> elements) override {
    make_(tensors_.at(chunk.tensor), chunk.elements, elements);
  }

 private:
  Make make_;
};

/// Names and shapes of a checkpoint's parameters, to be written in this dtype.
std::vector<StreamedTensor> tensors_like(Checkpoint const& checkpoint, DType dtype = DType::float32);
/// Reads these elements of the parameter `name`.
void read_elements(Checkpoint const& from, std::string const& name, IndexRange const& elements, std::span<float> into);

/// The contents of a run's first checkpoint that is made of another run's: its configuration, vocabulary and origin,
/// without anything of its training.
CheckpointContents contents_of_new_run(std::filesystem::path const& run, Checkpoint const& from);

/// Writes a run that was not trained here but made: its only checkpoint and beside it the configuration, config.toml,
/// and the vocabulary, source.model and target.model. `directory` is a PendingDirectory's. Returns the checkpoint's
/// directory, relative to the run's. Throws DataError where the tensors cannot be read, else as CheckpointStore::commit
/// does. For one rank.
std::filesystem::path write_new_run(std::filesystem::path const& directory, CheckpointContents const& contents,
                                    TensorStream& tensors);

}  // namespace heddle
