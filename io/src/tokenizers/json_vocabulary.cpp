#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <boost/json.hpp>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <heddle/io/text/text.hpp>
#include <new>
#include <unordered_map>
#include <utility>

#include "tokenizer_steps/characters.hpp"
#include "tokenizer_steps/json_members.hpp"
#include "tokenizer_steps/normalizer.hpp"
#include "tokenizer_steps/piece_decoder.hpp"
#include "tokenizer_steps/pre_tokenizer.hpp"
#include "tokenizers/prefix_tree.hpp"
#include "tokenizers/subword_models.hpp"
#include "tokenizers/tokenizer_model.hpp"

namespace heddle {

namespace {

namespace json = boost::json;
using Ids = std::vector<std::int32_t>;

/// Whether a regular expression of Rust has the character as a letter of words (\w).
bool is_word_letter(char32_t letter) {
  auto const code = static_cast<UChar32>(letter);
  constexpr std::uint32_t categories = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return u_isUAlphabetic(code) != 0 || (U_MASK(u_charType(code)) & categories) != 0 ||
         u_hasBinaryProperty(code, UCHAR_JOIN_CONTROL) != 0;
}

bool is_of_word(std::string_view character) {
  return !character.empty() && is_word_letter(decode_utf8(character).front());
}

bool is_space(std::string_view character) {
  return !character.empty() && is_white_space(decode_utf8(character).front());
}

/// Tokens that are found in a text before it is split into words: the leftmost, of those that start there the longest.
class AddedTokens {
 public:
  struct Token {
    std::string text;
    std::int32_t id;
    bool special = false;      ///< text where it occurs, and no token that overlaps it there is found
    bool single_word = false;  ///< only where no letter or digit is beside it
    bool lstrip = false;       ///< with the white space before it
    bool rstrip = false;
  };
  AddedTokens() = default;
  /// Throws DataError for a text of more than 1024 bytes.
  explicit AddedTokens(std::vector<Token> tokens);
  /// Appends the ids of the tokens in the text; calls `others` for what lies between them, `first` for a part that
  /// begins where the text does.
  void split(std::string_view text, Ids& ids, std::function<void(std::string_view, bool first)> const& others) const;

 private:
  Token const* longest_at(std::string_view text) const;

  std::vector<Token> tokens_;
  PrefixTree tree_;
};

AddedTokens::AddedTokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  constexpr std::size_t max_bytes = 1024;
  std::vector<std::pair<std::string, std::int32_t>> texts;
  for (Token const& token : tokens_) {
    if (token.text.size() > max_bytes) {
      throw DataError("an added token has {} bytes", token.text.size());
    }
    texts.emplace_back(token.text, static_cast<std::int32_t>(texts.size()));
  }
  tree_ = PrefixTree(std::move(texts));
}

void AddedTokens::split(std::string_view text, Ids& ids,
                        std::function<void(std::string_view, bool first)> const& others) const {
  std::size_t done = 0;
  auto const pass = [&](std::size_t end) {
    if (end > done) {
      others(text.substr(done, end - done), done == 0);
    }
  };
  for (std::size_t at = 0; at < text.size() && !tree_.empty();) {
    Token const* const found = longest_at(text.substr(at));
    std::size_t const begin = at;
    at += found == nullptr ? 1 : found->text.size();
    bool const in_word =
        found != nullptr && found->single_word &&
        (is_of_word(last_character(text.substr(0, begin))) || is_of_word(first_character(text.substr(at))));
    if (found == nullptr || found->special || in_word) {
      continue;
    }
    std::size_t left = begin;
    std::size_t right = found->rstrip ? std::max(at, done) : at;  // what the token before took is white space
    while (found->lstrip && left > done && is_space(last_character(text.substr(0, left)))) {
      left -= last_character(text.substr(0, left)).size();
    }
    left = found->lstrip ? std::max(left, done) : left;
    while (found->rstrip && is_space(first_character(text.substr(right)))) {
      right += first_character(text.substr(right)).size();
    }
    pass(left);
    if (left < right) {  // not white space that the token before took
      ids.push_back(found->id);
    }
    done = right;
  }
  pass(text.size());
}

AddedTokens::Token const* AddedTokens::longest_at(std::string_view text) const {
  std::int32_t longest = -1;
  tree_.for_each_prefix(text, [&](std::size_t, std::int32_t number) { longest = number; });
  return longest < 0 ? nullptr : &tokens_[static_cast<std::size_t>(longest)];
}

bool is_named(json::object const& special, std::int64_t id) {
  return std::ranges::any_of(special, [&](auto const& one) { return one.key() != "rows" && one.value() == id; });
}

/// A vocabulary of Hugging Face's tokenizer.json with the member "heddle" (see tokenizer_json.hpp). No text is read as
/// a special piece. Reading it throws DataError, or what Boost.JSON throws.
class JsonVocabulary final : public TokenizerModel {
 public:
  explicit JsonVocabulary(json::object const& document);

  Ids encode(std::string_view text) const override;
  std::string decode(std::span<std::int32_t const> tokens) const override;
  std::string piece(std::int32_t id) const override {
    Piece const& piece = pieces_[static_cast<std::size_t>(id)];
    return piece.raw ? piece.bytes : in_byte_alphabet(piece.bytes);
  }

 private:
  struct Piece {
    std::string bytes;
    bool raw = false;      ///< its text is not of the bytes' alphabet, and is `bytes` itself
    bool special = false;  ///< neither read from a text nor written to one
  };

  Piece piece_of(std::string const& text) const {
    auto const plain = pre_tokenizer_.of_bytes() ? from_byte_alphabet(text) : std::nullopt;
    return {plain.value_or(text), !plain};
  }
  /// Sets a piece's text. Throws DataError if another piece has its id.
  Piece& set_piece(std::int64_t id, std::string const& text);
  void read_added_tokens(json::object const& document, json::object const& special);
  /// Sets `size`, `ids` and `text_form`; the pieces that `ids` name, and those that nothing names, are special.
  void read_special(json::object const& special);

  TextNormalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  PieceDecoder decoder_;
  std::vector<Piece> pieces_;
  AddedTokens added_;
  AddedTokens added_normal_;  // found in the normalized text
  std::unique_ptr<SubwordModel const> model_;
};

JsonVocabulary::JsonVocabulary(json::object const& document)
    : normalizer_(json_member(document, "normalizer")),
      pre_tokenizer_(json_member(document, "pre_tokenizer")),
      decoder_(json_member(document, "decoder"), pre_tokenizer_.of_bytes()) {
  json::object const& model = document.at("model").as_object();
  json::object const& special = document.at("heddle").as_object();
  if (pre_tokenizer_.of_bytes() && !is_bpe(model)) {
    refuse_option("pre_tokenizer", document.at("pre_tokenizer"));
  }
  for_each_piece(model, [&](std::string const& text, std::int64_t id) { set_piece(id, text); });
  read_added_tokens(document, special);
  read_special(special);
  auto const is_special = [&](std::int64_t id) { return pieces_[static_cast<std::size_t>(id)].special; };
  model_ = make_subword_model(model, is_special, pre_tokenizer_.of_bytes());
}

Ids JsonVocabulary::encode(std::string_view text) const {
  Ids found;
  added_.split(replace_invalid_utf8(text), found, [&](std::string_view rest, bool first) {
    bool at_start = first;
    std::string const normal = normalizer_(rest, at_start);
    added_normal_.split(normal, found, [&](std::string_view part, bool first_there) {
      for (PreTokenizer::Word const& word : pre_tokenizer_.split({std::string(part), at_start && first_there})) {
        model_->encode(word.text, found);
      }
    });
  });
  return found;
}

std::string JsonVocabulary::decode(std::span<std::int32_t const> tokens) const {
  std::vector<std::string> pieces;
  for (std::int32_t const id : tokens) {
    Piece const& piece = pieces_[static_cast<std::size_t>(id)];
    if (!piece.special) {
      pieces.push_back(piece.bytes);
    }
  }
  return decoder_(std::move(pieces));
}

JsonVocabulary::Piece& JsonVocabulary::set_piece(std::int64_t id, std::string const& text) {
  if (text.empty() || id < 0 || id >= max_foreign_ids) {
    throw DataError("the piece \"{}\" is empty or has the id {}; expected 0 to {}", text, id, max_foreign_ids - 1);
  }
  auto const index = static_cast<std::size_t>(id);
  pieces_.resize(std::max(pieces_.size(), index + 1));
  if (!pieces_[index].bytes.empty() && piece(static_cast<std::int32_t>(id)) != text) {
    throw DataError("two pieces have the id {}: \"{}\" is one of them", id, text);
  }
  return pieces_[index] = piece_of(text);
}

void JsonVocabulary::read_added_tokens(json::object const& document, json::object const& special) {
  json::value const* const tokens = json_member(document, "added_tokens");
  std::vector<AddedTokens::Token> given;
  std::vector<AddedTokens::Token> normal;
  for (json::value const& value : tokens == nullptr ? json::array() : tokens->as_array()) {
    json::object const& token = value.as_object();
    bool const normalized = json_flag(token, "normalized");
    std::int64_t const id = token.at("id").as_int64();
    std::string text = json_string(token.at("content"));
    Piece& piece = set_piece(id, text);
    if (normalized) {
      bool at_start = true;
      text = normalizer_(text, at_start);
      piece = piece_of(text);
      if (text.empty()) {
        refuse_option("added_tokens", value);
      }
    }
    piece.special = json_flag(token, "special");
    (normalized ? normal : given)
        .push_back({.text = std::move(text),
                    .id = static_cast<std::int32_t>(id),
                    .special = piece.special || is_named(special, id),
                    .single_word = json_flag(token, "single_word"),
                    .lstrip = json_flag(token, "lstrip"),
                    .rstrip = json_flag(token, "rstrip")});
  }
  added_ = AddedTokens(std::move(given));
  added_normal_ = AddedTokens(std::move(normal));
}

void JsonVocabulary::read_special(json::object const& special) {
  json::value const* const rows = json_member(special, "rows");
  std::int64_t const count = rows == nullptr ? std::ssize(pieces_) : rows->as_int64();
  if (count < std::ssize(pieces_) || count > max_foreign_ids) {
    throw DataError("a table of {} rows for a vocabulary of {} pieces", count, pieces_.size());
  }
  pieces_.resize(static_cast<std::size_t>(count));
  size = static_cast<std::int32_t>(count);
  for (std::size_t id = 0; id < pieces_.size(); ++id) {
    if (pieces_[id].bytes.empty()) {
      pieces_[id] = {fmt::format("<madeupword{}>", id), true, true};
    }
  }
  for (auto const& [key, id] : {std::pair("begin", &ids.begin),
                                {"end", &ids.end},
                                {"unknown", &ids.unknown},
                                {"padding", &ids.padding},
                                {"mask", &ids.mask}}) {
    json::value const* const value = json_member(special, key);
    if (value != nullptr && value->as_int64() >= 0 && value->as_int64() < count) {
      *id = static_cast<std::int32_t>(value->as_int64());
      pieces_[static_cast<std::size_t>(*id)].special = true;
    } else if (value != nullptr || id == &ids.begin || id == &ids.end) {
      throw DataError("the id of its special piece \"{}\" is missing or not 0 to {}", key, count - 1);
    }
  }
  std::unordered_map<std::string_view, std::int32_t> texts;
  for (std::size_t id = 0; id < pieces_.size(); ++id) {
    texts.emplace(pieces_[id].bytes, static_cast<std::int32_t>(id));
  }
  for (auto found = texts.end(); (found = texts.find(fmt::format("<extra_id_{}>", sentinels.size()))) != texts.end();) {
    sentinels.push_back(found->second);
    pieces_[static_cast<std::size_t>(found->second)].special = true;
  }
  if (json::value const* const form = json_member(special, "form")) {
    text_form = parse_text_form(json::serialize(*form), size);
  }
}

}  // namespace

bool is_json(std::string_view bytes) noexcept {
  return bytes.starts_with('{');  // the tag of a field that SentencePiece's models do not have
}

std::unique_ptr<TokenizerModel> load_json_vocabulary(std::string bytes) {
  constexpr char const* what = "this vocabulary is not a tokenizer.json that can be used";
  try {
    json::value const document = parse_bounded_json(bytes, "tokenizer.json");
    auto model = std::make_unique<JsonVocabulary>(document.as_object());
    model->bytes = std::move(bytes);
    return model;
  } catch (std::bad_alloc const&) {
    throw;
  } catch (std::exception const& error) {  // Boost.JSON's, for a value of another kind or a missing member, too
    throw DataError("{}: {}", what, plain_message(error));
  }
}

}  // namespace heddle
