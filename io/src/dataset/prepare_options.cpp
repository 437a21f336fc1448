#include "prepare_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <heddle/core/base/error.hpp>
#include <string_view>

namespace heddle {

namespace {

/// Throws UsageError unless the options name the texts of pairs, in one form, or of lines.
void check_texts(PrepareOptions const& options) {
  bool const lines = !options.text.empty();
  bool const sides = !options.source.empty() || !options.target.empty();
  if (int{lines} + int{sides} + int{!options.tsv.empty()} != 1 ||
      (lines && (!options.valid_source.empty() || !options.valid_target.empty() || !options.valid_tsv.empty() ||
                 options.separate_vocabularies || options.target_model))) {
    throw UsageError(
        "prepare: expected either --source and --target, or --tsv, for pairs, or --text, for lines of one text, with "
        "the options of one of them");
  }
  if (sides && (options.source.empty() || options.target.empty())) {
    throw UsageError(fmt::format("prepare: --{} is missing", options.source.empty() ? "source" : "target"));
  }
  if (!options.valid_text.empty() && !lines) {
    throw UsageError(
        "--valid-text goes with --text; pairs are validated by --valid-source and --valid-target, or by --valid-tsv");
  }
  if (options.valid_source.empty() != options.valid_target.empty()) {
    throw UsageError("a validation text needs both sides: --valid-source and --valid-target");
  }
  if (!options.valid_source.empty() && !options.valid_tsv.empty()) {
    throw UsageError("give either --valid-tsv or --valid-source and --valid-target");
  }
  if (options.source.size() != options.target.size() || options.valid_source.size() != options.valid_target.size()) {
    throw UsageError("both sides need as many files: each file of the source has one of the target beside it");
  }
}

constexpr std::array<std::string_view, 5> reserved{"<pad>", "<unk>", "<s>", "</s>", "<mask>"};

/// Throws UsageError for options of a vocabulary that is not possible.
void check_vocabulary(PrepareOptions const& options) {
  if ((!options.text.empty() || !options.has_vocabulary()) &&
      !(options.languages.source + options.languages.target).empty()) {
    throw UsageError(
        "--source-language and --target-language are for pairs, and for a --vocab-model that has tokens for languages");
  }
  if (options.target_model && !options.source_model) {
    throw UsageError("--target-vocab-model needs --vocab-model for the source side");
  }
  if (options.separate_vocabularies && options.source_model && !options.target_model) {
    throw UsageError("--separate-vocab with --vocab-model needs --target-vocab-model, too");
  }
  for (std::string const& symbol : options.symbols) {
    if (symbol.empty() || symbol.find_first_of(", \t\r\n") != std::string::npos) {
      throw UsageError(fmt::format(
          "--tag or --user-defined-symbols has \"{}\"; expected text without spaces and commas, such as <news>",
          symbol));
    }
    bool const special = std::ranges::find(reserved, symbol) != reserved.end();
    if (special || std::ranges::count(options.symbols, symbol) > 1) {
      throw UsageError(fmt::format("--tag or --user-defined-symbols has \"{}\"{}", symbol,
                                   special ? ", which is a special piece already" : " more than once"));
    }
  }
  if (options.sentinels < 0 || options.sentinels > options.vocabulary_size) {
    throw UsageError(fmt::format("--sentinels is {}; expected 0 to --vocab-size ({}), whose pieces they are",
                                 options.sentinels, options.vocabulary_size));
  }
  // SentencePiece takes no other coverage.
  if (!(options.character_coverage >= 0.98 && options.character_coverage <= 1)) {
    throw UsageError(fmt::format("--character-coverage is {}; expected 0.98 to 1", options.character_coverage));
  }
}

}  // namespace

void check_options(PrepareOptions const& options) {
  check_texts(options);
  check_vocabulary(options);
  if (options.samples_per_file < 0) {
    throw UsageError(fmt::format("--samples-per-file is {}; expected at least 1", options.samples_per_file));
  }
  if (options.max_length < 1 || options.vocabulary_size < 1) {
    throw UsageError(fmt::format("--max-length ({}) and --vocab-size ({}) must be at least 1", options.max_length,
                                 options.vocabulary_size));
  }
}

}  // namespace heddle
