#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/families/family.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/io/vocabularies/tokenizer_json.hpp>
#include <optional>

#include "tokenizer_steps/characters.hpp"
#include "tokenizers/tokenizer_model.hpp"
#include "vocabularies/sentencepiece_json.hpp"

namespace heddle {
namespace {

namespace json = boost::json;
using Files = std::map<std::string, std::string>;

/// The words of Qwen 2 (Qwen Team 2024), whose tokenizer also brings texts into NFC.
constexpr char const* qwen_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// An id in the range that the tokenizer checks; "no id" is null or, in some files, -1.
std::optional<std::int32_t> id_of(json::value const* value) {
  if (value == nullptr || !value->is_int64() || value->get_int64() < 0 || value->get_int64() > 100'000'000) {
    return std::nullopt;
  }
  return static_cast<std::int32_t>(value->get_int64());
}

/// The special tokens by a tokenizer's files.
class SpecialTokens {
 public:
  explicit SpecialTokens(Files const& files)
      : settings_{json_object_in(files, "tokenizer_config.json"), json_object_in(files, "special_tokens_map.json")} {}

  /// The text of "eos_token" and so on; `absent` if there is none.
  std::string text(char const* token, char const* absent = "") const {
    for (json::object const& settings : settings_) {
      if (json::value const* const found = find_key(settings, token)) {
        return json::value_to<std::string>(found->is_object() ? found->at("content") : *found);
      }
    }
    return absent;
  }

  std::optional<std::int32_t> id(char const* token, json::object const& tokenizer, char const* absent = "") const {
    std::string const wanted = text(token, absent);
    if (json::value const* const added = find_key(tokenizer, "added_tokens")) {
      for (json::value const& one : added->as_array()) {
        if (one.at("content") == json::value(wanted)) {
          return id_of(&one.at("id"));
        }
      }
    }
    json::value const* const vocabulary = find_key(tokenizer, "model.vocab");
    if (vocabulary == nullptr) {
      throw DataError("this is not a tokenizer.json that can be used: it has no member model.vocab");
    }
    if (vocabulary->is_object()) {
      return wanted.empty() ? std::nullopt : id_of(vocabulary->get_object().if_contains(wanted));
    }
    json::array const& pieces = vocabulary->as_array();
    auto const found =
        std::ranges::find_if(pieces, [&](json::value const& piece) { return piece.at(0) == json::value(wanted); });
    return found == pieces.end() ? std::nullopt : std::optional(static_cast<std::int32_t>(found - pieces.begin()));
  }

  json::object const& config() const noexcept { return settings_.front(); }

 private:
  std::array<json::object, 2> settings_;
};

std::int32_t first(std::initializer_list<std::optional<std::int32_t>> choices) {
  auto const found = std::ranges::find_if(choices, [](auto const& choice) { return choice.has_value(); });
  return found == choices.end() ? SpecialIds::absent : **found;
}

/// BERT's (Devlin et al. 2019): [CLS] begins a text, [SEP] ends each of its parts. The files do not have to name these
/// tokens.
SpecialIds ids_of_bert(json::object const& tokenizer, SpecialTokens const& tokens) {
  return {.begin = first({tokens.id("cls_token", tokenizer, "[CLS]")}),
          .end = first({tokens.id("sep_token", tokenizer, "[SEP]")}),
          .unknown = first({tokens.id("unk_token", tokenizer, "[UNK]")}),
          .padding = first({tokens.id("pad_token", tokenizer, "[PAD]")}),
          .mask = first({tokens.id("mask_token", tokenizer, "[MASK]")})};
}

/// The token that the decoders of a family start from, if its files name none.
std::optional<std::int32_t> usual_start(json::object const& config, SpecialIds const& ids) {
  std::string const type = text_at(config, "model_type");
  bool const padding =
      type == "t5" || type == "mt5" || type == "umt5" || type == "switch_transformers" || type == "pegasus";
  std::int32_t const id = padding ? ids.padding : type == "mbart" || type == "m2m_100" ? ids.end : SpecialIds::absent;
  return id == SpecialIds::absent ? std::nullopt : std::optional(id);
}

SpecialIds ids_of(json::object const& tokenizer, SpecialTokens const& tokens, json::object const& config) {
  if (text_at(tokenizer, "model.type") == "WordPiece") {
    return ids_of_bert(tokenizer, tokens);
  }
  SpecialIds ids;
  auto const start = id_of(find_key(config, "decoder_start_token_id"));
  auto end = id_of(find_key(config, "eos_token_id"));
  auto const named_end = tokens.id("eos_token", tokenizer);
  json::value const* const ends = find_key(config, "eos_token_id");
  if (ends != nullptr && ends->is_array() && !ends->get_array().empty()) {  // Llama 3: each of them may end a text
    bool const named =
        named_end && std::ranges::find(ends->get_array(), json::value(*named_end)) != ends->get_array().end();
    end = named ? named_end : id_of(&ends->get_array().front());
  }
  ids.end = first({end, named_end});
  ids.padding = first({id_of(find_key(config, "pad_token_id")), tokens.id("pad_token", tokenizer)});
  ids.begin =
      first({start, usual_start(config, ids), id_of(find_key(config, "bos_token_id")),
             tokens.id("bos_token", tokenizer), ids.end == SpecialIds::absent ? std::nullopt : std::optional(ids.end)});
  ids.mask = first({tokens.id("mask_token", tokenizer)});
  std::int32_t const unknown = first({tokens.id("unk_token", tokenizer, "<unk>")});
  if (unknown != ids.begin && unknown != ids.end && unknown != ids.padding) {  // no text needs one
    ids.unknown = unknown;
  }
  return ids;
}

json::array merges_of(std::string_view text) {
  json::array merges;
  while (!text.empty()) {
    std::size_t const end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line.remove_suffix(line.ends_with('\r') ? 1 : 0);
    if (!line.empty() && !line.starts_with("#version")) {
      merges.emplace_back(json::string_view(line.data(), line.size()));
    }
  }
  return merges;
}

/// The tokens beside vocab.json's words, and the special ones, by their ids: where vocab.json lacks them, others number
/// them in this order.
json::array added_tokens(Files const& files, SpecialTokens const& tokens, json::object const& vocabulary) {
  std::map<std::string, json::object, std::less<>> added;
  auto const add = [&](std::string const& text, json::value const& id, bool special) {
    added.try_emplace(text, token_entry(id, text, !special, special));
  };
  if (json::value const* const decoder = find_key(tokens.config(), "added_tokens_decoder")) {
    for (auto const& [id, token] : decoder->as_object()) {
      json::object entry = token.as_object();
      entry["id"] = std::stoll(std::string(id));
      added.try_emplace(json::value_to<std::string>(entry.at("content")), std::move(entry));
    }
  }
  for (auto const& [text, id] : json_object_in(files, "added_tokens.json")) {
    add(std::string(text), id, false);
  }
  for (char const* const name :
       {"bos_token", "eos_token", "cls_token", "sep_token", "unk_token", "pad_token", "mask_token"}) {
    std::string const text = tokens.text(name);
    if (json::value const* const id = vocabulary.if_contains(text)) {
      add(text, *id, true);
    }
  }
  json::array all;
  for (auto& [text, token] : added) {
    all.emplace_back(std::move(token));
  }
  std::ranges::sort(all, {}, [](json::value const& token) { return token.at("id").as_int64(); });
  return all;
}

/// The tokenizer.json that transformers makes of the files of its classes.
json::object tokenizer_of_merges(Files const& files, SpecialTokens const& tokens, json::object const& config) {
  json::value const* const named = find_key(tokens.config(), "tokenizer_class");
  std::string const type = json::value_to<std::string>(named != nullptr ? *named : config.at("model_type"));
  bool const qwen = type.starts_with("Qwen") || type.starts_with("qwen");
  if (!qwen && std::ranges::none_of(std::array{"GPT2", "gpt2", "Bart", "bart", "Roberta", "roberta"},
                                    [&](char const* known) { return type.starts_with(known); })) {
    throw DataError(
        "vocab.json and merges.txt of {}: only those of GPT-2, BART, RoBERTa and Qwen are read without a "
        "tokenizer.json",
        type);
  }
  json::object vocabulary = json_object_in(files, "vocab.json");
  json::value const* const space = find_key(tokens.config(), "add_prefix_space");
  json::object const bytes{{"type", "ByteLevel"},
                           {"add_prefix_space", space == nullptr ? json::value(false) : *space},
                           {"trim_offsets", true},
                           {"use_regex", !qwen}};
  json::value words = bytes;
  if (qwen) {
    json::object const split{
        {"type", "Split"}, {"pattern", {{"Regex", qwen_words}}}, {"behavior", "Isolated"}, {"invert", false}};
    words = json::object{{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
  }
  return {
      {"version", "1.0"},
      {"added_tokens", added_tokens(files, tokens, vocabulary)},
      {"normalizer", qwen ? json::value{{"type", "NFC"}} : json::value(nullptr)},
      {"pre_tokenizer", std::move(words)},
      {"decoder", bytes},
      {"model", {{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", merges_of(files.at("merges.txt"))}}}};
}

/// Throws DataError for tokenizers that split words otherwise than BERT's, as BertJapaneseTokenizer does.
void require_words_of_bert(SpecialTokens const& tokens, json::object const& config) {
  constexpr std::array known{"Bert", "DistilBert", "Electra", "MobileBert"};
  constexpr char const* message = "vocab.txt of {}: only that of BERT is read without a tokenizer.json";
  for (json::object const* const settings : {&tokens.config(), &config}) {
    if (json::value const* const named = find_key(*settings, "tokenizer_class")) {
      auto const name = json::value_to<std::string>(*named);
      std::string type = name;
      for (std::string_view const end : {"Fast", "Tokenizer"}) {
        type.erase(type.size() - (type.ends_with(end) ? end.size() : 0));
      }
      if (std::ranges::find(known, type) == known.end()) {
        throw DataError(fmt::format(message, name));
      }
    }
  }
  if (json::value const* const words = find_key(tokens.config(), "word_tokenizer_type");
      words != nullptr && *words != "basic") {
    throw DataError(fmt::format(message, fmt::format("word_tokenizer_type = {}", json::serialize(*words))));
  }
}

/// ByT5 (Xue et al. 2022), whose ids are those of bytes after three special tokens; a tokenizer.json that transformers
/// does not write.
json::object tokenizer_of_bytes(Files const& files, SpecialTokens const& tokens) {
  constexpr int offset = 3;
  constexpr int sentinels = 125;
  json::object vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[in_byte_alphabet(std::string(1, static_cast<char>(byte)))] = offset + byte;
  }
  json::object special{{tokens.text("pad_token", "<pad>"), 0},
                       {tokens.text("eos_token", "</s>"), 1},
                       {tokens.text("unk_token", "<unk>"), 2}};
  if (find_key(tokens.config(), "added_tokens_decoder") == nullptr) {
    for (int number = 0; number < sentinels; ++number) {
      special[fmt::format("<extra_id_{}>", number)] = offset + 256 + number;
    }
  }
  json::object const bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  json::array added = added_tokens(files, tokens, special);
  for (auto const& [text, id] : special) {
    if (std::ranges::none_of(added,
                             [&](json::value const& token) { return token.at("content") == json::value(text); })) {
      added.push_back({{"id", id}, {"content", text}, {"special", true}});
    }
  }
  return {{"version", "1.0"},
          {"added_tokens", std::move(added)},
          {"pre_tokenizer", bytes},
          {"decoder", bytes},
          {"model", {{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", json::array()}}}};
}

/// The tokenizer.json that transformers makes of BERT's vocab.txt, which has the piece of id i in its line i.
json::object tokenizer_of_word_pieces(Files const& files, SpecialTokens const& tokens, json::object const& config) {
  require_words_of_bert(tokens, config);
  json::object vocabulary;
  std::string const text = replace_invalid_utf8(files.at("vocab.txt"));
  std::string_view rest = text;
  for (std::int64_t id = 0; !rest.empty(); ++id) {
    std::size_t const end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    line.remove_suffix(line.ends_with('\r') ? 1 : 0);
    if (!line.empty()) {
      vocabulary[{line.data(), line.size()}] = id;
    }
  }
  auto const option = [&](char const* key, json::value const& absent) {
    json::value const* const found = find_key(tokens.config(), key);
    return found == nullptr ? absent : *found;
  };
  json::array added = added_tokens(files, tokens, vocabulary);
  return {{"version", "1.0"},
          {"added_tokens", std::move(added)},
          {"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", option("tokenize_chinese_chars", true)},
            {"strip_accents", option("strip_accents", nullptr)},
            {"lowercase", option("do_lower_case", true)}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", tokens.text("unk_token", "[UNK]")},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 100},
            {"vocab", std::move(vocabulary)}}}};
}

std::string model_of(json::object tokenizer, SpecialIds const& ids, std::int64_t rows) {
  json::object special;
  for (auto const& [key, id] : {std::pair("begin", ids.begin),
                                {"end", ids.end},
                                {"unknown", ids.unknown},
                                {"padding", ids.padding},
                                {"mask", ids.mask}}) {
    if (id != SpecialIds::absent) {
      special[key] = id;
    }
  }
  special["rows"] = rows;
  tokenizer["heddle"] = std::move(special);
  return json::serialize(tokenizer);
}

}  // namespace

std::string tokenizer_json_of(Tokenizer const& vocabulary, bool encoder) {
  json::object tokenizer = is_json(vocabulary.model()) ? json_object_of(vocabulary.model(), "the vocabulary")
                                                       : sentencepiece_as_json(vocabulary.model());
  std::int32_t const special = encoder ? vocabulary.special_ids().end : vocabulary.special_ids().begin;
  std::string const text = vocabulary.piece(special);
  tokenizer.erase("heddle");
  json::value const first{{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  json::value const second{{"Sequence", {{"id", "B"}, {"type_id", 0}}}};
  json::value const token{{"SpecialToken", {{"id", text}, {"type_id", 0}}}};
  tokenizer["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", encoder ? json::array{first, token} : json::array{token, first}},
      {"pair", encoder ? json::array{first, second, token} : json::array{token, first, second}},
      {"special_tokens", {{text, {{"id", text}, {"ids", json::array{special}}, {"tokens", json::array{text}}}}}}};
  return json::serialize(tokenizer);
}

bool is_of_bytes(Files const& files) {
  return text_at(json_object_in(files, "tokenizer_config.json"), "tokenizer_class") == "ByT5Tokenizer";
}

std::string read_json_vocabulary(Files const& files, json::object const& config) {
  SpecialTokens const tokens(files);
  json::object tokenizer = is_of_bytes(files)                 ? tokenizer_of_bytes(files, tokens)
                           : files.contains("tokenizer.json") ? json_object_in(files, "tokenizer.json")
                           : files.contains("merges.txt")     ? tokenizer_of_merges(files, tokens, config)
                                                              : tokenizer_of_word_pieces(files, tokens, config);
  SpecialIds const ids = ids_of(tokenizer, tokens, config);
  return model_of(std::move(tokenizer), ids, integer_at(config, "vocab_size", 0));
}

}  // namespace heddle
