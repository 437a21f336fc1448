#pragma once

#include <cstdint>
#include <deque>
#include <heddle/core/generation/generation.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// A line of a text, with its number from 1, and the same line of the reference, if there is one.
struct SourceLine {
  std::string text;
  std::int64_t number = 0;
  std::string reference = {};
  std::string adapter = {};  ///< the name of its adapters; "": none
};

/// A line as a model takes it.
struct EncodedLine {
  std::optional<std::vector<std::int32_t>> tokens;  ///< none: nothing is generated
  std::size_t cut_from = 0;                         ///< the line's tokens, where the model takes only a part of them
  std::vector<std::int32_t> start = {};             ///< what its target starts with; empty: the begin token
  std::size_t generation = 0;                       ///< the number of the one that it belongs to
};

/// A line and what was generated for it.
struct GeneratedLine {
  SourceLine line;
  EncodedLine encoded;
  std::vector<Hypothesis> hypotheses = {};  ///< none where the line has no tokens
};

/// Lines that are generated together, or each by one of several generations, of which the one that has the first line
/// is in a step; their results come in the order of the lines.
class LineQueue {
 public:
  /// At most `max_lines`, with at most max_bytes or one line, are in the queue at once.
  LineQueue(std::vector<std::unique_ptr<Generation>> generations, std::size_t max_lines)
      : generations_(std::move(generations)), max_lines_(max_lines) {}

  static constexpr std::size_t max_bytes = std::size_t{16} << 20;

  /// Whether a line should be added before the next step, if there is one.
  bool has_room() const;
  bool empty() const { return lines_.empty(); }
  /// Adds the line that follows the one that was added last. Throws as Generation::add does.
  void add(SourceLine line, EncodedLine encoded);
  /// One step of the first line's generation, unless that is done. Returns the first lines if they are done.
  std::vector<GeneratedLine> step();

 private:
  struct Entry {
    GeneratedLine generated;
    bool done = false;
  };
  bool first_is_done() const { return !lines_.empty() && lines_.front().done; }

  std::vector<std::unique_ptr<Generation>> generations_;
  std::size_t max_lines_;
  std::size_t bytes_ = 0;  ///< of the lines' texts
  std::deque<Entry> lines_;
};

}  // namespace heddle
