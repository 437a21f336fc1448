#include "command_line/alignment_options.hpp"

#include <cmath>
#include <heddle/core/base/error.hpp>

#include "inference/alignment.hpp"

namespace heddle {

namespace po = boost::program_options;

void add_alignment_options(OptionsDescription& description, AlignmentOptions& options) {
  description.add_options()  //
      ("align", without_default(options.kind, "hard|soft"),
       "write how the pieces of a translation are aligned with the source's, by the model's cross-attention: the "
       "strongest piece for each (hard, as in Pharaoh: 0-0 1-2), or all weights (soft, in JSON lines)")  //
      ("align-layer", without_default<std::int64_t>(options.attention.layer, "N"),
       "the decoder layer whose cross-attention is read, counted from 1; default: the one with guided alignment, else "
       "the last but one")  //
      ("align-head", without_default<std::int64_t>(options.attention.head, "N"),
       "the head that is read, counted from 1; default: the guided one, else the mean of all heads")  //
      ("align-words", po::bool_switch(&options.words),
       "of hard alignments: align the words of the lines, between white space, in place of pieces");
}

ForcedDecoding forced_decoding(AlignmentOptions const& options, TrainedModelOptions& model, bool json,
                               std::string const& option) {
  if (!options.wanted()) {
    if (options.attention.layer || options.attention.head || options.words) {
      throw UsageError("--align-layer, --align-head and --align-words choose alignments: give --align, too");
    }
    return {};
  }
  if (options.kind == "soft" && (!json || options.words)) {
    throw UsageError("--align soft writes the weights of pieces in JSON lines: give {}, and not --align-words", option);
  }
  return {options.attention, model};
}

void add_coverage_option(OptionsDescription& description, CoverageOptions& options) {
  description.add_options()(
      "coverage-penalty", with_default(options.penalty, "X"),
      "choose among the beam's translations with X times the log of the attention that each source token got added to "
      "their scores (Wu et al. 2016): those that leave out parts of the source lose");
}

void prepare_for(CoverageOptions const& options, GenerationOptions& generation) {
  if (!(options.penalty >= 0)) {
    throw UsageError("--coverage-penalty must be at least 0");
  }
  if (options.wanted() && generation.beam_size == 1) {
    throw UsageError("--coverage-penalty chooses among the translations of a beam: give --beam more than 1");
  }
  generation.n_best = options.wanted() ? generation.beam_size : generation.n_best;
}

std::string alignment_text(AlignmentOptions const& options, AlignedPair const& pair) {
  Alignment const pieces = hard_alignment(pair.forced.attention, pair.given.source.size());
  return to_text(options.words ? between_words(pieces, pair.source_words, pair.target_words) : pieces);
}

void add_alignment(boost::json::object& line, AlignmentOptions const& options, TrainedModel const& model,
                   AlignedPair const& pair) {
  Tokenizer const& tokenizer = model.vocabulary().source;
  boost::json::array pieces;
  for (std::int32_t const token : pair.given.source) {
    pieces.emplace_back(tokenizer.piece(token));
  }
  pieces.emplace_back(tokenizer.piece(tokenizer.special_ids().end));
  std::size_t const columns = pieces.size();
  line["source_tokens"] = std::move(pieces);
  if (options.kind == "hard") {
    line["alignment"] = alignment_text(options, pair);
    return;
  }
  boost::json::array rows;
  for (std::size_t at = 0; at < pair.forced.attention.size(); at += columns) {
    boost::json::array row;
    for (double const weight : std::span(pair.forced.attention).subspan(at, columns)) {
      row.emplace_back(std::round(weight * 1e4) / 1e4);
    }
    rows.push_back(std::move(row));
  }
  line["alignment"] = std::move(rows);
}

}  // namespace heddle
