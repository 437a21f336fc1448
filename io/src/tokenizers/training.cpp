#include <fmt/format.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/tokenizers/line_sample.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>

#include "tokenizers/tokenizer_model.hpp"

namespace heddle {
namespace {

class SampleIterator : public sentencepiece::SentenceIterator {
 public:
  explicit SampleIterator(LineSample const& sample) : sample_(sample) {}
  bool done() const override { return index_ >= sample_.size(); }
  void Next() override { ++index_; }
  std::string const& value() const override { return sample_.line(index_); }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  LineSample const& sample_;
  std::size_t index_ = 0;
};

/// The digits after the first `mark` in `message`; empty where there are none.
std::string digits_after(std::string_view mark, std::string const& message) {
  std::size_t const found = message.find(mark);
  if (found == std::string::npos) {
    return "";
  }
  std::size_t const begin = found + mark.size();
  return message.substr(begin, message.find_first_not_of("0123456789", begin) - begin);
}

/// Translates SentencePiece's message about the vocabulary size into Heddle's terms.
[[noreturn]] void report_training_failure(TokenizerTraining const& training, std::string const& message) {
  if (std::string const largest = digits_after("<= ", message); !largest.empty()) {
    throw UsageError("a vocabulary of {} pieces is too large for this text: the largest possible is {}",
                     readable_count(training.vocabulary_size), in_groups(largest));
  }
  if (std::string const needed = digits_after(" vs ", message);
      message.find("smaller than required_chars") != std::string::npos && !needed.empty()) {
    throw UsageError(
        "a vocabulary of {} pieces is too small: this text's characters and the special pieces "
        "alone need {}",
        readable_count(training.vocabulary_size), in_groups(needed));
  }
  throw ConfigError("SentencePiece cannot train a vocabulary of {} {} pieces: {}",
                    readable_count(training.vocabulary_size), training.type, message);
}

/// SentencePiece's options by their names.
std::unordered_map<std::string, std::string> settings_of(TokenizerTraining const& training, bool has_reserved) {
  auto const boolean = [](bool value) { return value ? "true" : "false"; };
  std::unordered_map<std::string, std::string> settings = {
      {"model_type", training.type},
      {"vocab_size", std::to_string(training.vocabulary_size)},
      {"character_coverage", fmt::format("{}", training.character_coverage)},
      {"normalization_rule_name", training.normalization},
      {"byte_fallback", boolean(training.byte_fallback)},
      {"split_digits", boolean(training.split_digits)},
      {"pad_id", "0"},
      {"unk_id", "1"},
      {"bos_id", "2"},
      {"eos_id", "3"},
      {"num_threads", "1"},  // the model records it, and that of a unigram vocabulary depends on it, by rounding
      {"minloglevel", "2"},
  };
  std::string symbols = training.mask_token ? mask_piece : "";
  for (int64_t number = 0; number < training.sentinels; ++number) {
    symbols += (symbols.empty() ? "" : ",") + sentinel_piece(number);
  }
  if (!symbols.empty()) {
    settings["control_symbols"] = symbols;  // no text is read as a control symbol
  }
  std::vector<std::string> whole = training.symbols;
  bool const every_character = !training.byte_fallback && training.character_coverage >= 1;
  if (has_reserved && every_character && std::ranges::find(whole, reserved_character) == whole.end()) {
    whole.emplace_back(reserved_character);
  }
  if (!whole.empty()) {
    settings["user_defined_symbols"] = fmt::format("{}", fmt::join(whole, ","));
  }
  return settings;
}

}  // namespace

Tokenizer Tokenizer::train(TokenizerTraining const& training, LineSample const& sample) {
  if (training.type != "bpe" && training.type != "unigram") {
    throw ConfigError("unknown vocabulary type \"{}\": expected \"bpe\" or \"unigram\"", training.type);
  }
  if (sample.empty()) {
    throw DataError("the corpus to train a vocabulary on has no sentence");
  }
  SampleIterator iterator(sample);
  std::string model;
  auto const status =
      sentencepiece::SentencePieceTrainer::Train(settings_of(training, sample.has_reserved()), &iterator, &model);
  if (!status.ok()) {
    report_training_failure(training, status.ToString());
  }
  return from_model(std::move(model));
}

}  // namespace heddle
