#include "vocabularies/sentencepiece_json.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/io/tokenizers/sentencepiece_model.hpp>
#include <heddle/io/vocabularies/tokenizer_json.hpp>
#include <tuple>
#include <unordered_map>

namespace heddle {

namespace {

namespace json = boost::json;
using Type = SentencePiece::Type;

constexpr char const* space_mark = "\u2581";

std::string base64_of(std::string const& bytes) {
  std::string text((bytes.size() + 2) / 3 * 4, '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), reinterpret_cast<unsigned char const*>(bytes.data()),
                  static_cast<int>(bytes.size()));
  return text;
}

json::object normalizer_of(SentencePieceModel::Normalizer const& normalizer) {
  json::array steps;
  if (!normalizer.character_map.empty()) {
    steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", base64_of(normalizer.character_map)}});
  }
  if (normalizer.removes_spaces) {
    steps.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
  }
  return {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

/// The pairs of pieces that BPE joins, the first ones first: by the scores of what they make.
json::array merges_of(SentencePieceModel const& model) {
  std::unordered_map<std::string_view, std::size_t> ids;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    ids.emplace(model.pieces[id].text, id);
  }
  std::vector<std::tuple<float, std::size_t, std::size_t>> merges;  // the negative score, and the ids of both
  for (SentencePiece const& piece : model.pieces) {
    bool const is_made = piece.type == Type::normal || piece.type == Type::unused;
    for (std::size_t cut = 1; is_made && cut < piece.text.size(); ++cut) {
      auto const left = ids.find(std::string_view(piece.text).substr(0, cut));
      auto const right = ids.find(std::string_view(piece.text).substr(cut));
      if (left != ids.end() && right != ids.end()) {
        merges.emplace_back(-piece.score, left->second, right->second);
      }
    }
  }
  std::ranges::sort(merges);
  json::array pairs;
  for (auto const& [score, left, right] : merges) {
    pairs.push_back(json::array{json::string(model.pieces[left].text), json::string(model.pieces[right].text)});
  }
  return pairs;
}

json::object bpe_of(SentencePieceModel const& model, bool bytes, bool symbols) {
  json::object vocabulary;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    vocabulary[model.pieces[id].text] = id;
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"fuse_unk", true},
          {"unk_token", model.special().unknown},
          {"byte_fallback", bytes},
          {"ignore_merges", symbols},
          {"vocab", std::move(vocabulary)},
          {"merges", merges_of(model)}};
}

json::object unigram_of(SentencePieceModel const& model, bool bytes) {
  constexpr double never = -1e6;  // special pieces: no text is segmented into them
  json::array pieces;
  std::size_t unknown = 0;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    SentencePiece const& piece = model.pieces[id];
    bool const in_texts = piece.type == Type::normal || piece.type == Type::user_defined;
    unknown = piece.type == Type::unknown ? id : unknown;
    pieces.push_back(json::array{json::string(piece.text), in_texts ? static_cast<double>(piece.score) : never});
  }
  return {{"type", "Unigram"}, {"unk_id", unknown}, {"byte_fallback", bytes}, {"vocab", std::move(pieces)}};
}

/// A regular expression for the longest of these texts that begins at a place, as SentencePiece finds its symbols.
std::string expression_of(std::vector<std::string> texts) {
  std::ranges::stable_sort(texts, std::ranges::greater(), &std::string::size);
  std::string expression;
  for (std::string const& text : texts) {
    expression += expression.empty() ? "" : "|";
    for (char const letter : text) {
      expression.append(std::string_view(R"(\.+*?()|[]{}^$)").find(letter) == std::string_view::npos ? 0 : 1, '\\');
      expression += letter;
    }
  }
  return expression;
}

}  // namespace

json::object token_entry(json::value const& id, std::string_view text, bool normalized, bool special) {
  return {{"id", id},        {"content", text},          {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", normalized}, {"special", special}};
}

json::object sentencepiece_as_json(std::string_view bytes) {
  SentencePieceModel const model = SentencePieceModel::parse(bytes);
  SentencePieceModel::Normalizer const normalizer = model.normalizer();
  auto const is_a = [](Type type) { return [type](SentencePiece const& piece) { return piece.type == type; }; };
  bool const has_bytes = std::ranges::any_of(model.pieces, is_a(Type::byte));
  json::array added;
  std::vector<std::string> symbols;
  json::array splits{{{"type", "Metaspace"},
                      {"replacement", space_mark},
                      {"prepend_scheme", normalizer.adds_space ? "always" : "never"},
                      {"split", true}}};
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    SentencePiece const& piece = model.pieces[id];
    if (piece.type == Type::control || piece.type == Type::unknown) {
      added.push_back(token_entry(id, piece.text, false, true));
    } else if (piece.type == Type::user_defined) {
      symbols.push_back(piece.text);
    }
  }
  bool const has_symbols = !symbols.empty();
  if (has_symbols) {
    splits.push_back({{"type", "Split"},
                      {"pattern", {{"Regex", expression_of(std::move(symbols))}}},
                      {"behavior", "Isolated"},
                      {"invert", false}});
  }
  json::array decoders{{{"type", "Replace"}, {"pattern", {{"String", space_mark}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}}};
  if (normalizer.adds_space) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", normalizer_of(normalizer)},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", std::move(splits)}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Sequence"}, {"decoders", std::move(decoders)}}},
          {"model", model.bpe() ? bpe_of(model, has_bytes, has_symbols) : unigram_of(model, has_bytes)}};
}

}  // namespace heddle
