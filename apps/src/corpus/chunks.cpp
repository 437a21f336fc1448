#include "corpus/chunks.hpp"

#include <cstring>
#include <heddle/core/base/error.hpp>
#include <map>
#include <type_traits>

namespace heddle {
namespace {

/// Appends values to bytes.
class Writer {
 public:
  void add(std::string const& text) {
    add(std::ssize(text));
    bytes_ += text;
  }
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void add(Number number) { bytes_.append(reinterpret_cast<char const*>(&number), sizeof number); }
  template <class Value>
  void add(std::vector<Value> const& values) {
    add(std::ssize(values));
    for (Value const& value : values) {
      add(value);
    }
  }
  void add(SourceLine const& line) {
    add(line.number);
    add(line.text);
    add(line.references);
    add(line.adapter);
    add(line.prefix);
  }

  std::string bytes() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads values in the order in which a Writer appended them. Throws Error where the bytes do not hold them.
class Reader {
 public:
  explicit Reader(std::string const& bytes) : rest_(bytes) {}

  void take(std::string& text) { text = part(take_count(1)); }
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void take(Number& number) { std::memcpy(&number, part(sizeof number).data(), sizeof number); }
  template <class Value>
  void take(std::vector<Value>& values) {
    values.resize(take_count(sizeof(std::int64_t)));  // the minimum that a value takes
    for (Value& value : values) {
      take(value);
    }
  }
  void take(SourceLine& line) {
    take(line.number);
    take(line.text);
    take(line.references);
    take(line.adapter);
    take(line.prefix);
  }
  void finish() const {
    if (!rest_.empty()) {
      fail();
    }
  }

 private:
  [[noreturn]] static void fail() { throw Error("a message between processes is damaged"); }

  /// A number of values of at least that many bytes.
  std::size_t take_count(std::size_t bytes) {
    std::int64_t count = 0;
    take(count);
    if (count < 0 || static_cast<std::size_t>(count) > rest_.size() / bytes) {
      fail();
    }
    return static_cast<std::size_t>(count);
  }
  std::string_view part(std::size_t count) {
    if (count > rest_.size()) {
      fail();
    }
    std::string_view const taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
};

}  // namespace

std::string to_bytes(Chunk const& chunk) {
  Writer writer;
  writer.add(chunk.number);
  writer.add(chunk.lines);
  return std::move(writer).bytes();
}

Chunk chunk_of(std::string const& bytes) {
  Chunk chunk;
  Reader reader(bytes);
  reader.take(chunk.number);
  reader.take(chunk.lines);
  reader.finish();
  return chunk;
}

std::string to_bytes(ChunkResult const& result) {
  Writer writer;
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
  Reader reader(bytes);
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
