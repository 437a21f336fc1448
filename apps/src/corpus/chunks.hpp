#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "inference/chunk_generator.hpp"

namespace heddle {

/// Consecutive lines that are computed together, by one process. Its result does not depend on other chunks, so that
/// any number of processes make the same text of all chunks.
struct Chunk {
  std::int64_t number = 0;  ///< from 0
  std::vector<SourceLine> lines = {};
};

struct ChunkResult {
  std::int64_t number = 0;
  std::string text = {};                   ///< what is written for the chunk
  std::vector<std::string> messages = {};  ///< for standard error
  std::vector<double> sums = {};           ///< added up over all chunks
  std::int64_t lines = 0;
  std::int64_t tokens = 0;  ///< that were generated
};

std::string to_bytes(Chunk const& chunk);
std::string to_bytes(ChunkResult const& result);
/// Inverses of to_bytes. They throw Error for bytes that it did not make.
Chunk chunk_of(std::string const& bytes);
ChunkResult result_of(std::string const& bytes);

/// Computes a chunk, and calls `pause` now and then, some hundred times in a second.
using ComputeChunk = std::function<ChunkResult(Chunk const& chunk, std::function<void()> const& pause)>;

/// The chunks that a worker has at a time: one that it computes, and the next one.
inline constexpr std::size_t max_worker_chunks = 2;

/// Processes that compute chunks.
class ChunkWorkers {
 public:
  virtual ~ChunkWorkers() = default;
  /// Whether a process has no chunk waiting after the one that it computes.
  virtual bool wants_chunk() const = 0;
  /// May be called only if a chunk is wanted.
  virtual void give(Chunk chunk) = 0;
  /// Waits for the next result, in any order; a chunk must have been given. Calls `refill`, which gives chunks if some
  /// are wanted, while it waits. Throws what a worker threw.
  virtual ChunkResult take(std::function<void()> const& refill) = 0;
};

/// This process alone.
class OwnWorker final : public ChunkWorkers {
 public:
  explicit OwnWorker(ComputeChunk compute) : compute_(std::move(compute)) {}
  bool wants_chunk() const override { return !chunk_; }
  void give(Chunk chunk) override { chunk_ = std::move(chunk); }
  ChunkResult take(std::function<void()> const& refill) override;

 private:
  ComputeChunk compute_;
  std::optional<Chunk> chunk_;
};

/// Gives all chunks of `next`, which returns nothing at the end, to the workers, and their results to `finish` in the
/// order of the chunks.
void process_chunks(std::function<std::optional<Chunk>()> const& next, ChunkWorkers& workers,
                    std::function<void(ChunkResult)> const& finish);

}  // namespace heddle
