#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/token_embedding.hpp>
#include <heddle/io/exchange/ctranslate2.hpp>
#include <heddle/io/exchange/exchanged_tensors.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/tokenizers/text_form.hpp>
#include <limits>

#include "exchange/ctranslate2_file.hpp"
#include "formats/element_bytes.hpp"

namespace heddle {

namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr std::uint32_t binary_version = 6;
constexpr std::array<std::string_view, 6> names_of_types{"float32", "int8", "int16", "int32", "float16", "bfloat16"};
constexpr std::array<std::int64_t, 6> bytes_of_types{4, 1, 2, 4, 2, 2};

template <class Element>
std::span<std::uint8_t const> bytes_of(std::vector<Element> const& elements) {
  return {reinterpret_cast<std::uint8_t const*>(elements.data()), elements.size() * sizeof(Element)};
}

float largest_of(std::span<float const> elements) {
  float largest = 0;
  for (float const element : elements) {
    largest = std::max(largest, std::abs(element));
  }
  return largest;
}

/// Multiplies and rounds to the nearest integer, half to even.
template <class Integer>
void append_rounded(std::span<float const> elements, float scale, std::vector<Integer>& into) {
  for (float const element : elements) {
    into.push_back(static_cast<Integer>(std::nearbyint(element * scale)));
  }
}

/// The output's bias of a token that is never generated: its probability is then 0 in every dtype.
constexpr float never_bias = -10'000;

/// All that is written of a model, variable by variable.
class Ctranslate2Tensors {
 public:
  /// `never` are the tokens that are not generated.
  Ctranslate2Tensors(Checkpoint const& checkpoint, ExchangedModel const& model, std::string const& dtype,
                     std::vector<std::int32_t> never)
      : checkpoint_(checkpoint),
        model_(model),
        dtype_(dtype),
        never_(std::move(never)),
        attributes_(ctranslate2_attributes(model.ours)) {
    for (ExportedTensor& tensor : exported_tensors(checkpoint, model)) {
      std::string const name = tensor.name;
      tensors_.emplace(name, std::move(tensor));
    }
    add_aliases();
  }

  std::int64_t write(fs::path const& path) const;

 private:
  using Sink = std::function<void(std::span<float const>)>;

  bool is_quantized(std::string const& name) const {
    return (dtype_ == "int8" || dtype_ == "int16") && name.ends_with("/weight");
  }
  void add_aliases();
  void read(ExportedTensor const& tensor, Sink const& sink) const { read_exported(checkpoint_, tensor, model_, sink); }
  /// The output's bias, which is low for tokens that are not generated. Marian's decoder starts from such a token,
  /// without an embedding, so that its logit would be 0.
  void read_bias(ExportedTensor const& tensor, Sink const& sink) const;
  void write_tensor(Ctranslate2File& file, ExportedTensor const& tensor) const;
  void write_int8(Ctranslate2File& file, ExportedTensor const& tensor) const;
  void write_int16(Ctranslate2File& file, ExportedTensor const& tensor) const;
  /// Elements that are not quantized.
  void write_elements(Ctranslate2File& file, std::string const& name, std::vector<std::int64_t> const& shape,
                      std::function<void(Sink const&)> const& elements) const;

  Checkpoint const& checkpoint_;
  ExchangedModel model_;
  std::string dtype_;
  std::vector<std::int32_t> never_;
  std::map<std::string, Attribute> attributes_;
  std::map<std::string, ExportedTensor> tensors_;
  std::map<std::string, std::string> aliases_;
  bool sinusoidal_ = false;
};

/// Tables that are one: those of tied embeddings, the sinusoids of both stacks, the biases of distances of all layers.
void Ctranslate2Tensors::add_aliases() {
  bool const alone = model_.ours.is_decoder_only();
  for (std::string const name : {"decoder/projection/weight", "encoder/embeddings_0/weight"}) {
    if (!tensors_.contains(name) && !(alone && name.starts_with("encoder"))) {
      aliases_[name] = "decoder/embeddings/weight";
    }
  }
  sinusoidal_ = model_.ours.positions == Positions::sinusoidal;
  if (sinusoidal_ && !alone) {
    aliases_["encoder/position_encodings/encodings"] = "decoder/position_encodings/encodings";
  }
  for (StackKind const& kind : stack_kinds) {
    std::string const bias = "self_attention/relative_attention_bias";
    std::string const first = fmt::format("{}/layer_0/{}", kind.name, bias);
    for (std::int64_t layer = 1; tensors_.contains(first) && layer < (model_.ours.*kind.config).layers; ++layer) {
      aliases_[fmt::format("{}/layer_{}/{}", kind.name, layer, bias)] = first;
    }
  }
}

/// The rows of a table of sinusoids, if the model has fewer. CTranslate2 fails at a position that the table lacks, and
/// by default it reads 1,024 tokens of a source and its end, and writes 256.
constexpr std::int64_t max_positions = 1025;

std::int64_t Ctranslate2Tensors::write(fs::path const& path) const {
  std::size_t variables = attributes_.size() + tensors_.size() + (sinusoidal_ ? 1 : 0);
  for (auto const& [name, tensor] : tensors_) {
    variables += is_quantized(name) ? 1 : 0;
  }
  Ctranslate2File file(path, model_.ours.is_decoder_only(), variables);
  for (auto const& [name, attribute] : attributes_) {
    file.begin(name, attribute.type, {});
    file.write({reinterpret_cast<std::uint8_t const*>(attribute.bytes.data()), attribute.bytes.size()});
  }
  if (sinusoidal_) {
    ModelConfig longer = model_.ours;
    longer.max_length = std::max(longer.max_length, max_positions);
    std::vector<double> const table = sinusoidal_positions(longer);
    write_elements(file, "decoder/position_encodings/encodings", {longer.max_length, longer.d_model},
                   [&](Sink const& sink) { sink(std::vector<float>(table.begin(), table.end())); });
  }
  for (auto const& [name, tensor] : tensors_) {
    write_tensor(file, tensor);
  }
  file.finish(aliases_);
  return std::ssize(tensors_);
}

void Ctranslate2Tensors::write_tensor(Ctranslate2File& file, ExportedTensor const& tensor) const {
  if (is_quantized(tensor.name)) {
    dtype_ == "int8" ? write_int8(file, tensor) : write_int16(file, tensor);
  } else {
    bool const is_bias = tensor.name == "decoder/projection/bias";
    write_elements(file, tensor.name, tensor.shape,
                   [&](Sink const& sink) { is_bias ? read_bias(tensor, sink) : read(tensor, sink); });
  }
}

void Ctranslate2Tensors::read_bias(ExportedTensor const& tensor, Sink const& sink) const {
  std::vector<float> bias;
  read(tensor, [&](std::span<float const> piece) { bias.insert(bias.end(), piece.begin(), piece.end()); });
  for (std::int32_t const token : never_) {
    bias.at(static_cast<std::size_t>(token)) = never_bias;
  }
  sink(bias);
}

void Ctranslate2Tensors::write_elements(Ctranslate2File& file, std::string const& name,
                                        std::vector<std::int64_t> const& shape,
                                        std::function<void(Sink const&)> const& elements) const {
  std::string const dtype = dtype_.starts_with("int") ? "float32" : dtype_;
  auto const type = std::ranges::find(names_of_types, dtype) - names_of_types.begin();
  file.begin(name, static_cast<VariableType>(type), shape);
  std::vector<std::uint16_t> halves;
  std::int64_t done = 0;
  elements([&](std::span<float const> piece) {
    file.write(element_bytes(dtype, piece, halves, "the tensor " + name, done));
    done += std::ssize(piece);
  });
}

/// Each row has a scale of its own, by which its largest element is 127.
void Ctranslate2Tensors::write_int8(Ctranslate2File& file, ExportedTensor const& tensor) const {
  auto const columns = static_cast<std::size_t>(tensor.shape.back());
  std::vector<float> scales;
  std::vector<std::int8_t> quantized;
  file.begin(tensor.name, VariableType::int8, tensor.shape);
  read(tensor, [&](std::span<float const> rows) {  // a checkpoint is read by whole rows
    quantized.clear();
    for (; !rows.empty(); rows = rows.subspan(columns)) {
      std::span<float const> const row = rows.first(columns);
      float const largest = largest_of(row);
      scales.push_back(largest > 0 ? 127.0F / largest : 1.0F);
      append_rounded(row, scales.back(), quantized);
    }
    file.write(bytes_of(quantized));
  });
  file.begin(tensor.name + "_scale", VariableType::float32, {tensor.shape.front()});
  file.write(bytes_of(scales));
}

/// One scale for all: by 10 bits, a product has 20 and 12 are left for sums.
void Ctranslate2Tensors::write_int16(Ctranslate2File& file, ExportedTensor const& tensor) const {
  float largest = 0;
  read(tensor, [&](std::span<float const> elements) { largest = std::max(largest, largest_of(elements)); });
  std::vector<float> const scale{largest > 0 ? 1024.0F / largest : 1.0F};
  std::vector<std::int16_t> quantized;
  file.begin(tensor.name, VariableType::int16, tensor.shape);
  read(tensor, [&](std::span<float const> elements) {
    quantized.clear();
    append_rounded(elements, scale.front(), quantized);
    file.write(bytes_of(quantized));
  });
  file.begin(tensor.name + "_scale", VariableType::float32, {});
  file.write(bytes_of(scale));
}

json::array pieces_of(Tokenizer const& tokenizer) {
  json::array pieces;
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) {
    pieces.emplace_back(tokenizer.piece(id));
  }
  return pieces;
}

void write_json(fs::path const& path, json::value const& value) {
  replace_file(path, json::serialize(value) + "\n");
}

/// Writes the vocabulary files of an encoder-decoder model.
void write_vocabularies(Vocabulary const& vocabulary, fs::path const& directory) {
  if (vocabulary.joint()) {
    write_json(directory / "shared_vocabulary.json", pieces_of(vocabulary.target));
    return;
  }
  write_json(directory / "source_vocabulary.json", pieces_of(vocabulary.source));
  write_json(directory / "target_vocabulary.json", pieces_of(vocabulary.target));
}

}  // namespace

Ctranslate2File::Ctranslate2File(fs::path const& path, bool decoder_only, std::size_t variables)
    : pending_(path), file_(pending_.create()) {
  write_integer<std::uint32_t>(binary_version);
  write_text(decoder_only ? "TransformerDecoderSpec" : "TransformerSpec");
  write_integer<std::uint32_t>(decoder_only ? 8 : 7);  // the specification's revision
  write_integer<std::uint32_t>(variables);
}

void Ctranslate2File::begin(std::string const& name, VariableType type, std::vector<std::int64_t> const& shape) {
  std::int64_t const bytes = ForeignTensor{shape, ""}.elements() * bytes_of_types.at(static_cast<std::size_t>(type));
  if (bytes > std::numeric_limits<std::uint32_t>::max()) {
    throw DataError(
        "the tensor {} has {} bytes; CTranslate2's format has less than 4 GiB in one: "
        "--quantization makes it smaller",
        name, bytes);
  }
  write_text(name);
  write_integer<std::uint8_t>(shape.size());
  for (std::int64_t const size : shape) {
    write_integer<std::uint32_t>(static_cast<std::size_t>(size));
  }
  write_integer<std::uint8_t>(static_cast<std::size_t>(type));
  write_integer<std::uint32_t>(static_cast<std::size_t>(bytes));
}

void Ctranslate2File::write(std::span<std::uint8_t const> bytes) {
  write_at(file_, pending_.target(), offset_, bytes);
  offset_ += std::ssize(bytes);
}

template <class Integer>
void Ctranslate2File::write_integer(std::size_t value) {
  write(bytes_of(std::vector<Integer>{static_cast<Integer>(value)}));
}

void Ctranslate2File::write_text(std::string const& text) {
  write_integer<std::uint16_t>(text.size() + 1);
  write({reinterpret_cast<std::uint8_t const*>(text.c_str()), text.size() + 1});
}

void Ctranslate2File::finish(std::map<std::string, std::string> const& aliases) {
  write_integer<std::uint32_t>(aliases.size());
  for (auto const& [alias, name] : aliases) {
    write_text(alias);
    write_text(name);
  }
  pending_.sync();
  if (!file_.close()) {
    fail_with_errno(pending_.target(), "close the file");
  }
  pending_.commit();
}

std::int64_t write_ctranslate2(Checkpoint const& checkpoint, Config const& config, std::string const& dtype,
                               fs::path const& directory) {
  if (std::ranges::find(names_of_types, dtype) == names_of_types.end() || dtype == "int32") {
    throw UsageError(
        "CTranslate2 has no models of {}; possible are float32, bfloat16, float16, int8 and "
        "int16",
        dtype);
  }
  require_ctranslate2(config);
  Vocabulary const vocabulary = checkpoint.contents().vocabulary();
  SpecialIds const& ids = vocabulary.target.special_ids();
  bool const alone = config.model.is_decoder_only();
  json::object keys{{"bos_token", vocabulary.target.piece(ids.begin)},
                    {"eos_token", vocabulary.target.piece(ids.end)},
                    {"layer_norm_epsilon", config.model.norm_epsilon},
                    {"multi_query_attention", false},
                    {"unk_token", ids.unknown == SpecialIds::absent ? "" : vocabulary.target.piece(ids.unknown)}};
  if (alone) {
    write_json(directory / "vocabulary.json", pieces_of(vocabulary.target));
  } else {
    keys["add_source_bos"] = false;
    keys["add_source_eos"] = true;
    keys["decoder_start_token"] = vocabulary.target.piece(ids.begin);
    write_vocabularies(vocabulary, directory);
  }
  write_json(directory / "config.json", keys);
  json::object const no_keys;
  std::vector<std::int32_t> never;
  for (auto const& sequence : vocabulary.target.form().suppressed) {
    if (sequence.size() == 1) {
      never.push_back(sequence.front());
    }
  }
  return Ctranslate2Tensors(checkpoint, {ctranslate2_tensors(), config.model, no_keys}, dtype, std::move(never))
      .write(directory / "model.bin");
}

}  // namespace heddle
