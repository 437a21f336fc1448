#include "tokenizers/json_vocabulary.hpp"

#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <heddle/io/text/text.hpp>
#include <initializer_list>
#include <new>
#include <unordered_map>

#include "tokenizer_steps/characters.hpp"
#include "tokenizer_steps/json_members.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

bool is_named(json::object const& special, json::value const& id) {
  return std::ranges::any_of(special, [&](auto const& one) { return one.key() != "rows" && one.value() == id; });
}

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

}  // namespace

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

void AddedTokens::split(std::string_view text, std::vector<std::int32_t>& ids,
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

JsonVocabulary::Piece& JsonVocabulary::set_piece(json::value const& number, std::string const& text) {
  auto const id = number.as_int64();
  if (text.empty() || id < 0 || id >= max_foreign_ids) {
    throw DataError("the piece \"{}\" is empty or has the id {}; expected 0 to {}", text, id, max_foreign_ids - 1);
  }
  auto const index = static_cast<std::size_t>(id);
  pieces_.resize(std::max(pieces_.size(), index + 1));
  if (!pieces_[index].bytes.empty() && piece(static_cast<std::int32_t>(id)) != text) {
    throw DataError("two pieces have the id {}: \"{}\" is one of them", id, text);
  }
  return pieces_[index] = piece_of_(text);
}

void JsonVocabulary::read_added_tokens(json::object const& document, json::object const& special,
                                       Normalizer const& normalize) {
  json::value const* const tokens = json_member(document, "added_tokens");
  std::vector<AddedTokens::Token> given;
  std::vector<AddedTokens::Token> normal;
  for (json::value const& value : tokens == nullptr ? json::array() : tokens->as_array()) {
    json::object const& token = value.as_object();
    bool const normalized = normalize && json_flag(token, "normalized");
    std::string text = json_string(token.at("content"));
    Piece& piece = set_piece(token.at("id"), text);
    if (normalized) {
      text = normalize(text);
      piece = piece_of_(text);
      if (text.empty()) {
        refuse_option("added_tokens", value);
      }
    }
    piece.special = json_flag(token, "special");
    (normalized ? normal : given)
        .push_back({.text = std::move(text),
                    .id = static_cast<std::int32_t>(token.at("id").as_int64()),
                    .special = piece.special || is_named(special, token.at("id")),
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

void JsonVocabulary::cut_out_added(std::string_view text, Normalizer const& normalize,
                                   std::vector<std::int32_t>& tokens,
                                   std::function<void(std::string_view, bool first)> const& others) const {
  added_.split(replace_invalid_utf8(text), tokens, [&](std::string_view rest, bool first) {
    std::string const normal = normalize ? normalize(rest) : std::string(rest);
    added_normal_.split(normal, tokens,
                        [&](std::string_view part, bool first_there) { others(part, first && first_there); });
  });
}

void JsonVocabulary::require_plain_pairs(json::object const& model) {
  for (auto const& [key, plain] : std::initializer_list<std::pair<char const*, json::value>>{
           {"type", "BPE"}, {"dropout", 0.0}, {"continuing_subword_prefix", ""}, {"end_of_word_suffix", ""}}) {
    if (json::value const* const value = json_member(model, key); value != nullptr && *value != plain) {
      refuse_option(fmt::format("model.{}", key), *value);
    }
  }
}

std::pair<std::string, std::string> JsonVocabulary::merge_of(json::value const& merge) {
  if (json::array const* const pair = merge.if_array()) {
    return {json_string(pair->at(0)), json_string(pair->at(1))};
  }
  std::string const both = json_string(merge);
  std::size_t const space = std::min(both.find(' '), both.size());
  return {both.substr(0, space), both.substr(std::min(space + 1, both.size()))};
}

bool is_json(std::string_view bytes) noexcept {
  return bytes.starts_with('{');  // the tag of a field that SentencePiece's models do not have
}

namespace {

/// Whether a step of a pre-tokenizer makes characters of bytes.
bool has_byte_level(json::value const* step) {
  if (step == nullptr) {
    return false;
  }
  std::string const type = json_string(step->at("type"));
  return type == "ByteLevel" ||
         (type == "Sequence" && std::ranges::any_of(step->at("pretokenizers").as_array(),
                                                    [](json::value const& one) { return has_byte_level(&one); }));
}

std::unique_ptr<TokenizerModel> make_model(json::object const& document) {
  json::object const& model = document.at("model").as_object();
  json::value const* const named = json_member(model, "type");  // older files may lack it
  std::string const type = named != nullptr ? json_string(*named) : model.at("vocab").is_array() ? "Unigram" : "BPE";
  if (type == "WordPiece") {
    return make_word_piece(document);
  }
  bool const bytes = type == "BPE" && has_byte_level(json_member(document, "pre_tokenizer"));
  return bytes ? make_byte_level_bpe(document) : make_piece_vocabulary(document);
}

}  // namespace

std::unique_ptr<TokenizerModel> load_json_vocabulary(std::string bytes) {
  constexpr char const* what = "this vocabulary is not a tokenizer.json that can be used";
  try {
    json::value const document = parse_bounded_json(bytes, "tokenizer.json");
    auto model = make_model(document.as_object());
    model->bytes = std::move(bytes);
    return model;
  } catch (std::bad_alloc const&) {
    throw;
  } catch (std::exception const& error) {  // Boost.JSON's, for a value of another kind or a missing member, too
    throw DataError("{}: {}", what, plain_message(error));
  }
}

}  // namespace heddle
