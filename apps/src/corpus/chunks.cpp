#include "corpus/chunks.hpp"

#include <heddle/core/parallel/message_values.hpp>
#include <map>
#include <type_traits>

namespace heddle {

/// `Line`: SourceLine, or the same const.
template <class Line, class Visit>
requires std::is_same_v<std::remove_const_t<Line>, SourceLine>
void visit_values(Line& line, Visit const& visit) {
  visit(line.number);
  visit(line.text);
  visit(line.references);
  visit(line.adapter);
  visit(line.prefix);
}

std::string to_bytes(Chunk const& chunk) {
  MessageWriter writer;
  writer.add(chunk.number);
  writer.add(chunk.lines);
  return std::move(writer).bytes();
}

Chunk chunk_of(std::string const& bytes) {
  Chunk chunk;
  MessageReader reader(bytes);
  reader.take(chunk.number);
  reader.take(chunk.lines);
  reader.finish();
  return chunk;
}

std::string to_bytes(ChunkResult const& result) {
  MessageWriter writer;
  writer.add(result.number);
  writer.add(result.text);
  writer.add(result.messages);
  writer.add(result.sums);
  writer.add(result.lines);
  writer.add(result.tokens);
  return std::move(writer).bytes();
}

ChunkResult result_of(std::string const& bytes) {
  ChunkResult result;
  MessageReader reader(bytes);
  reader.take(result.number);
  reader.take(result.text);
  reader.take(result.messages);
  reader.take(result.sums);
  reader.take(result.lines);
  reader.take(result.tokens);
  reader.finish();
  return result;
}

ChunkResult OwnWorker::take(std::function<void()> const&) {
  ChunkResult result = compute_(*chunk_, [] {});
  chunk_.reset();
  return result;
}

void process_chunks(std::function<std::optional<Chunk>()> const& next, ChunkWorkers& workers,
                    std::function<void(ChunkResult)> const& finish) {
  constexpr std::int64_t max_unfinished = 4096;  // chunks in memory while an earlier one is computed
  std::map<std::int64_t, ChunkResult> waiting;
  std::int64_t given = 0;
  std::int64_t taken = 0;
  std::int64_t finished = 0;
  bool more = true;
  auto const refill = [&] {
    while (more && workers.wants_chunk() && given - finished < max_unfinished) {
      std::optional<Chunk> chunk = next();
      more = chunk.has_value();
      if (chunk) {
        chunk->number = given++;
        workers.give(std::move(*chunk));
      }
    }
  };
  for (refill(); taken < given; refill()) {
    ChunkResult result = workers.take(refill);
    ++taken;
    waiting.emplace(result.number, std::move(result));
    for (auto first = waiting.begin(); first != waiting.end() && first->first == finished; first = waiting.begin()) {
      finish(std::move(first->second));
      waiting.erase(first);
      ++finished;
    }
  }
}

}  // namespace heddle
