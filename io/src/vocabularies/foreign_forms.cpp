#include "foreign_forms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <heddle/io/tokenizers/sentencepiece_model.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <optional>

#include "tokenizers/tokenizer_model.hpp"

namespace heddle {
namespace {

namespace json = boost::json;
using Files = std::map<std::string, std::string>;
using Ids = std::vector<std::int32_t>;

/// The places of languages by the start of the tokenizer's class: the first that fits.
struct ClassPositions {
  std::string_view start;
  LanguagePosition source, target;
};
constexpr std::array class_positions{ClassPositions{"MBart50", LanguagePosition::first, LanguagePosition::first},
                                     ClassPositions{"MBart", LanguagePosition::last, LanguagePosition::last},
                                     ClassPositions{"Nllb", LanguagePosition::first, LanguagePosition::first},
                                     ClassPositions{"M2M100", LanguagePosition::first, LanguagePosition::first},
                                     ClassPositions{"Marian", LanguagePosition::of_target, LanguagePosition::none}};

/// A language among the special pieces of a vocabulary.
struct Language {
  std::string name;
  std::int32_t id;
};

/// The special added tokens of a tokenizer.json, in the order of their ids.
std::vector<Language> special_tokens(std::string const& model) {
  std::vector<Language> tokens;
  json::object const document = json_object_of(model, "the vocabulary");
  json::value const* const added = find_key(document, "added_tokens");
  for (json::value const& token : added == nullptr ? json::array() : added->as_array()) {
    if (flag_at(token.as_object(), "special")) {
      tokens.push_back({text_at(token.as_object(), "content"), json::value_to<std::int32_t>(token.at("id"))});
    }
  }
  std::ranges::sort(tokens, {}, &Language::id);
  return tokens;
}

std::vector<Language> languages_of(std::string const& model) {
  std::vector<Language> languages;
  if (is_json(model)) {
    std::ranges::copy_if(special_tokens(model), std::back_inserter(languages), is_language, &Language::name);
    return languages;
  }
  std::int32_t id = 0;
  for (SentencePiece const& piece : SentencePieceModel::parse(model).pieces) {
    bool const control = piece.type == SentencePiece::Type::control;
    if (control && piece.text == end_of_ids_piece) {
      break;
    }
    if (control && is_language(piece.text)) {
      languages.push_back({piece.text, id});
    }
    ++id;
  }
  return languages;
}

/// The special tokens that a post-processor of tokenizer.json prepends to a text.
Ids prefix_of(json::value const& processor) {
  std::string const type = json::value_to<std::string>(processor.at("type"));
  Ids prefix;
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    prefix.push_back(json::value_to<std::int32_t>(processor.at("cls").at(1)));
  } else if (type == "Sequence") {
    for (json::value const& each : processor.at("processors").as_array()) {
      Ids const more = prefix_of(each);
      prefix.insert(prefix.end(), more.begin(), more.end());
    }
  } else if (type == "TemplateProcessing") {
    for (json::value const& each : processor.at("single").as_array()) {
      json::value const* const token = each.as_object().if_contains("SpecialToken");
      if (token == nullptr) {
        break;
      }
      auto const name = json::value_to<std::string>(token->at("id"));
      Ids const more = json::value_to<Ids>(processor.at("special_tokens").as_object().at(name).at("ids"));
      prefix.insert(prefix.end(), more.begin(), more.end());
    }
  }
  return prefix;
}

/// The tokens that tokenizer.json prepends to a text.
Ids prefix_of(Files const& files) {
  json::object const whole = json_object_in(files, "tokenizer.json");
  json::value const* const processor = find_key(whole, "post_processor");
  return processor == nullptr ? Ids() : prefix_of(*processor);
}

/// The tokenizer's class, or the one that is usual for the models where the files name none or one of no family.
std::string tokenizer_class(Family const& family, json::object const& config, Files const& files) {
  constexpr std::array of_no_family{"", "PreTrainedTokenizerFast", "TokenizersBackend"};
  for (json::object const& each : {json_object_in(files, "tokenizer_config.json"), config}) {
    std::string const name = text_at(each, "tokenizer_class");
    if (std::ranges::find(of_no_family, name) == of_no_family.end()) {
      return name;
    }
  }
  std::string_view const type = family.model_type;
  return type == "mbart"     ? (prefix_of(files).empty() ? "MBart" : "MBart50")
         : type == "marian"  ? "Marian"
         : type == "bart"    ? "Bart"
         : type != "m2m_100" ? ""
                             : (files.contains("vocab.json") ? "M2M100" : "Nllb");
}

/// Whether the class prepends the begin token to a text, if tokenizer_config.json says so (Gemma).
std::optional<bool> adds_begin(std::string const& tokenizer, Files const& files) {
  json::object const settings = json_object_in(files, "tokenizer_config.json");
  json::value const* const adds = find_key(settings, "add_bos_token");
  return tokenizer.starts_with("Gemma") && adds != nullptr ? std::optional(*adds == json::value(true)) : std::nullopt;
}

Ids prefix_of(std::string const& tokenizer, json::object const& config, Files const& files) {
  json::value const* begin = find_key(config, "bos_token_id");
  begin = begin == nullptr ? find_key(config, "decoder.bos_token_id") : begin;
  if (auto const adds = adds_begin(tokenizer, files)) {
    return *adds && begin != nullptr ? Ids{json::value_to<std::int32_t>(*begin)} : Ids();
  }
  if (files.contains("tokenizer.json")) {
    return prefix_of(files);
  }
  // The vocabulary of a model that was trained here has no such token, whatever the family.
  bool const puts_begin =
      !files.contains("tokenizer.model") && (tokenizer.starts_with("Bart") || tokenizer.starts_with("Roberta"));
  return puts_begin && begin != nullptr ? Ids{json::value_to<std::int32_t>(*begin)} : Ids();
}

void set_languages(TextForm& form, std::vector<Language> const& languages, ClassPositions const& places) {
  form.source.language = places.source;
  form.target.language = places.target;
  for (Language const& language : languages) {
    form.languages.push_back(language.id);
  }
}

void set_default_languages(TextForm& form, std::vector<Language> const& languages, json::object const& tokenizer,
                           json::object const& config) {
  for (auto const& [key, side] : {std::pair("src_lang", &form.source), {"tgt_lang", &form.target}}) {
    std::string const name = text_at(tokenizer, key);
    auto const found = std::ranges::find_if(languages, [&](Language const& language) {
      return language.name == name || language.name == fmt::format("__{}__", name);
    });
    if (found != languages.end() && side->language != LanguagePosition::none) {
      side->default_language = found->id;
    }
  }
  // A fine-tuned mBART for one language starts from it.
  json::value const* const start = find_key(config, "decoder_start_token_id");
  if (form.target.language == LanguagePosition::last && start != nullptr) {
    auto const id = json::value_to<std::int32_t>(*start);
    form.target.default_language =
        std::ranges::find(form.languages, id) != form.languages.end() ? id : form.target.default_language;
  }
}

/// The token that a decoder starts from where a SentencePiece model cannot name it: MADLAD-400 has <unk>.
std::int32_t plain_start(json::object const& config, std::string const& model) {
  auto const id = integer_at(config, "decoder_start_token_id", -1);
  if (id < 0 || is_json(model)) {
    return SpecialIds::absent;
  }
  std::vector<SentencePiece> const pieces = SentencePieceModel::parse(model).pieces;
  bool const plain =
      id < std::ssize(pieces) && pieces[static_cast<std::size_t>(id)].type != SentencePiece::Type::control;
  return plain ? static_cast<std::int32_t>(id) : SpecialIds::absent;
}

/// Sets the tokens that `generate` of transformers forces and leaves out.
void set_generation(TextForm& form, json::object const& generation) {
  if (json::value const* const forced = find_key(generation, "forced_bos_token_id")) {
    auto const id = json::value_to<std::int32_t>(*forced);
    if (form.target.language == LanguagePosition::first &&
        std::ranges::find(form.languages, id) != form.languages.end()) {
      form.target.default_language = id;
    } else if (form.target.language == LanguagePosition::none) {
      form.forced = {id};
    }
  }
  if (json::value const* const words = find_key(generation, "bad_words_ids")) {
    form.suppressed = json::value_to<std::vector<Ids>>(*words);
  }
  if (json::value const* const tokens = find_key(generation, "suppress_tokens")) {
    for (std::int32_t const id : json::value_to<Ids>(*tokens)) {
      form.suppressed.push_back({id});
    }
  }
  if (json::value const* const tokens = find_key(generation, "begin_suppress_tokens")) {
    form.suppressed_first = json::value_to<Ids>(*tokens);
  }
}

/// Sets the tokens that end what `generate` of transformers makes, one or a list of them, where they are not the
/// vocabulary's end alone. That is the first if it is one of them.
void set_ends(TextForm& form, json::object const& generation, std::int32_t end) {
  json::value const* const found = find_key(generation, "eos_token_id");
  if (found == nullptr) {
    return;
  }
  Ids ends = found->is_array() ? json::value_to<Ids>(*found) : Ids{json::value_to<std::int32_t>(*found)};
  std::ranges::stable_partition(ends, [&](std::int32_t id) { return id == end; });
  if (ends != Ids{end}) {
    form.ends = std::move(ends);
  }
}

}  // namespace

TextForm marian_form(std::string const& model) {
  TextForm form;
  if (auto const languages = languages_of(model); !languages.empty()) {
    set_languages(form, languages, class_positions.back());
  }
  return form;
}

TextForm foreign_form(Family const& family, json::object const& config, Files const& files, std::string const& model) {
  TextForm form;
  json::object const generation = json_object_in(files, "generation_config.json");
  if (flag_at(config, "is_encoder_decoder")) {
    std::string const tokenizer = tokenizer_class(family, config, files);
    auto const languages = languages_of(model);
    auto const places = std::ranges::find_if(
        class_positions, [&](ClassPositions const& each) { return tokenizer.starts_with(each.start); });
    json::object const settings = json_object_in(files, "tokenizer_config.json");
    if (places != class_positions.end() && !languages.empty()) {
      set_languages(form, languages, *places);
      if (tokenizer.starts_with("Nllb") && flag_at(settings, "legacy_behaviour")) {
        form.source.language = LanguagePosition::last;
      }
      set_default_languages(form, languages, settings, config);
    } else {
      form.source.prefix = prefix_of(tokenizer, config, files);
      if (!tokenizer.starts_with("Gemma")) {  // whose decoders start from that token
        form.target.prefix = form.source.prefix;
      }
    }
  }
  form.start = plain_start(config, model);
  set_generation(form, generation.empty() ? config : generation);
  set_ends(form, generation.empty() ? config : generation, Tokenizer::from_model(model).special_ids().end);
  json::value const* const padding = find_key(config, "pad_token_id");
  if (family.model_type == "marian" && padding != nullptr && form.suppressed.empty()) {
    form.suppressed = {{json::value_to<std::int32_t>(*padding)}};  // its embedding was never trained as an output
  }
  return form;
}

std::string with_text_form(std::string bytes, TextForm const& form) {
  if (form.empty()) {
    return bytes;
  }
  if (is_json(bytes)) {
    json::value document = parse_bounded_json(bytes, "the vocabulary");
    document.as_object()["heddle"].as_object()["form"] = json::parse(to_json(form));
    return json::serialize(document);
  }
  SentencePieceModel model = SentencePieceModel::parse(bytes);
  model.text_form = to_json(form);
  return model.serialize();
}

}  // namespace heddle
