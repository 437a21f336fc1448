#pragma once

#include <cstdint>
#include <functional>
#include <heddle/core/generation/generation.hpp>
#include <heddle/model.hpp>
#include <map>
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
  std::string adapter = {};  ///< the name of its adapters; "": none
  std::string prefix = {};   ///< what its translation starts with
};

/// A line as a model takes it.
struct EncodedLine {
  std::optional<std::vector<std::int32_t>> tokens;  ///< none: nothing is generated
  std::size_t cut_from = 0;                         ///< the line's tokens, where the model takes only a part of them
  std::vector<std::int32_t> start = {};             ///< what its target starts with; empty: the begin token
  std::vector<std::int32_t> prefix = {};            ///< the tokens at the end of `start` that belong to the output
  std::size_t prefix_cut_from = 0;                  ///< the prefix's tokens, where the model takes only its first
};

/// A line and what was generated for it.
struct GeneratedLine {
  SourceLine line;
  EncodedLine encoded;
  std::vector<Hypothesis> hypotheses = {};  ///< none where the line has no tokens
};

/// Generates for lines that belong together. A line's result depends, by rounding, only on the others of its call.
class ChunkGenerator {
 public:
  using Encode = std::function<EncodedLine(TrainedModel const&, SourceLine const&)>;

  /// Keeps a reference to the model. Throws as Generation does.
  ChunkGenerator(TrainedModel& model, GenerationOptions const& options, Encode encode);

  /// The results, in the order of the lines. Calls `pause` between steps. Throws DataError for a line that names
  /// adapters which the model does not have.
  std::vector<GeneratedLine> generate(std::vector<SourceLine> lines, std::function<void()> const& pause);

 private:
  TrainedModel& model_;
  GenerationOptions options_;
  Encode encode_;
  std::map<std::string, std::unique_ptr<Generation>> generations_;  ///< by adapters
};

}  // namespace heddle
