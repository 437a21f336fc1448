#pragma once

#include <deque>
#include <heddle/core/parallel/communicator.hpp>
#include <memory>
#include <vector>

#include "corpus/chunks.hpp"

namespace heddle {

/// Groups of ranks, each with one model: the ranks of a group are consecutive in `world`, and compute a chunk together.
struct RankGroups {
  Communicator world = Communicator::self();
  Communicator group = Communicator::self();  ///< this rank's

  bool leads() const { return group.rank() == 0; }
};

/// The ranks of a job, on its rank 0, which computes, too: with the ranks of its group.
class RankWorkers final : public ChunkWorkers {
 public:
  RankWorkers(RankGroups groups, ComputeChunk compute);
  ~RankWorkers() override;

  bool wants_chunk() const override;
  void give(Chunk chunk) override;
  ChunkResult take(std::function<void()> const& refill) override;
  /// Lets the other ranks return from serve_chunks, after the last result.
  void finish();

 private:
  class Leader;

  /// Moves messages; adds those that are complete to results_.
  void progress();

  RankGroups groups_;
  ComputeChunk compute_;
  std::deque<Chunk> own_;
  std::vector<std::unique_ptr<Leader>> others_;  ///< the leaders of the other groups
  std::deque<ChunkResult> results_;
};

/// The main loop of a rank other than 0: computes chunks until RankWorkers::finish is called there.
void serve_chunks(RankGroups const& groups, ComputeChunk const& compute);

}  // namespace heddle
