#pragma once

#include <heddle/core/parallel/tensor_stream.hpp>
#include <heddle/dist/optimizer/distributed_optimizer.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace heddle {

/// A model's parameters and the optimizer's state, from the ranks of any mesh, sorted by name, so that their order is
/// the same on every mesh. Values come from the receiver's replica, as does state, unless replicas divide them: then
/// from the ranks that keep them. Keeps references to its arguments, which may not change until everything that was
/// sent has been received. Values are float32 or rounded (bfloat16), state is float32. Uses the collectives of the
/// world.
class ModelStream final : public TensorStream {
 public:
  /// Parameters with a name in `left_out` are not among the tensors. Collective over the pipeline group.
  ModelStream(ParallelState const& parallel, WholeModel const& model, ParameterSet const& parameters,
              DistributedOptimizer const& optimizer, std::set<std::string> const& left_out = {});

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
  /// The shape of the chunk's tensor if it is state of a whole matrix, which one rank keeps.
  std::optional<Shape> whole_shape(TensorChunk const& chunk) const;
  /// The elements of a piece that this rank has.
  Tensor own(TensorChunk const& chunk, Piece const& piece) const;

  ParallelState const& parallel_;
  ParameterSet const& parameters_;
  DistributedOptimizer const& optimizer_;
  std::vector<StreamedTensor> tensors_;
  std::vector<Source> sources_;      ///< of tensors_
  std::vector<BufferShards> parts_;  ///< [stage]: how the replicas divide the state; empty if they do not
  std::vector<std::map<std::string, MatrixRank>> matrix_ranks_;  ///< [stage]: that keep the state of whole matrices
  std::vector<Transfer> sends_;                                  ///< sends of this round
  std::vector<Transfer> earlier_sends_;                          ///< sends of the round before
  Tensor received_, received_rounded_;
  std::vector<float> staged_;
};

}  // namespace heddle
