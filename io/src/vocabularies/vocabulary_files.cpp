#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <heddle/io/vocabularies/added_pieces.hpp>
#include <heddle/io/vocabularies/foreign_vocabularies.hpp>
#include <heddle/io/vocabularies/tokenizer_json.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>
#include <optional>
#include <span>

#include "tokenizers/tokenizer_model.hpp"
#include "vocabularies/foreign_forms.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using Files = std::map<std::string, std::string>;

/// The target's vocab.json of a Marian model whose sides have a vocabulary each.
constexpr char const* target_vocab_json = "target_vocab.json";
/// Small files that belong to a tokenizer.
constexpr std::array tokenizer_files{"config.json",
                                     "generation_config.json",
                                     "tokenizer_config.json",
                                     "special_tokens_map.json",
                                     "added_tokens.json",
                                     "spiece.model",
                                     "tokenizer.model",
                                     "sentencepiece.bpe.model",
                                     "source.spm",
                                     "target.spm",
                                     "vocab.json",
                                     target_vocab_json};
/// Beside a SentencePiece model, tokenizer.json repeats it.
constexpr std::array json_files{"tokenizer.json", "merges.txt", "vocab.txt"};

/// The kinds of vocabularies by the families that have them: the ids of a SentencePiece model's pieces. A plain one has
/// them as they are. Without SentencePiece's files, all are read from tokenizer.json.
enum class Kind : std::uint8_t { t5, pegasus, marian, fairseq, plain };
Kind kind_of(Family const& family) {
  std::string_view const type = family.model_type;
  constexpr std::array fairseq{"mbart", "m2m_100", "xlm-roberta", "camembert"};
  return type == "t5" || type == "mt5" || type == "umt5" || type == "switch_transformers" ? Kind::t5
         : type == "pegasus"                                                              ? Kind::pegasus
         : type == "marian"                                                               ? Kind::marian
         : std::ranges::find(fairseq, type) != fairseq.end()                              ? Kind::fairseq
                                                                                          : Kind::plain;
}

/// The SentencePiece model of a kind; families of the kind Marian have one for each side.
char const* sentencepiece_name(Kind kind) {
  return kind == Kind::t5 || kind == Kind::pegasus ? "spiece.model"
         : kind == Kind::fairseq                   ? "sentencepiece.bpe.model"
         : kind == Kind::marian                    ? "source.spm"
                                                   : "tokenizer.model";
}

/// The kind of vocabulary in these files: an export of a model that was trained here has its SentencePiece model or its
/// tokenizer.json as it is, whatever the family.
Kind kind_of(Family const& family, Files const& files) {
  Kind const kind = kind_of(family);
  bool const without = kind == Kind::marian && !files.contains("source.spm") && !files.contains("target.spm");
  return without || files.contains("tokenizer.model") ? Kind::plain : kind;
}

/// Adds the files of these names that the directory has.
void add_files(fs::path const& directory, std::span<char const* const> names, Files& files) {
  std::int64_t left = max_origin_bytes;
  for (auto const& [name, bytes] : files) {
    left -= std::ssize(bytes);
  }
  for (char const* const name : names) {
    if (auto bytes = read_regular(directory / name, left + 1)) {
      left -= std::ssize(*bytes);
      if (left < 0) {
        throw DataError("{}: the files of the tokenizer have more than {} MiB", directory.string(),
                        max_origin_bytes >> 20);
      }
      files[name] = std::move(*bytes);
    }
  }
}

std::string const& file(Files const& files, char const* name, fs::path const& directory) {
  auto const found = files.find(name);
  if (found == files.end()) {
    throw DataError("{} does not exist: the vocabulary is read from it", (directory / name).string());
  }
  return found->second;
}

/// The bytes of a SentencePiece model. Throws DataError, which names the file, where they are none.
std::string const& sentencepiece_file(Files const& files, char const* name, fs::path const& directory) {
  std::string const& bytes = file(files, name, directory);
  try {
    static_cast<void>(SentencePieceModel::parse(bytes));
  } catch (DataError const& error) {
    throw DataError(
        "{}: {}; copy the file again from where the model came from (`git lfs pull`, if it is "
        "a pointer of Git LFS)",
        (directory / name).string(), error.what());
  }
  return bytes;
}

/// A token's text: a string, or an object that has it.
std::string token_text(json::value const& token) {
  return json::value_to<std::string>(token.is_object() ? token.at("content") : token);
}

/// The tokens that a tokenizer has beside its model, by their ids: all, or those that texts have.
std::map<std::int64_t, std::string> added_tokens(Files const& files, bool all = true) {
  std::map<std::int64_t, std::string> tokens;
  json::object const config = json_object_in(files, "tokenizer_config.json");
  if (json::value const* const added = find_key(config, "added_tokens_decoder")) {
    for (auto const& [id, token] : added->as_object()) {
      json::value const* const special = token.as_object().if_contains("special");
      std::string text = token_text(token);
      bool const in_texts = special != nullptr && *special == false && !text.starts_with("<extra_id_");
      if (all || in_texts) {
        tokens[std::stoll(std::string(id))] = std::move(text);
      }
    }
  }
  return tokens;
}

/// The tokens of a tokenizer of fairseq from the id `first` on; an id without a token has a piece without a use.
/// M2M100, which has vocab.json, numbers them in their order. Files of earlier versions of transformers (as mBART-50
/// was published) have the languages without ids, in the order of the ids.
FairseqTokens fairseq_tokens(Files const& files, std::int64_t first) {
  FairseqTokens tokens;
  for (auto const& [id, text] : added_tokens(files)) {
    if (id < first || id >= max_foreign_ids) {
      continue;
    }
    while (!files.contains("vocab.json") && first + std::ssize(tokens.languages) < id) {
      tokens.languages.push_back(fmt::format("{}_{}>", unused_piece, first + std::ssize(tokens.languages)));
    }
    tokens.languages.push_back(text);
  }
  if (!tokens.languages.empty()) {  // also where tokens were added after the mask
    tokens.mask.clear();
  }
  for (char const* const name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    json::object const config = json_object_in(files, name);
    json::value const* const listed = find_key(config, "additional_special_tokens");
    if (listed == nullptr || !tokens.languages.empty()) {
      continue;
    }
    for (json::value const& token : listed->as_array()) {
      tokens.languages.push_back(token_text(token));
    }
  }
  return tokens;
}

/// The ids before those of Pegasus' SentencePiece model, as its tokenizer counts them.
std::int64_t offset_of_pegasus(Files const& files) {
  json::object const config = json_object_in(files, "tokenizer_config.json");
  json::value const* const offset = find_key(config, "offset");
  return offset == nullptr ? 103 : offset->to_number<std::int64_t>();
}

/// The number of T5's sentinels: those among the added tokens, or what the older form of its files says, or the default
/// of transformers' class.
std::int64_t sentinels_of_t5(Files const& files) {
  std::int64_t const count = std::ranges::count_if(
      added_tokens(files), [](auto const& token) { return token.second.starts_with("<extra_id_"); });
  json::object const config = json_object_in(files, "tokenizer_config.json");
  json::value const* const written = find_key(config, "extra_ids");
  std::int64_t const absent = config.contains("added_tokens_decoder") ? 0 : 100;
  return count > 0 ? count : written != nullptr ? written->to_number<std::int64_t>() : absent;
}

std::int64_t integer(json::object const& config, char const* key) {
  json::value const* const found = find_key(config, key);
  if (found == nullptr || !found->is_int64() || found->get_int64() < 1 || found->get_int64() > 100'000'000) {
    throw DataError("config.json: {} is {}; expected a positive integer", key,
                    found == nullptr ? "missing" : json::serialize(*found));
  }
  return found->get_int64();
}

std::string fairseq_model(Files const& files, json::object const& config, fs::path const& directory) {
  std::int64_t const rows = integer(config, "vocab_size");
  std::string const& bytes = sentencepiece_file(files, sentencepiece_name(Kind::fairseq), directory);
  std::string const type = text_at(config, "model_type");
  if (type == "camembert") {
    return camembert_vocabulary(bytes, rows);
  }
  FairseqTokens tokens = fairseq_tokens(files, std::ssize(SentencePieceModel::parse(bytes).pieces) + 1);
  if (type == "xlm-roberta") {
    tokens.start = "<s>";
  } else if (std::ranges::all_of(tokens.languages, [](std::string const& text) {
               return text == "<mask>" || text.starts_with(unused_piece);
             })) {
    throw DataError(
        "{}: no file names the languages of the vocabulary: tokenizer_config.json has them as added_tokens_decoder or "
        "additional_special_tokens; load the tokenizer with transformers, and save it there by save_pretrained",
        directory.string());
  }
  return files.contains("vocab.json") ? m2m100_vocabulary(bytes, files.at("vocab.json"), tokens.languages, rows)
                                      : fairseq_vocabulary(bytes, tokens, rows);
}

/// The model of tokenizer.json, or of the files that older tokenizers without SentencePiece have; adds these files.
std::string json_model(Files& files, json::object const& config, fs::path const& directory) {
  if (!is_of_bytes(files) && !files.contains("tokenizer.json") &&
      !(files.contains("vocab.json") && files.contains("merges.txt")) && !files.contains("vocab.txt")) {
    throw DataError(
        "{}: {}; save the tokenizer there by save_pretrained of transformers", directory.string(),
        files.contains("vocab.json")
            ? "vocab.json is there without merges.txt, and tokenizer.json is not"
            : "there is none of tokenizer.model, tokenizer.json, vocab.json with merges.txt, and vocab.txt");
  }
  return read_json_vocabulary(files, config);
}

/// The SentencePiece model of a family that has its pieces as ids.
std::string plain_model(Files const& files, json::object const& config, fs::path const& directory) {
  std::int64_t const rows = integer(config, "vocab_size");
  std::string const& bytes = sentencepiece_file(files, sentencepiece_name(Kind::plain), directory);
  std::int64_t const pieces = std::ssize(SentencePieceModel::parse(bytes).pieces);
  std::vector<std::string> added;
  for (auto const& [id, text] : added_tokens(files)) {
    if (id >= pieces) {
      added.push_back(text);
    }
  }
  return pieces == rows ? bytes : extended_vocabulary(bytes, added, rows);
}

/// The models of the source and the target of Marian's tokenizer.
std::pair<std::string, std::string> marian_models(Files const& files, json::object const& config,
                                                  fs::path const& directory) {
  std::string const& source = sentencepiece_file(files, "source.spm", directory);
  std::string const& target = sentencepiece_file(files, "target.spm", directory);
  std::string const& ids = file(files, "vocab.json", directory);
  std::int64_t const rows = integer(config, "vocab_size");
  auto const own = files.find(target_vocab_json);
  if (own == files.end()) {
    return marian_vocabulary(source, target, ids, added_tokens(files), rows);
  }
  std::int64_t const target_rows =
      find_key(config, "decoder_vocab_size") == nullptr ? rows : integer(config, "decoder_vocab_size");
  return {marian_vocabulary(source, source, ids, {}, rows).first,
          marian_vocabulary(target, target, own->second, {}, target_rows).second};
}

/// The SentencePiece model whose decoder starts from the token that config.json names, if it names one and that is a
/// control piece. (A vocabulary of tokenizer.json has it already; TextForm::start has other ones.)
std::string with_start_token(std::string const& bytes, json::object const& config) {
  if (is_json(bytes) || find_key(config, "decoder_start_token_id") == nullptr) {
    return bytes;
  }
  SentencePieceModel model = SentencePieceModel::parse(bytes);
  std::int64_t const id = config.at("decoder_start_token_id").to_number<std::int64_t>();
  if (id < 0 || id >= std::ssize(model.pieces)) {
    throw DataError("config.json: decoder_start_token_id = {} is outside the vocabulary's 0 to {}", id,
                    std::ssize(model.pieces) - 1);
  }
  SpecialPieces special = model.special();
  SentencePiece const& start = model.pieces[static_cast<std::size_t>(id)];
  if (special.begin == start.text || start.type != SentencePiece::Type::control) {
    return bytes;
  }
  special.begin = start.text;
  std::vector<SentencePiece> pieces = model.pieces;
  return serialize_with_ids(std::move(model), std::move(pieces), special);
}

/// Puts the start token of generation_config.json, which `generate` of transformers takes first, into config.json.
void take_start_token(Files const& files, json::object& config) {
  json::object const generation = json_object_in(files, "generation_config.json");
  if (json::value const* const start = find_key(generation, "decoder_start_token_id")) {
    config["decoder_start_token_id"] = json::value(*start);
  }
}

json::object tokenizer_config(char const* tokenizer_class, Vocabulary const& vocabulary) {
  Tokenizer const& tokenizer = vocabulary.target;
  SpecialIds const& ids = tokenizer.special_ids();
  json::object config{{"tokenizer_class", tokenizer_class},
                      {"bos_token", tokenizer.piece(ids.begin)},
                      {"eos_token", tokenizer.piece(ids.end)}};
  for (auto const& [key, id] : {std::pair("unk_token", ids.unknown), {"pad_token", ids.padding}}) {
    if (id != SpecialIds::absent) {
      config[key] = tokenizer.piece(id);
    }
  }
  return config;
}

/// Keys of generation, which files of earlier versions of transformers have in config.json.
constexpr std::string_view generation_keys =
    " bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size "
    "encoder_repetition_penalty exponential_decay_length_penalty length_penalty max_length min_length "
    "no_repeat_ngram_size num_beam_groups num_beams num_return_sequences penalty_alpha remove_invalid_values "
    "renormalize_logits repetition_penalty suppress_tokens task_specific_params temperature top_k top_p typical_p "
    "use_cache ";

/// Whether a key of config.json is about the vocabulary or about generation, of which no key here says anything.
bool is_kept(std::string_view key) {
  return key.ends_with("vocab_size") || key.ends_with("_token_id") || key.ends_with("_token_ids") ||
         generation_keys.find(" " + std::string(key) + " ") != generation_keys.npos;
}

/// Copies these keys, also of the objects that both have.
void copy_kept_keys(json::object const& from, json::object& into) {
  for (auto const& [key, value] : from) {
    json::value* const object = into.if_contains(key);
    if (is_kept(key)) {
      into[key] = value;
    } else if (value.is_object() && object != nullptr && object->is_object()) {
      copy_kept_keys(value.get_object(), object->get_object());
    }
  }
}

/// Repeats them in the objects that are named after stacks.
void repeat_kept_keys(json::object& config) {
  json::object const all = config;
  for (StackKind const& kind : stack_kinds) {
    json::value* const stack = config.if_contains(kind.name);
    if (stack != nullptr && stack->is_object()) {
      std::ranges::for_each(all, [&](auto const& entry) {
        if (is_kept(entry.key())) {
          stack->get_object()[entry.key()] = entry.value();
        }
      });
    }
  }
}

std::string vocab_json(Tokenizer const& tokenizer) {
  json::object ids;
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) {
    ids[tokenizer.piece(id)] = id;
  }
  return json::serialize(ids);
}

/// The model of a kind with one SentencePiece model for both sides.
std::string sentencepiece_vocabulary(Kind kind, Files const& files, json::object const& config,
                                     fs::path const& directory) {
  if (!files.contains(sentencepiece_name(kind))) {
    throw DataError("{}: there is neither {} nor tokenizer.json: the vocabulary is read from one of them",
                    directory.string(), sentencepiece_name(kind));
  }
  std::int64_t const rows = integer(config, "vocab_size");
  switch (kind) {
    case Kind::t5:
      return t5_vocabulary(sentencepiece_file(files, sentencepiece_name(kind), directory), sentinels_of_t5(files), rows,
                           integer_at(config, "pad_token_id", -1));
    case Kind::pegasus:
      return pegasus_vocabulary(sentencepiece_file(files, sentencepiece_name(kind), directory),
                                offset_of_pegasus(files), rows);
    case Kind::fairseq:
      return fairseq_model(files, config, directory);
    default:
      return plain_model(files, config, directory);
  }
}

}  // namespace

ForeignVocabulary read_vocabulary(Family const& family, json::object config, fs::path const& directory) {
  ForeignVocabulary read;
  add_files(directory, tokenizer_files, read.files);
  try {
    take_start_token(read.files, config);
    Kind const kind = kind_of(family, read.files);
    if (kind != Kind::marian && !read.files.contains(sentencepiece_name(kind))) {
      add_files(directory, json_files, read.files);
    }
    bool const by_pieces = read.files.contains(sentencepiece_name(kind));
    if (is_of_bytes(read.files) || read.files.contains("tokenizer.json") || (kind == Kind::plain && !by_pieces)) {
      read.source_model = read.target_model = json_model(read.files, config, directory);
    } else if (kind == Kind::marian) {
      std::tie(read.source_model, read.target_model) = marian_models(read.files, config, directory);
    } else {
      read.source_model = read.target_model = sentencepiece_vocabulary(kind, read.files, config, directory);
    }
    bool const joint = !read.files.contains(target_vocab_json);
    for (std::string* const model : {&read.source_model, &read.target_model}) {
      *model = is_json(*model) ? *model : with_added_tokens(*model, added_tokens(read.files, false));
      if (joint || model == &read.target_model) {
        *model = with_start_token(*model, config);
      }
      TextForm form = foreign_form(family, config, read.files, *model);
      if (!joint && model == &read.source_model) {  // config.json's ids are the target's
        form = {.source = form.source, .target = form.target, .languages = form.languages};
      }
      *model = with_text_form(*model, form);
    }
  } catch (DataError const&) {
    throw;
  } catch (std::exception const& error) {
    throw DataError(
        "{}: its vocabulary cannot be used: a member of tokenizer.json or of another JSON file of the "
        "tokenizer is missing or has another type ({}); save the tokenizer again by save_pretrained of "
        "transformers",
        directory.string(), plain_message(error));
  }
  return read;
}

std::string vocabulary_obstacle(Family const& family, Vocabulary const& vocabulary) {
  if (!vocabulary.joint()) {
    return fmt::format(
        "an export as {} has one vocabulary for source and target, and this model has two: --format marian and "
        "--format ctranslate2 write both",
        family.model_type);
  }
  bool const by_text =
      !is_json(vocabulary.target.model()) &&
      std::ssize(SentencePieceModel::parse(vocabulary.target.model()).pieces) > vocabulary.target.size();
  if (by_text && kind_of(family) != Kind::marian) {
    return fmt::format("models of the family {} cannot have a vocabulary whose pieces have ids by their text",
                       family.model_type);
  }
  return "";
}

Files vocabulary_files(Family const& family, Vocabulary const& vocabulary, Files const& origin, json::object& config) {
  if (auto const theirs = origin.find("config.json"); theirs != origin.end()) {
    copy_kept_keys(json_object_of(theirs->second, "config.json"), config);
    Files files = origin;
    files.erase("config.json");
    files.erase(import_record);
    return files;
  }
  SpecialIds const& ids = vocabulary.target.special_ids();
  if (std::string const obstacle = vocabulary_obstacle(family, vocabulary); !obstacle.empty()) {
    throw DataError(obstacle);
  }
  config["vocab_size"] = vocabulary.target.size();
  config["bos_token_id"] = ids.begin;
  config["eos_token_id"] = ids.end;
  json::value const padding = ids.padding == SpecialIds::absent ? json::value(nullptr) : json::value(ids.padding);
  if (json::value const* const needed = find_key(config, "pad_token_id"); needed != nullptr && *needed != padding) {
    throw ConfigError(
        "models of the family {} count positions from pad_token_id: this model's are those of "
        "pad_token_id = {}, and its vocabulary has pad_token_id = {}",
        family.model_type, json::serialize(*needed), json::serialize(padding));
  }
  config["pad_token_id"] = padding;
  repeat_kept_keys(config);
  bool const pairs = flag_at(config, "is_encoder_decoder");
  if (pairs) {
    config["decoder_start_token_id"] = ids.begin;
  }
  std::string const& model = vocabulary.target.model();
  if (!is_json(model) && kind_of(family) == Kind::marian) {
    config["forced_eos_token_id"] = ids.end;
    return {{"source.spm", model},
            {"target.spm", model},
            {"vocab.json", vocab_json(vocabulary.target)},
            {"tokenizer_config.json", json::serialize(tokenizer_config("MarianTokenizer", vocabulary)) + "\n"}};
  }
  Files files;
  if (!is_json(model)) {
    files["tokenizer.model"] = model;
  }
  files["tokenizer.json"] = tokenizer_json_of(vocabulary.target, pairs || config.contains("is_decoder"));
  files["tokenizer_config.json"] = json::serialize(tokenizer_config("PreTrainedTokenizerFast", vocabulary)) + "\n";
  return files;
}

}  // namespace heddle
