#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <heddle/core/parallel/communicator.hpp>
#include <memory>
#include <vector>

#include "block_encoder.hpp"
#include "line_blocks.hpp"

namespace heddle {

/// Encodes the blocks of a text in threads and, where there are several ranks, on the others, and passes them on in
/// their order, so that what is made of them is the same on any number of either. This thread reads and finishes
/// blocks, which is little beside encoding them, and encodes while it has nothing else to do. Only it sends messages.
///
/// Memory holds some blocks for each thread of all ranks.
class BlockPipeline {
 public:
  /// Collective over `world`, whose other ranks serve_blocks with the same arguments. `threads`: of this rank.
  BlockPipeline(PrepareOptions const& options, Vocabulary const& vocabulary, int threads, Communicator const& world);
  ~BlockPipeline();

  using Finish = std::function<void(EncodedBlock const& encoded)>;

  /// Encodes what `reader` reads. Throws what it throws, the error of the first line that has one, and what `finish`
  /// throws.
  void run(LineBlockReader& reader, Finish const& finish);
  /// Lets the other ranks return from serve_blocks.
  void end();

 private:
  struct Block;
  class Threads;
  class OtherRank;
  class Run;
  friend void serve_blocks(PrepareOptions const&, Vocabulary const&, int, Communicator const&);

  std::unique_ptr<Threads> threads_;
  std::vector<std::unique_ptr<OtherRank>> others_;
};

/// The main loop of a rank other than 0: encodes blocks until BlockPipeline::end is called there.
void serve_blocks(PrepareOptions const& options, Vocabulary const& vocabulary, int threads, Communicator const& world);

}  // namespace heddle
