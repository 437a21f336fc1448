#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/io/cleaning/cleaner.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/io/tokenizers/text_form.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// The options of `heddle prepare`, which turns parallel text, or one text, into datasets.
struct PrepareOptions {
  using Paths = std::vector<std::filesystem::path>;  ///< files, plain or compressed, that are one text in this order

  Paths source = {};  ///< one sentence a line
  Paths target = {};  ///< as many files; line n of each translates line n of the source's
  Paths tsv = {};     ///< in place of source and target: lines with columns
  Paths text = {};    ///< in place of pairs: one document or sentence a line
  /// Files with as many lines as a training text of pairs: links of its words, "0-0 1-2" (Pharaoh's format: source and
  /// target, from 0); a factor of each pair's loss; a factor for each word of each target.
  Paths alignments = {};
  Paths sentence_weights = {};
  Paths word_weights = {};
  Paths valid_source = {};
  Paths valid_target = {};
  Paths valid_tsv = {};                                ///< in place of valid_source and valid_target
  Paths valid_text = {};                               ///< only with text
  std::optional<std::array<int64_t, 2>> columns = {};  ///< of source and target, from 1 on; none: there are just two

  int64_t vocabulary_size = 10000;  ///< pieces, in each vocabulary where they are separate
  std::string vocabulary_type = "bpe";
  std::vector<std::string> symbols = {};  ///< strings that are one piece of a new vocabulary (TokenizerTraining)
  bool byte_fallback = false;             ///< of a new vocabulary (TokenizerTraining), and so are the next three
  bool split_digits = false;
  double character_coverage = 1;
  int64_t sentinels = 0;
  std::string normalization = "nmt_nfkc";  ///< of a new vocabulary: SentencePiece's rule
  bool only_vocabulary = false;            ///< write the vocabulary, and no dataset
  bool separate_vocabularies = false;
  std::optional<std::filesystem::path> source_model;  ///< an existing vocabulary instead of a new one
  std::optional<std::filesystem::path> target_model;  ///< absent: the source's, as a joint vocabulary
  std::optional<Vocabulary> vocabulary = {};          ///< in place of source_model and target_model

  Languages languages = {};  ///< of pairs, where the vocabulary has tokens for languages: these are put beside the text
  int64_t max_length = 250;  ///< tokens, without begin and end; a pair with a longer side is left out, a line never is
  InvalidUtf8 invalid_utf8 = InvalidUtf8::fail;  ///< treatment of invalid lines; skip: such a line or pair is left out
  int64_t samples_per_file = 0;                  ///< max samples in a file of the training dataset; 0: all in one
  /// Rules by which lines of the training text are left out (Cleaner), and a file for these lines, "" for none.
  std::optional<std::filesystem::path> clean = {};
  std::filesystem::path dropped = {};
  /// Receives train.h5 (or train-00001.h5, train-00002.h5 …), valid.h5 and vocab.model (or vocab.source.model and
  /// vocab.target.model).
  std::filesystem::path directory;
  bool overwrite = false;  ///< replace the files of an earlier run
  int threads = 1;         ///< of each rank; 0: one for each processor that it may use

  /// Whether there is a vocabulary, which is not learnt.
  bool has_vocabulary() const { return source_model || vocabulary; }
  /// Whether the texts are lines of one text, not pairs.
  bool lines() const { return !text.empty() || !valid_text.empty(); }
  bool has_fields() const { return !alignments.empty() || !sentence_weights.empty() || !word_weights.empty(); }
  bool has_training_text() const { return !source.empty() || !target.empty() || !tsv.empty() || !text.empty(); }
  bool has_validation_text() const {
    return !valid_source.empty() || !valid_target.empty() || !valid_tsv.empty() || !valid_text.empty();
  }
};

/// Counts of one prepared pair of texts, or of one text.
struct PreparedText {
  int64_t samples = 0;                  ///< in the dataset: pairs, or lines of one text
  int64_t empty = 0;                    ///< left out: a side without a token
  int64_t too_long = 0;                 ///< left out: a side with more than max_length tokens
  int64_t invalid = 0;                  ///< not UTF-8 on a side: left out, or replaced by U+FFFD
  std::array<int64_t, 2> tokens{};      ///< tokens of the source and the target, or of the text
  std::array<int64_t, 2> max_tokens{};  ///< maximum tokens of a sentence or line
  int64_t unknown_tokens = 0;           ///< on both sides together
  int64_t repeats = 0;                  ///< samples that repeat an earlier one exactly; they are kept
  bool repeats_are_estimated = false;   ///< from a share of them, because there are too many different ones
  int64_t control = 0;                  ///< samples with control characters, which are kept
  int64_t unknown_characters = 0;       ///< different characters that the vocabulary cannot express
  std::vector<std::pair<std::string, int64_t>> frequent_unknown = {};  ///< the ten most frequent, with their counts
};

/// "é U+00E9"; only "U+00AD" for a character that cannot be seen: a control or format character, or a space.
std::string describe_character(std::string const& character);

struct PrepareReport {
  std::optional<PreparedText> train, valid;     ///< none of what was not given, or not asked for
  std::optional<CleaningReport> cleaning = {};  ///< of the training text
  int32_t source_vocabulary_size = 0;
  int32_t target_vocabulary_size = 0;
  bool joint = true;
};

/// Whether `heddle prepare` gives a file of a training dataset this name.
bool is_training_file(std::string const& name);

/// Reads the texts, learns or loads the vocabulary and writes the datasets: of pairs, or of lines where `text` is
/// given, whose vocabulary then has a mask token unless it is loaded. The files are the same on any number of threads
/// and ranks. Pipes are copied into `directory` first, where texts are read twice. Memory does not grow with the texts:
/// some MiB for each thread, and up to about 1 GiB where a vocabulary is learnt, from a sample of 64 MiB. Progress
/// messages go to `progress`.
///
/// Collective over `world`, with the same options; rank 0 alone reads and writes, and has the report. Throws there
/// UsageError for conflicting options and DataError for texts that cannot be used: unequal numbers of lines, invalid
/// UTF-8 (file and line; unless it is skipped or replaced), no content; Error for a place that cannot be written. Then
/// no file is left, and the other ranks wait for more work.
PrepareReport prepare(PrepareOptions const& options, std::ostream& progress,
                      Communicator const& world = Communicator::self());

}  // namespace heddle
