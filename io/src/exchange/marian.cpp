#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/exchange/exchanged_tensors.hpp>
#include <heddle/io/exchange/marian.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/vocabularies/foreign_vocabularies.hpp>

#include "formats/element_bytes.hpp"
#include "formats/yaml_text.hpp"
#include "marian_keys.hpp"
#include "tokenizers/tokenizer_model.hpp"
#include "vocabularies/foreign_forms.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr char const* model_key = "special:model.yml";
constexpr char const* model_file = "model.yml";  // the same among the files of a checkpoint's origin
constexpr char const* decoder_file = "decoder.yml";
constexpr std::int64_t max_rows = std::int64_t{1} << 21;

/// The files of a model: names in one directory.
struct MarianFiles {
  fs::path directory;
  std::string model;
  std::vector<std::string> vocabularies;  ///< the source's and the target's
};

std::vector<std::string> names_in(fs::path const& directory, std::string_view extension) {
  std::vector<std::string> names;
  for (auto const& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == extension) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

std::string required_file(fs::path const& path) {
  auto bytes = read_regular(path, max_origin_bytes);
  if (!bytes) {
    throw DataError("{} does not exist", path.string());
  }
  return std::move(*bytes);
}

/// The last parts of the paths in a list: other directories are not read.
std::vector<std::string> file_names(json::object const& config, std::string_view key) {
  std::vector<std::string> names;
  json::value const* const list = config.if_contains(key);
  for (json::value const& path : list != nullptr && list->is_array() ? list->get_array() : json::array()) {
    names.push_back(path.is_string() ? fs::path(std::string(path.get_string())).filename().string() : "");
  }
  return names;
}

MarianFiles find_files(fs::path const& from) {
  bool const is_directory = fs::is_directory(from);
  fs::path const parent = from.has_parent_path() ? from.parent_path() : fs::path(".");
  MarianFiles place{.directory = is_directory ? from : parent, .model = "", .vocabularies = {}};
  place.model = is_directory ? "" : from.filename().string();
  for (std::string const& name : {place.model + ".decoder.yml", std::string(decoder_file), std::string("config.yml")}) {
    if (auto const text = read_regular(place.directory / name)) {
      json::object const decoder = parse_yaml_map(*text, (place.directory / name).string());
      auto const models = file_names(decoder, "models");
      if (place.model.empty() && models.size() > 1) {
        throw DataError("{} names {} models; name one .npz file", (place.directory / name).string(), models.size());
      }
      place.model = place.model.empty() && !models.empty() ? models.front() : place.model;
      place.vocabularies = file_names(decoder, "vocabs");
      break;
    }
  }
  if (place.model.empty()) {
    auto const candidates = names_in(place.directory, ".npz");
    if (candidates.size() != 1) {
      throw DataError("{} has {} .npz files; name one of them", from.string(), candidates.size());
    }
    place.model = candidates.front();
  }
  if (place.vocabularies.empty()) {
    auto yml = names_in(place.directory, ".yml");
    std::erase_if(yml, [&](std::string const& name) { return name.starts_with(place.model); });
    std::string const only = fs::exists(place.directory / "vocab.spm") ? "vocab.spm"
                             : yml.size() == 1                         ? yml.front()
                                                                       : "vocab.yml";
    place.vocabularies = {only, only};
  }
  if (place.vocabularies.size() != 2) {
    throw DataError("{}: a model with {} vocabularies; models with one source are read", place.directory.string(),
                    place.vocabularies.size());
  }
  return place;
}

/// Adds to the kind of the decoder's sublayer the options by which it is another one than ours, gives average attention
/// its defaults, and takes options away that the sublayer does not read.
void join_recurrence(json::object& config) {
  std::string kind = text_at(config, marian_recurrence);
  bool const average = kind == "average-attention";
  json::object const usual{{"transformer-dim-aan", 2048},
                           {"transformer-aan-depth", 2},
                           {"transformer-aan-activation", "swish"},
                           {"transformer-aan-nogate", false}};
  for (auto const& [key, value] : usual) {
    if (!average) {
      config.erase(key);
    } else if (!config.contains(key)) {
      config[key] = value;
    }
  }
  if (kind == "rnn") {
    std::string const cell = text_at(config, "dec-cell");
    kind = fmt::format("rnn of {}{}", cell.empty() ? "gru" : cell,
                       flag_at(config, "layer-normalization") ? " with layer-normalization" : "");
  } else {
    config.erase("transformer-rnn-projection");
  }
  if (average && text_at(config, "transformer-preprocess").find('n') != std::string::npos) {
    kind += " of tokens before their norm";
  }
  if (average && integer_at(config, "transformer-dim-aan", 0) == integer_at(config, "dim-emb", 512)) {
    kind += " without a second projection, as transformer-dim-aan = dim-emb";
  }
  if (!kind.empty()) {
    config[marian_recurrence] = kind;
  }
}

/// Options that have one meaning together become one key of the family.
void join_keys(json::object& config) {
  config[marian_norms] =
      fmt::format("{} | {} | {}", text_at(config, "transformer-preprocess"), text_at(config, "transformer-postprocess"),
                  text_at(config, "transformer-postprocess-top"));
  config[marian_tables] = flag_at(config, "tied-embeddings-all")   ? "all"
                          : flag_at(config, "tied-embeddings-src") ? "source"
                          : flag_at(config, marian_tables)         ? "target"
                                                                   : "none";
  json::value const* const own = config.if_contains("transformer-decoder-dim-ffn");
  if (own != nullptr && own->is_int64() && own->get_int64() == 0) {
    config.erase("transformer-decoder-dim-ffn");
  }
  json::value const* const tied = config.if_contains("transformer-tied-layers");
  if (tied != nullptr && tied->is_array() && tied->get_array().empty()) {
    config.erase("transformer-tied-layers");
  }
  join_recurrence(config);
}

/// The way back.
void split_keys(json::object& config, bool joint) {
  std::string const norms = text_at(config, marian_norms);
  std::size_t const first = norms.find(" | ");
  std::size_t const last = norms.rfind(" | ");
  config["transformer-preprocess"] = norms.substr(0, first);
  config["transformer-postprocess"] = norms.substr(first + 3, last - first - 3);
  config["transformer-postprocess-top"] = norms.substr(last + 3);
  config.erase(marian_norms);
  std::string const tables = text_at(config, marian_tables);
  config[marian_tables] = tables != "none";
  config["tied-embeddings-all"] = tables == "all" && joint;
  config["tied-embeddings-src"] = false;
  if (text_at(config, marian_recurrence) == marian_ssru) {
    config[marian_recurrence] = "rnn";
    config["dec-cell"] = "ssru";
    config["layer-normalization"] = false;
  } else if (text_at(config, marian_recurrence) == "average-attention" &&
             !config.contains("transformer-aan-activation")) {  // ours is then the model's
    config["transformer-aan-activation"] = config["transformer-ffn-activation"];
  }
}

/// Throws ConfigError for average attention that Marian computes otherwise.
void require_average_attention(json::object config) {
  join_recurrence(config);
  std::string const kind = text_at(config, marian_recurrence);
  if (kind.starts_with("average-attention ")) {
    throw ConfigError(
        "model.decoder_sublayers has average_attention, and Marian would compute {}; it can express model.norm = "
        "\"post\" "
        "with another model.decoder.average_attention.d_ff than model.d_model",
        kind);
  }
}

/// The rows of the source's (0) and the target's (1) table.
std::int64_t rows_of(json::object const& config, std::size_t side) {
  json::value const* const sizes = config.if_contains("dim-vocabs");
  bool const good =
      sizes != nullptr && sizes->is_array() && sizes->get_array().size() == 2 && sizes->get_array()[side].is_int64();
  std::int64_t const rows = good ? sizes->get_array()[side].get_int64() : 0;
  if (rows < 1 || rows > max_rows) {
    throw DataError("special:model.yml: dim-vocabs is {}; expected two sizes of vocabularies",
                    sizes == nullptr ? "missing" : json::serialize(*sizes));
  }
  return rows;
}

std::string_view text_in(std::string const& piece) {
  return piece;
}
std::string_view text_in(SentencePiece const& piece) {
  return piece.text;
}

/// Pieces up to the rows of the table, and one that the decoder starts from. Returns the latter.
template <class Pieces, class Make>
std::string complete_pieces(Pieces& pieces, std::int64_t rows, Make const& make) {
  if (std::ssize(pieces) > rows) {
    throw DataError("a vocabulary of {} pieces for a table of {} rows", pieces.size(), rows);
  }
  for (std::int64_t number = 0; std::ssize(pieces) < rows; ++number) {
    pieces.push_back(make(fmt::format("<madeupword{}>", number)));
  }
  bool const has_padding = std::ranges::any_of(pieces, [](auto const& piece) { return text_in(piece) == "<pad>"; });
  std::string const start = has_padding ? "<start>" : "<pad>";
  pieces.push_back(make(start));
  return start;
}

std::string sentencepiece_vocabulary(std::string_view bytes, std::int64_t rows) {
  SentencePieceModel model = SentencePieceModel::parse(bytes);
  SpecialPieces special = model.special();
  std::vector<SentencePiece> pieces = model.pieces;
  if (std::ssize(pieces) != rows) {
    throw DataError("a SentencePiece model of {} pieces for a table of {} rows (dim-vocabs)", pieces.size(), rows);
  }
  special.begin = complete_pieces(pieces, rows, [](std::string text) {
    return SentencePiece{std::move(text), 0, SentencePiece::Type::control, {}};
  });
  special.padding = special.begin;
  return serialize_with_ids(std::move(model), std::move(pieces), special);
}

/// The pieces of a .yml vocabulary by their ids.
std::vector<std::string> pieces_of_yaml(std::string_view text, std::string const& where) {
  return pieces_of_vocab_json(json::serialize(parse_yaml_map(text, where)));
}

std::string yaml_vocabulary(std::string_view model, std::string_view text, std::int64_t rows,
                            std::string const& where) {
  std::vector<std::string> pieces = pieces_of_yaml(text, where);
  std::string const start = complete_pieces(pieces, rows, [](std::string const& piece) { return piece; });
  std::vector<std::string> control;
  std::ranges::copy_if(pieces, std::back_inserter(control), [](std::string const& piece) {
    return piece.starts_with("<madeupword") || (piece.starts_with(">>") && piece.ends_with("<<"));
  });
  return vocabulary_by_text(model, pieces, control, {start, "</s>", "<unk>", start});
}

ForeignVocabulary read_marian_vocabulary(MarianFiles const& place, json::object const& config) {
  ForeignVocabulary read;
  std::array<std::string*, 2> const models{&read.source_model, &read.target_model};
  for (std::size_t side = 0; side < models.size(); ++side) {
    std::string const& name = place.vocabularies[side];
    std::string const& bytes = read.files[name] = required_file(place.directory / name);
    if (name.ends_with(".spm")) {
      *models.at(side) = sentencepiece_vocabulary(bytes, rows_of(config, side));
      continue;
    }
    std::string const spm = side == 0 ? "source.spm" : "target.spm";
    if (!fs::exists(place.directory / spm)) {
      throw DataError("{} lists pieces but does not say how text is segmented; expected {} beside it",
                      (place.directory / name).string(), spm);
    }
    std::string const text = bytes;
    std::string const model = yaml_vocabulary(read.files[spm] = required_file(place.directory / spm), text,
                                              rows_of(config, side), (place.directory / name).string());
    *models.at(side) = with_text_form(model, marian_form(model));
  }
  json::object decoder{
      {"vocabs", json::array{json::string(place.vocabularies[0]), json::string(place.vocabularies[1])}}};
  read.files[decoder_file] = yaml_text(decoder);
  return read;
}

}  // namespace

bool is_marian(fs::path const& place) {
  std::error_code ignored;
  return place.extension() == ".npz" ||
         (fs::is_directory(place, ignored) && !fs::exists(place / "config.json") && !names_in(place, ".npz").empty());
}

MarianModel open_marian(fs::path const& from) {
  MarianFiles const place = find_files(from);
  fs::path const path = place.directory / place.model;
  NpzFile tensors = NpzFile::open(path);
  std::string text = tensors.bytes(model_key);
  text.erase(std::find(text.begin(), text.end(), '\0'), text.end());
  json::object config = parse_yaml_map(text, fmt::format("{}: {}", path.string(), model_key));
  join_keys(config);
  ForeignVocabulary vocabulary = read_marian_vocabulary(place, config);
  vocabulary.files[model_file] = text;
  return {std::move(tensors), std::move(config), std::move(vocabulary)};
}

MarianVocabulary marian_vocabulary_of(std::string const& model) {
  bool const of_prepare = !is_json(model) && text_form_of_model(model).empty() &&
                          Tokenizer::from_model(model).size() == std::ssize(SentencePieceModel::parse(model).pieces);
  if (!of_prepare) {
    throw ConfigError(
        "the vocabulary is not one of `heddle prepare`: Marian has no byte-level vocabularies, and adds neither "
        "languages nor other tokens to texts");
  }
  SentencePieceModel parsed = SentencePieceModel::parse(model);
  SpecialPieces const special = parsed.special();
  MarianVocabulary made;
  std::vector<SentencePiece> pieces;
  for (bool const first : {true, false}) {
    for (std::size_t id = 0; id < parsed.pieces.size(); ++id) {
      std::string const& text = parsed.pieces[id].text;
      if ((text == special.end || text == special.unknown) == first) {
        // The end comes first.
        bool const before = first && text == special.end;
        pieces.insert(before ? pieces.begin() : pieces.end(), parsed.pieces[id]);
        made.pieces.insert(before ? made.pieces.begin() : made.pieces.end(), static_cast<std::int64_t>(id));
      }
    }
  }
  made.pieces.push_back(-1);
  auto const rows = std::ssize(pieces);
  made.spm = serialize_with_ids(std::move(parsed), std::move(pieces), special);
  made.model = sentencepiece_vocabulary(made.spm, rows);
  return made;
}

std::map<std::string, std::string> marian_origin(MarianVocabulary const& source, MarianVocabulary const& target) {
  bool const one = source.spm == target.spm;
  std::string const names[2] = {one ? "vocab.spm" : "source.spm", one ? "vocab.spm" : "target.spm"};
  json::object const model{{"dim-vocabs", {std::ssize(source.pieces) - 1, std::ssize(target.pieces) - 1}},
                           {"transformer-guided-alignment-layer", "last"},  // CTranslate2's converter reads it
                           {"version", "v1.12.0"}};
  json::object const decoder{{"vocabs", {names[0], names[1]}}};
  return {{names[0], source.spm},
          {names[1], target.spm},
          {model_file, yaml_text(model)},
          {decoder_file, yaml_text(decoder)}};
}

bool came_from_marian(std::map<std::string, std::string> const& origin) {
  return origin.contains(model_file) && origin.contains(decoder_file);
}

std::int64_t write_marian(Checkpoint const& checkpoint, Config const& config, fs::path const& directory) {
  auto const& origin = checkpoint.contents().origin;
  Tokenizer const target = checkpoint.contents().vocabulary().target;
  if (target.special_ids().begin != target.size() - 1) {
    throw DataError(checkpoint.directory().string() +
                    ": pieces were added to its vocabulary after the one that stands for the decoder's start; "
                    "--format marian has no place for them");
  }
  Family const& family = marian_family();
  json::object made = config_json(family, config);
  split_keys(made, checkpoint.contents().vocabulary().joint());
  require_average_attention(made);
  json::object theirs = parse_yaml_map(origin.at(model_file), "the origin's model.yml");
  for (char const* const key : {"architectures", "model_type", "torch_dtype"}) {
    made.erase(key);
  }
  for (auto const& [key, value] : made) {
    theirs[key] = value;
  }
  json::object decoder = parse_yaml_map(origin.at(decoder_file), "the origin's decoder.yml");
  json::object const all{{"relative-paths", true},
                         {"models", json::array{"model.npz"}},
                         {"vocabs", decoder["vocabs"]},
                         {"beam-size", 6},
                         {"normalize", 1},
                         {"word-penalty", 0}};
  replace_file(directory / decoder_file, yaml_text(all));
  for (auto const& [name, bytes] : origin) {
    if (name != model_file && name != decoder_file && name != import_record) {
      replace_file(directory / name, bytes);
    }
  }
  NpzWriter writer(directory / "model.npz");
  json::object const no_keys;
  ExchangedModel const model{family, config.model, no_keys};
  std::vector<ExportedTensor> tensors = exported_tensors(checkpoint, model);
  std::ranges::sort(tensors, {}, &ExportedTensor::name);
  std::vector<std::uint16_t> halves;
  for (ExportedTensor const& tensor : tensors) {
    writer.begin(tensor.name, "<f4", tensor.shape);
    read_exported(checkpoint, tensor, model, [&](std::span<float const> elements) {
      writer.write(element_bytes("float32", elements, halves, tensor.name, 0));
    });
  }
  std::string const text = yaml_text(theirs);
  writer.begin(model_key, "|i1", {std::ssize(text) + 1});
  writer.write({reinterpret_cast<std::uint8_t const*>(text.c_str()), text.size() + 1});
  writer.finish();
  return std::ssize(tensors);
}

}  // namespace heddle
