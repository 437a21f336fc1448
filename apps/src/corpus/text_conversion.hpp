#pragma once

#include <functional>
#include <heddle/core/parallel/communicator.hpp>
#include <string>
#include <vector>

#include "corpus/chunks.hpp"
#include "corpus/line_source.hpp"
#include "corpus/rank_workers.hpp"
#include "inference/chunk_generator.hpp"

namespace heddle {

/// How a command turns the lines of a text into results, with a model.
struct TextConversion {
  std::string command = {};  ///< "translate"
  std::string kept = {};     ///< which tokens remain of a line that is too long: "first", "last"
  std::string done = {};     ///< what happens to them, for a message: "translated", "continued"
  ChunkGenerator::Encode encode = {};
  /// Makes the text and the sums of a chunk's result, in the process that computed it.
  std::function<ChunkResult(TrainedModel& model, std::vector<GeneratedLine> lines)> conclude = {};
};

/// Computes chunks with a model.
ComputeChunk chunk_computation(TrainedModel& model, GenerationOptions const& options, TextConversion const& conversion);

/// The processes of a command.
struct Processes {
  RankGroups ranks = {};
  bool launched = false;       ///< a launcher started the ranks, and this process uses MPI
  int threads = 0;             ///< processes to share the work where none did; 0: one for each core
  bool writes_stdout = false;  ///< results go to the standard output: no progress among them on a terminal
};

/// The ranks of `world` in groups that have a model each, as `overrides` ask for with parallel.tensor=N. Throws
/// ConfigError if the ranks do not make whole groups. Collective over `world`.
RankGroups make_rank_groups(Communicator const& world, std::vector<std::string> const& overrides);

/// Computes all chunks of a text, in all processes; `finish` gets the results in the order of the chunks, on rank 0.
/// `next` is called on rank 0 only. Writes the results' first ten messages of each kind to standard error, in the end
/// the number of the others, and the progress: where that is a terminal each second, otherwise each minute. Collective
/// over the ranks.
void convert_chunks(Processes const& processes, LineSource const& text,
                    std::function<std::optional<Chunk>()> const& next, ComputeChunk const& compute,
                    std::function<void(ChunkResult)> const& finish);

}  // namespace heddle
