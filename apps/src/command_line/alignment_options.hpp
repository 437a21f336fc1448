#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "command_line/options.hpp"
#include "inference/forced_decoding.hpp"

namespace heddle {

/// The options --align, --align-layer, --align-head and --align-words.
struct AlignmentOptions {
  std::string kind;  ///< "hard", "soft"; "": none is wanted
  AlignedAttention attention;
  bool words = false;

  bool wanted() const { return !kind.empty(); }
};
void add_alignment_options(OptionsDescription& description, AlignmentOptions& options);

/// Without alignments where none is wanted. Throws UsageError for options that do not fit together; soft alignments
/// need `json`, which the option of that name chooses.
ForcedDecoding forced_decoding(AlignmentOptions const& options, TrainedModelOptions& model, bool json,
                               std::string const& option);

/// The option --coverage-penalty.
struct CoverageOptions {
  double penalty = 0;

  bool wanted() const { return penalty > 0; }
};
void add_coverage_option(OptionsDescription& description, CoverageOptions& options);
/// If the coverage chooses, the search returns the whole beam. Throws UsageError for a negative penalty, and where
/// there is nothing to choose from.
void prepare_for(CoverageOptions const& options, GenerationOptions& generation);

/// A pair of texts, what forced decoding found, and, where words are aligned, the words of its tokens.
struct AlignedPair {
  GivenTarget const& given;
  ForcedTarget const& forced;
  std::vector<std::int64_t> source_words = {}, target_words = {};
};

/// A hard alignment in Pharaoh's format.
std::string alignment_text(AlignmentOptions const& options, AlignedPair const& pair);
/// Adds `source_tokens`, the source's pieces and end, and `alignment`: a text, or for each piece of the target the
/// weights of the source's.
void add_alignment(boost::json::object& line, AlignmentOptions const& options, TrainedModel const& model,
                   AlignedPair const& pair);

}  // namespace heddle
