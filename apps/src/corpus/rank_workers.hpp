#pragma once

#include <cstdint>
#include <deque>
#include <heddle/core/parallel/communicator.hpp>
#include <memory>
#include <string>
#include <vector>

#include "corpus/pieces.hpp"

namespace heddle {

/// Groups of ranks, each with one model: the ranks of a group are consecutive in `world`, and compute a piece together.
struct RankGroups {
  Communicator world = Communicator::self();
  Communicator group = Communicator::self();  ///< this rank's

  bool leads() const { return group.rank() == 0; }
};

/// The ranks of a job, on its rank 0, which computes, too: with the ranks of its group.
class RankWorkers final : public PieceWorkers {
 public:
  RankWorkers(RankGroups groups, ComputePiece compute);
  ~RankWorkers() override;

  bool wants_piece() const override;
  void give(Piece piece) override;
  PieceResult take(std::function<void()> const& refill) override;
  /// Lets the other ranks return from serve_pieces, after the last result.
  void finish();

 private:
  class Leader;

  /// Moves messages; adds those that are complete to results_.
  void progress();

  RankGroups groups_;
  ComputePiece compute_;
  std::deque<Piece> own_;
  std::vector<std::unique_ptr<Leader>> others_;  ///< the leaders of the other groups
  std::deque<PieceResult> results_;
};

/// The life of a rank other than 0: computes pieces until RankWorkers::finish is called there.
void serve_pieces(RankGroups const& groups, ComputePiece const& compute);

}  // namespace heddle
