#include "inference/chunk_generator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>

namespace heddle {

ChunkGenerator::ChunkGenerator(TrainedModel& model, GenerationOptions const& options, Encode encode)
    : model_(model), options_(options), encode_(std::move(encode)) {
  generations_[""] = model_.generation(options_);
  for (std::string const& name : model_.adapters()) {
    generations_[name] = model_.with_adapter(name).generation(options_);
  }
}

std::vector<GeneratedLine> ChunkGenerator::generate(std::vector<SourceLine> lines, std::function<void()> const& pause) {
  std::vector<GeneratedLine> results;
  std::map<std::string, std::vector<GeneratedLine*>> waiting;
  for (SourceLine& line : lines) {
    if (!generations_.contains(line.adapter)) {
      throw DataError("line {}: there are no adapters \"{}\"; --adapter names {}", line.number, line.adapter,
                      fmt::join(model_.adapters(), ", "));
    }
    EncodedLine encoded = encode_(model_.with_adapter(line.adapter), line);
    results.push_back({std::move(line), std::move(encoded)});
  }
  for (GeneratedLine& result : results) {
    if (result.encoded.tokens) {
      waiting[result.line.adapter].push_back(&result);
    }
  }
  for (auto& [adapter, group] : waiting) {
    Generation& generation = *generations_.at(adapter);
    // The longest first: the last steps, with few lines left, are then of short ones.
    std::ranges::stable_sort(group, std::greater(), [](auto const* line) { return line->encoded.tokens->size(); });
    std::map<std::int64_t, GeneratedLine*> by_number;
    for (GeneratedLine* const line : group) {
      by_number[line->line.number] = line;
      generation.add(line->line.number, *line->encoded.tokens, line->encoded.start);
    }
    while (!generation.empty()) {
      for (Generated& generated : generation.step()) {
        by_number.at(generated.number)->hypotheses = std::move(generated.hypotheses);
      }
      pause();
    }
  }
  return results;
}

}  // namespace heddle
