#pragma once

#include <cstdint>
#include <deque>
#include <heddle/core/generation/generation.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// A line of a text, with its number from 1, and the same line of each reference.
struct SourceLine {
  std::string text;
  std::int64_t number = 0;
  std::vector<std::string> references = {};
};

/// A line as a model takes it.
struct EncodedLine {
  std::optional<std::vector<std::int32_t>> tokens;  ///< none: nothing is generated
  std::size_t cut_from = 0;                         ///< the line's tokens, where the model takes only a part of them
  std::vector<std::int32_t> start = {};             ///< what its target starts with; empty: the begin token
};

/// A line and what was generated for it.
struct GeneratedLine {
  SourceLine line;
  EncodedLine encoded;
  std::vector<Hypothesis> hypotheses = {};  ///< none where the line has no tokens
};

/// Lines that are generated together; their results come in the order of the lines.
class LineQueue {
 public:
  /// At most `max_lines`, with at most max_bytes or one line, are in the queue at once.
  LineQueue(std::unique_ptr<Generation> generation, std::size_t max_lines)
      : generation_(std::move(generation)), max_lines_(max_lines) {}

  static constexpr std::size_t max_bytes = std::size_t{16} << 20;

  /// Whether a line should be added before the next step, if there is one.
  bool has_room() const { return lines_.size() < max_lines_ && bytes_ < max_bytes && generation_->has_room(); }
  bool empty() const { return lines_.empty(); }
  /// Adds the line that follows the one that was added last. Throws as Generation::add does.
  void add(SourceLine line, EncodedLine encoded);
  /// One step of the generation, unless the first line is done. Returns the first lines if they are done.
  std::vector<GeneratedLine> step();

 private:
  struct Entry {
    GeneratedLine generated;
    bool done = false;
  };
  bool first_is_done() const { return !lines_.empty() && lines_.front().done; }

  std::unique_ptr<Generation> generation_;
  std::size_t max_lines_;
  std::size_t bytes_ = 0;  ///< of the lines' texts
  std::deque<Entry> lines_;
};

}  // namespace heddle
