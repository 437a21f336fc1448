#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inference/forced_decoding.hpp"
#include "inference/translation.hpp"

namespace heddle {

/// A line's translation, and the same for forced decoding.
struct ForcedTranslation {
  SourceLine const* line = nullptr;
  Translation translation;
  GivenTarget given;
  ForcedTarget forced = {};
};

/// The translations of lines, the best of each line first, without what forced decoding finds. They refer to the lines.
std::vector<ForcedTranslation> given_translations(TrainedModel const& model, std::span<GeneratedLine const> lines);
/// Decodes all but the translations of empty lines, together for each adapter.
void force(ForcedDecoding const& forcing, TrainedModel& model, std::vector<ForcedTranslation>& translations);
/// Adds `penalty` times the coverage to the scores of each line's translations, and keeps the best `n_best` of them.
void choose_by_coverage(double penalty, std::int64_t n_best, std::vector<ForcedTranslation>& translations);

}  // namespace heddle
