#include "text/json_vocabulary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <initializer_list>
#include <new>

#include "text/bounded_json.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

bool is_named(json::object const& special, json::value const& id) {
  return std::ranges::any_of(special, [&](auto const& one) { return one.key() != "rows" && one.value() == id; });
}

}  // namespace

json::value const* json_member(json::object const& object, std::string_view key) {
  json::value const* const found = object.if_contains({key.data(), key.size()});
  return found == nullptr || found->is_null() ? nullptr : found;
}

bool json_flag(json::object const& object, std::string_view key, bool absent) {
  json::value const* const found = json_member(object, key);
  return found == nullptr ? absent : found->as_bool();
}

std::string json_string(json::value const& value) {
  return json::value_to<std::string>(value);
}

void refuse_option(std::string const& key, json::value const& value) {
  throw DataError(fmt::format("{} = {} is not supported", key, json::serialize(value).substr(0, 200)));
}

void AddedTokens::add(std::string text, std::int32_t id) {
  constexpr std::size_t max_bytes = 1024;
  if (text.size() > max_bytes) {
    throw DataError(fmt::format("an added token has {} bytes", text.size()));
  }
  tokens_.emplace_back(std::move(text), id);
}

void AddedTokens::sort() {
  std::ranges::sort(tokens_);
}

void AddedTokens::cut(std::string_view text, std::vector<std::int32_t>& ids,
                      std::function<void(std::string_view)> const& others) const {
  std::size_t done = 0;
  auto const pass = [&](std::size_t end) {
    if (end > done) {
      others(text.substr(done, end - done));
    }
  };
  for (std::size_t at = 0; at < text.size() && !tokens_.empty();) {
    Token const* const found = longest_at(text.substr(at));
    if (found == nullptr) {
      ++at;
      continue;
    }
    pass(at);
    ids.push_back(found->second);
    done = at += found->first.size();
  }
  pass(text.size());
}

AddedTokens::Token const* AddedTokens::longest_at(std::string_view text) const {
  std::span<Token const> same = tokens_;  // as far as the text was read
  Token const* longest = nullptr;
  for (std::size_t at = 0; at < text.size(); ++at) {
    auto const byte_of = [&](Token const& token) {
      return at < token.first.size() ? int{static_cast<unsigned char>(token.first[at])} : -1;
    };
    auto const next = std::ranges::equal_range(same, int{static_cast<unsigned char>(text[at])}, {}, byte_of);
    same = {next.begin(), next.end()};
    if (same.empty()) {
      break;
    }
    longest = same.front().first.size() == at + 1 ? &same.front() : longest;
  }
  return longest;
}

JsonVocabulary::Piece& JsonVocabulary::set_piece(json::value const& number, std::string const& text) {
  auto const id = number.as_int64();
  if (text.empty() || id < 0 || id >= max_foreign_ids) {
    throw DataError(
        fmt::format("the piece \"{}\" is empty or has the id {}; expected 0 to {}", text, id, max_foreign_ids - 1));
  }
  auto const index = static_cast<std::size_t>(id);
  pieces_.resize(std::max(pieces_.size(), index + 1));
  if (!pieces_[index].bytes.empty() && piece(static_cast<std::int32_t>(id)) != text) {
    throw DataError(fmt::format("two pieces have the id {}: \"{}\" is one of them", id, text));
  }
  return pieces_[index] = piece_of_(text);
}

void JsonVocabulary::read_added_tokens(json::object const& document, json::object const& special,
                                       Normalizer const& normalize) {
  json::value const* const tokens = json_member(document, "added_tokens");
  for (json::value const& value : tokens == nullptr ? json::array() : tokens->as_array()) {
    json::object const& token = value.as_object();
    bool const normalized = normalize && json_flag(token, "normalized");
    std::string text = json_string(token.at("content"));
    if (normalized) {
      text = normalize(text);
    }
    Piece& piece = set_piece(token.at("id"), text);
    piece.special = json_flag(token, "special");
    if (piece.special || is_named(special, token.at("id"))) {
      continue;
    }
    for (char const* const key : {"single_word", "lstrip", "rstrip"}) {
      if (json_flag(token, key)) {
        throw DataError(fmt::format("the added token \"{}\" has {} = true, which is not supported", text, key));
      }
    }
    auto const id = static_cast<std::int32_t>(token.at("id").as_int64());
    (normalized ? added_normal_ : added_).add(std::move(text), id);
  }
  added_.sort();
  added_normal_.sort();
}

void JsonVocabulary::read_special(json::object const& special) {
  json::value const* const rows = json_member(special, "rows");
  std::int64_t const count = rows == nullptr ? std::ssize(pieces_) : rows->as_int64();
  if (count < std::ssize(pieces_) || count > max_foreign_ids) {
    throw DataError(fmt::format("a table of {} rows for a vocabulary of {} pieces", count, pieces_.size()));
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
      throw DataError(fmt::format("the id of its special piece \"{}\" is missing or not 0 to {}", key, count - 1));
    }
  }
  if (json::value const* const form = json_member(special, "form")) {
    text_form = parse_text_form(json::serialize(*form), size);
  }
}

void JsonVocabulary::cut_out_added(std::string_view text, Normalizer const& normalize,
                                   std::vector<std::int32_t>& tokens,
                                   std::function<void(std::string_view)> const& others) const {
  added_.cut(text, tokens, [&](std::string_view rest) {
    std::string const normal = normalize ? normalize(rest) : std::string(rest);
    added_normal_.cut(normal, tokens, others);
  });
}

bool is_json(std::string_view bytes) noexcept {
  return bytes.starts_with('{');  // the tag of a field that SentencePiece's models do not have
}

std::unique_ptr<TokenizerModel> load_json_vocabulary(std::string bytes) {
  constexpr char const* what = "this vocabulary is not a tokenizer.json that can be used";
  try {
    json::value const document = parse_bounded_json(bytes, "tokenizer.json");
    json::value const* const type = json_member(document.at("model").as_object(), "type");
    bool const words = type != nullptr && *type == "WordPiece";
    auto model = words ? make_word_piece(document.as_object()) : make_byte_level_bpe(document.as_object());
    model->bytes = std::move(bytes);
    return model;
  } catch (std::bad_alloc const&) {
    throw;
  } catch (std::exception const& error) {  // Boost.JSON's, for a value of another kind or a missing member, too
    throw DataError(fmt::format("{}: {}", what, plain_message(error)));
  }
}

}  // namespace heddle
