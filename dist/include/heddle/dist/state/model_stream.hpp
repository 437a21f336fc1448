#pragma once

#include <heddle/core/parallel/tensor_stream.hpp>
#include <heddle/dist/optimizer/distributed_optimizer.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <vector>

namespace heddle {

/// A model's parameters and their moments, from the ranks of any mesh, in the order of their names, which is that of
/// every mesh. Values come from the receiver's replica, moments
/// from there or, if they are sharded, from the ranks that keep them. Keeps references to everything that it is made
/// of; none of it may change until what was sent has been received. float32 only. Its verbs are those of the world.
class ModelStream final : public TensorStream {
 public:
  ModelStream(ParallelState const& parallel, WholeModel const& model, ParameterSet const& parameters,
              DistributedOptimizer const& optimizer);

  std::vector<StreamedTensor> const& tensors() const override { return tensors_; }
  void send(TensorChunk const& chunk, int receiver) override;
  void receive(TensorChunk const& chunk, std::span<float> elements) override;
  void wait() override;

 private:
  /// A parameter as the first stage that holds it describes it.
  struct Source {
    int stage;
    ParameterDescription const* parameter;
  };
  struct Piece;

  std::vector<Piece> pieces(TensorChunk const& chunk, int receiver) const;
  /// The elements of a piece that this rank has.
  Tensor own(TensorPart part, Piece const& piece) const;

  ParallelState const& parallel_;
  ParameterSet const& parameters_;
  DistributedOptimizer const& optimizer_;
  std::vector<StreamedTensor> tensors_;
  std::vector<Source> sources_;          ///< of tensors_
  std::vector<BufferParts> parts_;       ///< [stage]: how the replicas divide the moments; empty if they do not
  std::vector<Transfer> sends_;          ///< of this round
  std::vector<Transfer> earlier_sends_;  ///< of the round before
  Tensor received_;
  std::vector<float> staged_;
};

}  // namespace heddle
