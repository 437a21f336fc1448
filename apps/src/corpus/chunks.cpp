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

template <class Lines, class Visit>
requires std::is_same_v<std::remove_const_t<Lines>, Chunk>
void visit_values(Lines& chunk, Visit const& visit) {
  visit(chunk.number);
  visit(chunk.lines);
}

template <class Result, class Visit>
requires std::is_same_v<std::remove_const_t<Result>, ChunkResult>
void visit_values(Result& result, Visit const& visit) {
  visit(result.number);
  visit(result.text);
  visit(result.messages);
  visit(result.sums);
  visit(result.lines);
  visit(result.tokens);
}

std::string to_bytes(Chunk const& chunk) {
  return message_of_value(chunk);
}

Chunk chunk_of(std::string const& bytes) {
  return value_of_message<Chunk>(bytes);
}

std::string to_bytes(ChunkResult const& result) {
  return message_of_value(result);
}

ChunkResult result_of(std::string const& bytes) {
  return value_of_message<ChunkResult>(bytes);
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
