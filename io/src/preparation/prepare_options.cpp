#include "prepare_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>
#include <string_view>

namespace heddle {

namespace {

/// Throws UsageError unless the options name the texts of pairs, in one form, or of lines.
void check_texts(PrepareOptions const& options) {
  bool const sides = !options.source.empty() || !options.target.empty();
  bool const valid_sides = !options.valid_source.empty() || !options.valid_target.empty();
  if (int{!options.text.empty()} + int{sides} + int{!options.tsv.empty()} > 1 ||
      (options.lines() && (sides || valid_sides || !options.tsv.empty() || !options.valid_tsv.empty() ||
                           options.separate_vocabularies || options.target_model))) {
    throw UsageError(
        "prepare: expected either --source and --target, or --tsv, for pairs, or --text, for lines of one text, with "
        "the options of one of them");
  }
  bool const valid = options.has_validation_text();
  if (!options.has_training_text() && !(valid && options.has_vocabulary())) {
    throw UsageError("prepare: {}", valid ? "a validation text alone needs the vocabulary of the training "
                                            "data: --vocab-model with their directory, or a run"
                                          : "--source and --target, --tsv or --text are missing");
  }
  if (sides && (options.source.empty() || options.target.empty())) {
    throw UsageError("prepare: --{} is missing", options.source.empty() ? "source" : "target");
  }
  if (options.valid_source.empty() != options.valid_target.empty()) {
    throw UsageError("a validation text needs both sides: --valid-source and --valid-target");
  }
  if (!options.valid_source.empty() && !options.valid_tsv.empty()) {
    throw UsageError("give either --valid-tsv or --valid-source and --valid-target");
  }
  if (options.has_fields() && (options.lines() || !options.has_training_text() || options.only_vocabulary)) {
    throw UsageError("--alignments, --sentence-weights and --word-weights are for a training text of pairs");
  }
  if (options.clean && !options.has_training_text()) {
    throw UsageError("--clean is for a training text, and none is given");
  }
  if (!options.clean && !options.dropped.empty()) {
    throw UsageError("--dropped gets the lines that --clean leaves out, which is not given");
  }
  if (options.source.size() != options.target.size() || options.valid_source.size() != options.valid_target.size()) {
    throw UsageError("both sides need as many files: each file of the source has one of the target beside it");
  }
}

/// Throws UsageError for --columns and --only-vocab with other texts than they are for, and for a pipe given twice.
void check_forms(PrepareOptions const& options) {
  if (options.columns) {
    auto const [source, target] = *options.columns;
    if (source < 1 || target < 1 || source == target) {
      throw UsageError("--columns {},{}: expected two different columns, counted from 1", source, target);
    }
    if (options.tsv.empty() && options.valid_tsv.empty()) {
      throw UsageError("--columns is for --tsv and --valid-tsv");
    }
  }
  if (options.only_vocabulary &&
      (options.has_vocabulary() || options.has_validation_text() || options.samples_per_file != 0)) {
    throw UsageError(
        "--only-vocab learns a vocabulary from a training text and writes no dataset: leave --vocab-model, validation "
        "texts and --samples-per-file out");
  }
  std::vector<std::filesystem::path> all;
  for (auto const* texts : {&options.source, &options.target, &options.tsv, &options.text, &options.valid_source,
                            &options.valid_target, &options.valid_tsv, &options.valid_text, &options.alignments,
                            &options.sentence_weights, &options.word_weights}) {
    all.insert(all.end(), texts->begin(), texts->end());
  }
  require_different_pipes(all);
}

/// Why text is not a piece that always is found as a whole; "" if it is.
std::string problem_of_symbol(std::string const& symbol, PrepareOptions const& options) {
  constexpr std::array<std::string_view, 5> special{"<pad>", "<unk>", "<s>", "</s>", "<mask>"};
  if (find_invalid_utf8(symbol) != symbol.npos) {
    return ", which is not valid UTF-8";
  }
  if (symbol.find("\u2581") != symbol.npos) {
    return ", with U+2581, which stands for the space before a word: no word would be learnt";
  }
  if (symbol.find(',') != symbol.npos || split_words(symbol) != std::vector<std::string_view>{symbol}) {
    return "; expected text without spaces and commas, such as <news>";
  }
  int number = 0;
  int end = 0;
  auto const matches = [&](char const* form) {
    end = 0;
    return std::sscanf(symbol.c_str(), form, &number, &end) == 1 && end == static_cast<int>(symbol.size());
  };
  if (std::ranges::find(special, symbol) != special.end() || (options.byte_fallback && matches("<0x%2X>%n")) ||
      (matches("<extra_id_%d>%n") && number >= 0 && number < options.sentinels)) {
    return ", which is a special piece already";
  }
  return std::ranges::count(options.symbols, symbol) > 1 ? " more than once" : "";
}

/// Throws UsageError for options of a vocabulary that is not possible.
void check_vocabulary(PrepareOptions const& options) {
  if ((options.lines() || !options.has_vocabulary()) &&
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
    if (std::string const problem = problem_of_symbol(symbol, options); !problem.empty()) {
      throw UsageError("--tag or --user-defined-symbols has \"{}\"{}", symbol, problem);
    }
  }
  constexpr std::array<std::string_view, 5> rules{"nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"};
  if (std::ranges::find(rules, options.normalization) == rules.end()) {
    throw UsageError("--normalization is {}; expected one of {}", options.normalization, fmt::join(rules, ", "));
  }
  if (options.sentinels < 0 || options.sentinels > options.vocabulary_size) {
    throw UsageError("--sentinels is {}; expected 0 to --vocab-size ({}), whose pieces they are", options.sentinels,
                     options.vocabulary_size);
  }
  // SentencePiece takes no other coverage.
  if (!(options.character_coverage >= 0.98 && options.character_coverage <= 1)) {
    throw UsageError("--character-coverage is {}; expected 0.98 to 1", options.character_coverage);
  }
}

}  // namespace

void check_options(PrepareOptions const& options) {
  check_texts(options);
  check_forms(options);
  check_vocabulary(options);
  if (options.threads < 0) {
    throw UsageError("--threads is {}; expected at least 1, or 0 for one for each core", options.threads);
  }
  if (options.samples_per_file < 0) {
    throw UsageError("--samples-per-file is {}; expected at least 1", options.samples_per_file);
  }
  if (options.max_length < 1 || options.vocabulary_size < 1) {
    throw UsageError("--max-length ({}) and --vocab-size ({}) must be at least 1", options.max_length,
                     options.vocabulary_size);
  }
}

}  // namespace heddle
