#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <heddle/io/tokenizers/sentencepiece_model.hpp>
#include <heddle/io/tokenizers/text_form.hpp>
#include <heddle/io/vocabularies/added_pieces.hpp>
#include <heddle/io/vocabularies/foreign_vocabularies.hpp>
#include <set>

#include "tokenizers/tokenizer_model.hpp"
#include "vocabularies/foreign_forms.hpp"

namespace heddle {
namespace {

namespace json = boost::json;
using Type = SentencePiece::Type;

constexpr std::string_view space_symbol = "▁";

/// A piece of SentencePiece that is always found as a whole. BPE never merges a user-defined symbol with its
/// neighbours. Unigram models take such a symbol only where no other pieces have a better score (they are meant for
/// symbols that no other piece contains): there its score is above the score of any other segmentation of a few words.
SentencePiece whole_piece(std::string text, bool bpe) {
  constexpr float above_all = 100;
  return {std::move(text), bpe ? 0 : above_all, bpe ? Type::user_defined : Type::normal, {}};
}

std::string sentencepiece_with(Tokenizer const& vocabulary, std::vector<std::string> const& pieces) {
  SentencePieceModel model = SentencePieceModel::parse(vocabulary.model());
  bool const bpe = model.bpe();
  std::vector<SentencePiece> added;
  for (std::string const& piece : pieces) {
    added.push_back(whole_piece(boost::replace_all_copy(piece, " ", space_symbol), bpe));
  }
  // After the last id there may be pieces that only affect the segmentation: see end_of_ids_piece.
  model.pieces.insert(model.pieces.begin() + vocabulary.size(), added.begin(), added.end());
  return model.serialize();
}

json::object added_token(std::string const& text, bool special) {
  return {{"content", text}, {"lstrip", false},      {"normalized", false},
          {"rstrip", false}, {"single_word", false}, {"special", special}};
}

std::string json_with(Tokenizer const& vocabulary, std::vector<std::string> const& pieces, bool special) {
  json::object tokenizer = json_object_of(vocabulary.model(), "the vocabulary");
  json::value& tokens = tokenizer["added_tokens"];
  std::int64_t id = vocabulary.size();
  for (std::string const& piece : pieces) {
    json::object token = added_token(piece, special);
    token["id"] = id++;
    (tokens.is_array() ? tokens.get_array() : tokens.emplace_array()).emplace_back(std::move(token));
  }
  json::value ours = tokenizer.at("heddle");
  ours.as_object()["rows"] = id;
  tokenizer.erase("heddle");
  tokenizer["heddle"] = std::move(ours);  // the last member
  return json::serialize(tokenizer);
}

/// Sets the sizes of the vocabulary in a config.json and in the objects in it.
void set_sizes(json::object& config, std::int64_t before, std::int64_t now) {
  for (auto& [key, value] : config) {
    if (value.is_object()) {
      set_sizes(value.get_object(), before, now);
    } else if (std::string_view(key).ends_with("vocab_size") && value == before) {
      value = now;
    }
  }
}

/// The tokens by id beside a model's own, in tokenizer_config.json; older files have them in added_tokens.json only.
void add_to_decoder(json::object& settings, std::map<std::string, std::string>& origin, Tokenizer const& vocabulary,
                    std::int32_t first) {
  json::value& decoder = settings["added_tokens_decoder"];
  auto const older = origin.find("added_tokens.json");
  if (!decoder.is_object()) {
    decoder.emplace_object();
    if (older != origin.end()) {
      for (auto const& [text, id] : json_object_of(older->second, "added_tokens.json")) {
        decoder.get_object()[std::to_string(id.as_int64())] = added_token(std::string(text), false);
      }
      origin.erase(older);
    }
  }
  std::vector<std::int32_t> const& languages = vocabulary.form().languages;
  bool const fairseq = origin.contains("sentencepiece.bpe.model");  // languages and mask may be without their ids
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    // Other systems number added tokens without gaps, so that rows without a token get one, too.
    std::string const piece = vocabulary.piece(id);
    std::string const key = std::to_string(id);
    bool const language = std::ranges::find(languages, id) != languages.end();
    bool const unnamed = piece.starts_with(unused_piece) || (fairseq && (language || piece == "<mask>"));
    if (id >= first || (unnamed && !decoder.get_object().contains(key))) {
      decoder.get_object()[key] = added_token(piece, id < first || language);
    }
    // Classes that have a list of their languages take it from here, where it is here.
    for (char const* const list : {"additional_special_tokens", "extra_special_tokens"}) {
      if (json::value* const names = settings.if_contains(list); id >= first && language && names != nullptr) {
        (names->is_array() ? names->get_array() : names->emplace_array()).emplace_back(piece);
      }
    }
  }
}

}  // namespace

Tokenizer with_pieces(Tokenizer const& vocabulary, std::vector<std::string> const& pieces) {
  bool const in_json = is_json(vocabulary.model());
  std::map<std::string, std::int32_t> known;
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    known.emplace(vocabulary.piece(id), id);
  }
  for (std::string const& piece : pieces) {
    std::string const text = in_json ? piece : boost::replace_all_copy(piece, " ", space_symbol);
    auto const [place, added] = known.emplace(text, vocabulary.size());
    if (piece.empty() || text == space_symbol || !added) {
      throw DataError(added || place->second == vocabulary.size()
                          ? fmt::format("the new piece \"{}\" is empty or given twice", piece)
                          : fmt::format("the vocabulary has the piece \"{}\" already: id {}", piece, place->second));
    }
  }
  Tokenizer grown =
      Tokenizer::from_model(in_json ? json_with(vocabulary, pieces, false) : sentencepiece_with(vocabulary, pieces));
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    auto const id = vocabulary.size() + static_cast<std::int32_t>(index);
    auto const found = grown.encode(boost::replace_all_copy(pieces[index], space_symbol, " "));
    if (std::ranges::find(found, id) == found.end()) {
      throw DataError(
          "the new piece \"{}\" can never be produced: the vocabulary tokenizes it as \"{}\" (it normalizes "
          "text, or a shorter new piece is part of it)",
          pieces[index], grown.decode(found));
    }
  }
  return grown;
}

Tokenizer with_languages(Tokenizer const& vocabulary, std::vector<std::string> const& languages) {
  if (languages.empty()) {
    return vocabulary;
  }
  TextForm form = vocabulary.form();
  if (form.languages.empty()) {
    throw DataError("the vocabulary has no languages, so that none can be added; a tag in texts is a piece (--piece)");
  }
  std::string const example = vocabulary.piece(form.languages.front());
  auto const known_languages = static_cast<std::int32_t>(form.languages.size());
  std::set<std::string> known;
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    known.insert(vocabulary.piece(id));
  }
  for (std::string const& language : languages) {
    bool const alike = is_language(language) && language.starts_with("__") == example.starts_with("__") &&
                       language.starts_with(">>") == example.starts_with(">>");
    if (!alike || !known.insert(language).second) {
      throw DataError("the new language \"{}\" {}", language,
                      alike ? "is a token of the vocabulary already, or given twice"
                            : fmt::format("is not named as the vocabulary's languages are: {}", example));
    }
    form.languages.push_back(vocabulary.size() + static_cast<std::int32_t>(form.languages.size()) - known_languages);
  }
  if (is_json(vocabulary.model())) {
    return Tokenizer::from_model(with_text_form(json_with(vocabulary, languages, true), form));
  }
  SentencePieceModel model = SentencePieceModel::parse(vocabulary.model());
  std::vector<SentencePiece> added;
  std::ranges::transform(languages, std::back_inserter(added), [](std::string const& language) {
    return SentencePiece{language, 0, Type::control, {}};
  });
  model.pieces.insert(model.pieces.begin() + vocabulary.size(), added.begin(), added.end());
  model.text_form = to_json(form);
  return Tokenizer::from_model(model.serialize());
}

std::vector<std::int32_t> parts_of(Tokenizer const& vocabulary, std::string const& piece) {
  std::string const text = boost::replace_all_copy(piece, space_symbol, " ");
  std::vector<std::int32_t> parts = vocabulary.encode(text);
  if (parts.size() > 1 && !text.starts_with(' ') && vocabulary.piece(parts.front()) == space_symbol) {
    parts.erase(parts.begin());
  }
  return parts;
}

void add_pieces(std::map<std::string, std::string>& origin, Tokenizer const& vocabulary, std::int32_t count) {
  auto const config = origin.find("config.json");
  if (config == origin.end()) {
    return;
  }
  std::int32_t const first = vocabulary.size() - count;
  json::object sizes = json_object_of(config->second, "config.json");
  set_sizes(sizes, first, vocabulary.size());
  config->second = json::serialize(sizes);
  json::object changed = json_object_in(origin, "tokenizer_config.json");
  add_to_decoder(changed, origin, vocabulary, first);
  origin["tokenizer_config.json"] = json::serialize(changed);
  if (auto const whole = origin.find("tokenizer.json"); whole != origin.end()) {
    json::object tokenizer = json_object_of(whole->second, "tokenizer.json");
    json::value tokens = json_object_of(vocabulary.model(), "the vocabulary").at("added_tokens");
    for (std::int32_t id = 0; id < first; ++id) {
      if (std::string const piece = vocabulary.piece(id); piece.starts_with(unused_piece)) {
        json::object token = added_token(piece, true);
        token["id"] = id;
        tokens.as_array().emplace_back(std::move(token));
      }
    }
    std::ranges::sort(tokens.as_array(), {}, [](json::value const& token) { return token.at("id").as_int64(); });
    tokenizer["added_tokens"] = std::move(tokens);
    whole->second = json::serialize(tokenizer);
  }
}

std::string with_added_tokens(std::string const& bytes, std::map<std::int64_t, std::string> const& tokens) {
  if (tokens.empty()) {
    return bytes;
  }
  SentencePieceModel model = SentencePieceModel::parse(bytes);
  SpecialPieces const special = model.special();
  auto const has_role = [&](std::string const& text) {
    return text == special.begin || text == special.end || text == special.unknown || text == special.padding;
  };
  bool const bpe = model.bpe();
  std::int64_t ids = std::ranges::find(model.pieces, end_of_ids_piece, &SentencePiece::text) - model.pieces.begin();
  bool changed = false;
  for (auto const& [id, text] : tokens) {
    auto const same = [&](SentencePiece const& piece) { return piece.text == text && piece.type != Type::control; };
    if (std::ranges::any_of(model.pieces, same)) {
      continue;
    }
    if (id == ids) {
      model.pieces.insert(model.pieces.begin() + ids++, whole_piece(text, bpe));
      changed = true;
    } else if (id < ids) {
      SentencePiece& piece = model.pieces[static_cast<std::size_t>(id)];
      if (piece.type == Type::control && !has_role(piece.text)) {
        piece = whole_piece(text, bpe);
        changed = true;
      }
    }
  }
  return changed ? model.serialize() : bytes;
}

}  // namespace heddle
