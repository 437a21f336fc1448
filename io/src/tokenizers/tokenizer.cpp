#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/tokenizers/sentencepiece_model.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <mutex>
#include <optional>

#include "tokenizers/subword_sampling.hpp"
#include "tokenizers/tokenizer_model.hpp"

namespace heddle {
namespace {

constexpr std::string_view space_symbol = "▁";

class SentencePieceTokenizer final : public TokenizerModel {
 public:
  explicit SentencePieceTokenizer(std::string model_bytes);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::vector<std::int32_t> sample(std::string_view text, double alpha,
                                   std::function<double()> const& draw) const override;
  bool can_sample() const override { return !by_text_; }
  bool splits_words() const override { return !by_text_ && sampler().splits_words(); }
  std::string decode(std::span<std::int32_t const> tokens) const override;
  std::string piece(std::int32_t id) const override {
    std::string const& text = processor_.IdToPiece(id);
    return is_word(id) ? text.substr(std::string_view(word_prefix).size()) : text;
  }

 private:
  bool is_word(std::int32_t id) const {
    return by_text_ && processor_.IsControl(id) && processor_.IdToPiece(id).starts_with(word_prefix);
  }

  /// Made when it is needed.
  SubwordSampler const& sampler() const {
    std::call_once(sampler_made_, [&] { sampler_.emplace(SentencePieceModel::parse(bytes)); });
    return *sampler_;
  }

  sentencepiece::SentencePieceProcessor processor_;
  bool by_text_ = false;  // see end_of_ids_piece
  mutable std::once_flag sampler_made_;
  mutable std::optional<SubwordSampler> sampler_;
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

std::vector<std::int32_t> SentencePieceTokenizer::sample(std::string_view text, double alpha,
                                                         std::function<double()> const& draw) const {
  std::vector<std::string> pieces;  // together they are the normalized text
  if (auto const status = processor_.Encode(text, &pieces); !status.ok()) {
    throw Error("SentencePiece cannot encode a text: {}", status.ToString());
  }
  std::vector<std::int32_t> found;
  std::string run;
  auto const end_run = [&] {
    sampler().sample(run, alpha, draw, found);
    run.clear();
  };
  for (std::string const& piece : pieces) {
    std::int32_t const id = processor_.PieceToId(piece);
    if (id == ids.unknown || !sampler().is_normal(id)) {
      end_run();
      found.push_back(id);
    } else {
      run += piece;
    }
  }
  end_run();
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

std::vector<std::int32_t> TokenizerModel::sample(std::string_view /*text*/, double /*alpha*/,
                                                 std::function<double()> const& /*draw*/) const {
  throw Error("only a vocabulary of SentencePiece can draw segmentations");
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
