#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "tokenizer_steps/characters.hpp"
#include "tokenizer_steps/json_members.hpp"
#include "tokenizer_steps/normalizer.hpp"
#include "tokenizer_steps/piece_decoder.hpp"
#include "tokenizer_steps/pre_tokenizer.hpp"
#include "tokenizers/json_vocabulary.hpp"
#include "tokenizers/pair_merges.hpp"
#include "tokenizers/unigram.hpp"

namespace heddle {
namespace {

namespace json = boost::json;
using Ids = std::vector<std::int32_t>;

/// The pieces of the forms <0x00> to <0xFF>, into which unknown characters fall apart.
class BytePieces {
 public:
  void add(std::string_view text, std::int32_t id) {
    if (int const byte = byte_of_piece(text); byte >= 0) {
      ids_.at(static_cast<std::size_t>(byte)) = id;
    }
  }
  /// Appends the ids of a text's bytes, or none where a byte has no piece.
  bool encode(std::string_view text, Ids& ids) const {
    auto const id_of = [&](char byte) { return ids_.at(static_cast<unsigned char>(byte)).value_or(-1); };
    if (std::ranges::any_of(text, [&](char byte) { return id_of(byte) < 0; })) {
      return false;
    }
    std::ranges::transform(text, std::back_inserter(ids), id_of);
    return true;
  }

 private:
  std::array<std::optional<std::int32_t>, 256> ids_;
};

/// A vocabulary whose pieces are of characters, as Hugging Face's tokenizer.json has those of SentencePiece: a unigram
/// model or byte-pair encoding. No text is read as a special piece.
class PieceVocabulary final : public JsonVocabulary {
 public:
  explicit PieceVocabulary(json::object const& document)
      : JsonVocabulary([](std::string const& text) {
          return Piece{text, true, false};
        }),
        normalizer_(json_member(document, "normalizer")),
        pre_tokenizer_(json_member(document, "pre_tokenizer")),
        decoder_(json_member(document, "decoder")) {
    json::object const& model = document.at("model").as_object();
    json::object const& special = document.at("heddle").as_object();
    bool const unigram = model.at("vocab").is_array();
    for_each_piece(model, [&](std::string const& text, std::int64_t id) { set_piece(id, text); });
    read_added_tokens(document, special, [this](std::string_view text) {
      bool at_start = true;
      return normalizer_(text, at_start);
    });
    read_special(special);
    for_each_piece(model, [&](std::string const& text, std::int64_t id) { bytes_.add(text, as_id(id)); });
    falls_back_ = json_flag(model, "byte_fallback");
    unigram ? read_unigram(model) : read_pairs(model);
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    Ids found;
    bool at_start = true;
    auto const normalize = [&](std::string_view part) {
      at_start = true;
      return normalizer_(part, at_start);
    };
    cut_out_added(text, normalize, found, [&](std::string_view part, bool first) {
      for (PreTokenizer::Word const& word : pre_tokenizer_.split({std::string(part), first && at_start})) {
        unigram_ ? encode_by_scores(word.text, found) : encode_by_merges(word.text, found);
      }
    });
    return found;
  }

  std::string decode(std::span<std::int32_t const> tokens) const override {
    std::vector<std::string> pieces;
    for (std::int32_t const id : tokens) {
      Piece const& piece = pieces_[static_cast<std::size_t>(id)];
      if (!piece.special) {
        pieces.push_back(piece.bytes);
      }
    }
    return decoder_(std::move(pieces));
  }

  std::string piece(std::int32_t id) const override { return pieces_[static_cast<std::size_t>(id)].bytes; }

 private:
  static std::int32_t as_id(std::int64_t id) { return static_cast<std::int32_t>(id); }

  /// Passes the pieces of a model and their ids: a list of pieces with scores, or an object.
  template <class Take>
  static void for_each_piece(json::object const& model, Take const& take) {
    if (json::array const* const list = model.at("vocab").if_array()) {
      std::int64_t id = 0;
      for (json::value const& piece : *list) {
        take(json_string(piece.at(0)), id++);
      }
      return;
    }
    for (auto const& [text, id] : model.at("vocab").as_object()) {
      take(std::string(text), id.as_int64());
    }
  }

  bool is_special(std::int64_t id) const { return pieces_[static_cast<std::size_t>(id)].special; }

  void read_unigram(json::object const& model) {
    std::vector<Unigram::Piece> pieces;
    for (json::value const& piece : model.at("vocab").as_array()) {
      auto const id = std::ssize(pieces);
      auto const score = piece.at(1).to_number<double>();
      if (!std::isfinite(score)) {
        throw DataError("the piece {} has a score that is not a number", id);
      }
      pieces.push_back({json_string(piece.at(0)), score, is_special(id) ? -1 : as_id(id)});
    }
    json::value const* const unknown = json_member(model, "unk_id");
    if (unknown == nullptr || unknown->as_int64() < 0 || unknown->as_int64() >= std::ssize(pieces)) {
      refuse_option("model.unk_id", unknown == nullptr ? json::value() : *unknown);
    }
    unknown_ = as_id(unknown->as_int64());
    unigram_.emplace(pieces);
  }

  void read_pairs(json::object const& model) {
    require_plain_pairs(model);
    fuses_unknown_ = json_flag(model, "fuse_unk");
    takes_words_ = json_flag(model, "ignore_merges");
    std::unordered_map<std::string, std::int32_t> ids;
    for_each_piece(model, [&](std::string const& text, std::int64_t id) { ids.emplace(text, as_id(id)); });
    if (json::value const* const unknown = json_member(model, "unk_token")) {
      auto const found = ids.find(json_string(*unknown));
      if (found == ids.end()) {
        throw DataError("its unknown piece \"{}\" is missing", json_string(*unknown));
      }
      unknown_ = found->second;
    }
    auto const require = [&](std::string const& text) {
      auto const found = ids.find(text);
      if (found == ids.end()) {
        throw DataError("a merge has \"{}\", which the vocabulary lacks", text);
      }
      return found->second;
    };
    for (json::value const& merge : model.at("merges").as_array()) {
      auto const [left, right] = merge_of(merge);
      std::int32_t const both = require(left + right);
      std::int32_t const first = require(left);
      std::int32_t const second = require(right);
      if (!is_special(both)) {
        merges_.add(first, second, both);
      }
    }
    std::erase_if(ids, [&](auto const& piece) { return is_special(piece.second); });
    ids_ = std::move(ids);
  }

  void encode_by_scores(std::string_view word, Ids& found) const {
    for (Unigram::Part const& part : unigram_->split(word)) {
      if (part.id != Unigram::unknown) {
        found.push_back(part.id);
      } else if (!falls_back_ || !bytes_.encode(part.text, found)) {
        found.push_back(*unknown_);
      }
    }
  }

  void encode_by_merges(std::string const& word, Ids& found) const {
    if (auto const whole = takes_words_ ? ids_.find(word) : ids_.end(); whole != ids_.end()) {
      found.push_back(whole->second);
      return;
    }
    Ids symbols;
    std::int64_t unknown = 0;  // characters that wait for their piece, as they do in the other system
    auto const end_unknown = [&] {
      symbols.insert(symbols.end(),
                     static_cast<std::size_t>(fuses_unknown_ ? std::min<std::int64_t>(unknown, 1) : unknown),
                     unknown_.value_or(0));
      unknown = 0;
    };
    for (std::string_view rest = word; !rest.empty();) {
      std::string const letter(first_character(rest));
      rest.remove_prefix(letter.size());
      if (auto const piece = ids_.find(letter); piece != ids_.end()) {
        end_unknown();
        symbols.push_back(piece->second);
      } else if (!(falls_back_ && bytes_.encode(letter, symbols)) && unknown_) {
        ++unknown;
      }
    }
    end_unknown();
    merges_.apply(symbols);
    found.insert(found.end(), symbols.begin(), symbols.end());
  }

  TextNormalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  PieceDecoder decoder_;
  BytePieces bytes_;
  bool falls_back_ = false;              ///< unknown characters become bytes
  bool fuses_unknown_ = false;           ///< neighbours that are unknown become one piece
  bool takes_words_ = false;             ///< words that are pieces are not merged from characters
  std::optional<std::int32_t> unknown_;  ///< none: unknown characters are left out
  std::optional<Unigram> unigram_;       ///< none: byte-pair encoding by what follows
  PairMerges merges_;
  std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace

std::unique_ptr<TokenizerModel> make_piece_vocabulary(json::object const& document) {
  return std::make_unique<PieceVocabulary>(document);
}

}  // namespace heddle
