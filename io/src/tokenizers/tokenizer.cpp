#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/tokenizers/sentencepiece_model.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <limits>

#include "tokenizers/tokenizer_model.hpp"

namespace heddle {
namespace {

constexpr char const* mask_piece = "<mask>";
constexpr std::string_view space_symbol = "▁";
/// SentencePiece leaves out lines with this character, which stands for unknown ones while it trains.
constexpr std::string_view reserved_character = "▅";

std::string sentinel_piece(int64_t number) {
  return fmt::format("<extra_id_{}>", number);
}

/// 64 random bits that depend only on a line's number, so that sampling is even and repeatable.
uint64_t scramble(uint64_t number) noexcept {
  constexpr uint64_t key = 0;
  auto const words = Philox::words(key, {static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32U), 0, 0});
  return (uint64_t{words[0]} << 32U) | words[1];
}

/// An even sample of a stream of lines within a budget of bytes: a line stays while its scrambled number is below a
/// threshold, and the threshold is halved whenever the budget is spent.
class LineSample {
 public:
  explicit LineSample(int64_t budget) : budget_(budget) {}

  void add(std::string_view line) {
    uint64_t const key = scramble(count_++);
    if (line.empty() || key > threshold_) {
      return;
    }
    lines_.push_back({key, std::string(line)});
    bytes_ += cost(line);
    while (bytes_ > budget_ && lines_.size() > 1) {
      threshold_ /= 2;
      std::erase_if(lines_, [&](Line const& kept) {
        bool const drop = kept.key > threshold_;
        bytes_ -= drop ? cost(kept.text) : 0;
        return drop;
      });
    }
  }

  bool empty() const noexcept { return lines_.empty(); }
  std::size_t size() const noexcept { return lines_.size(); }
  std::string const& text(std::size_t index) const { return lines_[index].text; }

 private:
  struct Line {
    uint64_t key;
    std::string text;
  };
  static int64_t cost(std::string_view line) noexcept { return static_cast<int64_t>(line.size() + sizeof(Line)); }

  int64_t budget_;
  int64_t bytes_ = 0;
  uint64_t count_ = 0;
  uint64_t threshold_ = std::numeric_limits<uint64_t>::max();
  std::vector<Line> lines_;
};

/// Puts spaces in place of the reserved character; whether the line had it.
bool take_reserved(std::string& line) {
  bool found = false;
  for (std::size_t at = 0; (at = line.find(reserved_character, at)) != line.npos; found = true) {
    line.replace(at, reserved_character.size(), " ");
  }
  return found;
}

/// Adds a line in parts, because SentencePiece leaves out lines of more than 4,192 bytes. It counts the pieces of
/// words, so that parts that end at spaces give the vocabulary of the whole line. A longer text without a space
/// (Chinese) is split between characters.
void add_in_parts(LineSample& sample, std::string_view line) {
  constexpr std::size_t max_bytes = 4096;
  while (line.size() > max_bytes) {
    std::size_t end = line.rfind(' ', max_bytes);
    if (end == line.npos || end == 0) {
      for (end = max_bytes; (static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80; --end) {
      }
    }
    sample.add(line.substr(0, end));
    line.remove_prefix(end);
  }
  sample.add(line);
}

class SampleIterator : public sentencepiece::SentenceIterator {
 public:
  explicit SampleIterator(LineSample const& sample) : sample_(sample) {}
  bool done() const override { return index_ >= sample_.size(); }
  void Next() override { ++index_; }
  std::string const& value() const override { return sample_.text(index_); }
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

class SentencePieceTokenizer final : public TokenizerModel {
 public:
  explicit SentencePieceTokenizer(std::string model_bytes);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<std::int32_t const> tokens) const override;
  std::string piece(std::int32_t id) const override {
    std::string const& text = processor_.IdToPiece(id);
    return is_word(id) ? text.substr(std::string_view(word_prefix).size()) : text;
  }

 private:
  bool is_word(std::int32_t id) const {
    return by_text_ && processor_.IsControl(id) && processor_.IdToPiece(id).starts_with(word_prefix);
  }

  sentencepiece::SentencePieceProcessor processor_;
  bool by_text_ = false;  // see end_of_ids_piece
};

SentencePieceTokenizer::SentencePieceTokenizer(std::string model_bytes) {
  require_sound_normalizers(model_bytes);
  if (auto const status = processor_.LoadFromSerializedProto(model_bytes); !status.ok()) {
    throw DataError("this vocabulary is not a SentencePiece model: {}", status.ToString());
  }
  bytes = std::move(model_bytes);
  int32_t const end_of_ids = processor_.PieceToId(end_of_ids_piece);
  by_text_ = processor_.IsControl(end_of_ids);
  size = by_text_ ? end_of_ids : processor_.GetPieceSize();
  auto const require = [&](int32_t id, char const* meaning, char const* option) {
    if (id < 0 || id >= size) {
      throw DataError("the SentencePiece model has no {} piece; train it with --{}_id=N, N from 0 to {}", meaning,
                      option, size - 1);
    }
    return id;
  };
  int32_t const end = require(processor_.eos_id(), "end-of-sentence", "eos");
  ids = {.begin = processor_.bos_id() < 0 ? end : require(processor_.bos_id(), "begin-of-sentence", "bos"),
         .end = end,
         .unknown = require(processor_.unk_id(), "unknown", "unk"),
         .padding = processor_.pad_id()};
  int32_t const mask = processor_.PieceToId(mask_piece);
  if (mask != ids.unknown && mask < size) {  // the id of a piece that the model lacks, or one without an id
    ids.mask = mask;
  }
  if (auto const stored = text_form_of_model(bytes); !stored.empty()) {
    text_form = parse_text_form(stored, size);
    ids.begin = text_form.start == SpecialIds::absent ? ids.begin : text_form.start;
  }
  auto const next_sentinel = [&] { return processor_.PieceToId(sentinel_piece(std::ssize(sentinels))); };
  for (int32_t id = next_sentinel(); id != ids.unknown && id < size; id = next_sentinel()) {
    sentinels.push_back(id);
  }
}

std::vector<std::int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  auto const encode = [&](auto& result) {
    if (auto const status = processor_.Encode(text, &result); !status.ok()) {
      throw Error("SentencePiece cannot encode a text: {}", status.ToString());
    }
  };
  std::vector<int> found;
  if (!by_text_) {
    encode(found);
    return found;
  }
  std::vector<std::string> pieces;
  encode(pieces);
  for (auto const& piece : pieces) {
    int32_t id = processor_.PieceToId(piece);
    if (id == ids.unknown || processor_.IsControl(id)) {
      id = processor_.PieceToId(word_prefix + piece);
    }
    found.push_back(id < size ? id : ids.unknown);
  }
  return found;
}

std::string SentencePieceTokenizer::decode(std::span<std::int32_t const> tokens) const {
  std::vector<std::string> pieces;
  bool first = true;
  for (int32_t const id : tokens) {
    std::string text = piece(id);
    bool const word = is_word(id);
    if (word) {  // SentencePiece takes it for an unknown word, of which it changes nothing
      for (std::size_t at = 0; (at = text.find(space_symbol, at)) != std::string::npos;) {
        text.replace(at, space_symbol.size(), " ");
      }
      text.erase(0, first && text.starts_with(' ') ? 1 : 0);
    }
    first = first && !word && processor_.IsControl(id);
    pieces.push_back(std::move(text));
  }
  std::string text;
  if (auto const status = processor_.Decode(pieces, &text); !status.ok()) {
    throw Error("SentencePiece cannot decode {} ids: {}", tokens.size(), status.ToString());
  }
  return text;
}

}  // namespace

Tokenizer Tokenizer::from_model(std::string model_bytes) {
  return Tokenizer(is_json(model_bytes)
                       ? std::shared_ptr<TokenizerModel const>(load_json_vocabulary(std::move(model_bytes)))
                       : std::make_shared<SentencePieceTokenizer>(std::move(model_bytes)));
}

Tokenizer Tokenizer::train(TokenizerTraining const& training) {
  if (training.type != "bpe" && training.type != "unigram") {
    throw ConfigError("unknown vocabulary type \"{}\": expected \"bpe\" or \"unigram\"", training.type);
  }
  LineSample sample(training.sample_bytes);
  TextFilesReader reader(training.texts, training.invalid_utf8);
  bool reserved = false;
  for (std::string line; reader.next(line);) {
    if (training.invalid_utf8 != InvalidUtf8::skip || !reader.repaired()) {
      reserved |= take_reserved(line);
      add_in_parts(sample, line);
    }
  }
  if (sample.empty()) {
    throw DataError("the corpus to train a vocabulary on has no sentence");
  }
  std::unordered_map<std::string, std::string> settings = {
      {"model_type", training.type},
      {"vocab_size", std::to_string(training.vocabulary_size)},
      {"character_coverage", fmt::format("{}", training.character_coverage)},
      {"normalization_rule_name", training.normalization},
      {"byte_fallback", training.byte_fallback ? "true" : "false"},
      {"pad_id", "0"},
      {"unk_id", "1"},
      {"bos_id", "2"},
      {"eos_id", "3"},
      {"num_threads", "1"},
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
  if (reserved && every_character && std::ranges::find(whole, reserved_character) == whole.end()) {
    whole.emplace_back(reserved_character);
  }
  if (!whole.empty()) {
    settings["user_defined_symbols"] = fmt::format("{}", fmt::join(whole, ","));
  }
  SampleIterator iterator(sample);
  std::string model;
  auto const status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model);
  if (!status.ok()) {
    report_training_failure(training, status.ToString());
  }
  return from_model(std::move(model));
}

std::string Tokenizer::decode(std::span<int32_t const> ids) const {
  auto const wrong = std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= size(); });
  if (wrong != ids.end()) {
    throw Error("token id {} is outside the vocabulary's 0 to {}", *wrong, size() - 1);
  }
  return model_->decode(ids);
}

std::string Tokenizer::piece(int32_t id) const {
  if (id < 0 || id >= size()) {
    throw Error("token id {} is outside the vocabulary's 0 to {}", id, size() - 1);
  }
  return model_->piece(id);
}

std::unordered_map<std::string, int32_t> piece_ids(Tokenizer const& tokenizer) {
  std::unordered_map<std::string, int32_t> ids;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    ids.emplace(tokenizer.piece(id), id);
  }
  return ids;
}

bool Vocabulary::joint() const {
  bool same = source.size() == target.size() && source.special_ids() == target.special_ids();
  if (source.model() != target.model()) {
    for (int32_t id = 0; same && id < source.size(); ++id) {
      same = source.piece(id) == target.piece(id);
    }
  }
  return same;
}

SideIds Vocabulary::special_ids() const {
  SideIds ids{source.special_ids(), target.special_ids()};
  ids.source.language_last = source.form().source.language == LanguagePosition::last;
  ids.target.language_last = target.form().target.language == LanguagePosition::last;
  return ids;
}

SideIds Vocabulary::special_ids_outside_texts() const {
  SideIds ids = special_ids();
  auto const allow = [](Tokenizer const& tokenizer, TextForm::Side const& side, SpecialIds& of_side) {
    auto const has = [&](std::vector<int32_t> const& tokens) {
      return std::ranges::find(tokens, of_side.begin) != tokens.end();
    };
    if (has(side.prefix) || has(tokenizer.form().languages)) {
      of_side.begin = of_side.end;
    }
  };
  allow(source, source.form().source, ids.source);
  allow(target, target.form().target, ids.target);
  return ids;
}

std::string Vocabulary::digest() const {
  return sha256(sha256(source.model()) + sha256(target.model()));
}

}  // namespace heddle
