#pragma once

#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/families/family.hpp>
#include <map>
#include <string>
#include <vector>

#include "files/file_descriptor.hpp"
#include "files/pending_file.hpp"

/// CTranslate2's names and the file that has its variables. In its source code these are python/ctranslate2/specs.
namespace heddle {

/// The names of its tensors.
Family const& ctranslate2_tensors();
/// Throws ConfigError, with the key, unless CTranslate2 computes the model as Heddle does.
void require_ctranslate2(Config const& config);

/// The types of variables, by their numbers in the file.
enum class VariableType : std::uint8_t { float32, int8, int16, int32, float16, bfloat16 };

/// A variable that is not a tensor of the model.
struct Attribute {
  VariableType type;
  std::string bytes;
};
/// The attributes of both stacks and their layers, by name.
std::map<std::string, Attribute> ctranslate2_attributes(ModelConfig const& model);

/// model.bin. It appears under its name in `finish`.
class Ctranslate2File {
 public:
  /// The file of an encoder-decoder or of a decoder-only model.
  Ctranslate2File(std::filesystem::path const& path, bool decoder_only, std::size_t variables);

  /// The head of the next variable, which `write` then fills. Throws DataError for one of 4 GiB or more.
  void begin(std::string const& name, VariableType type, std::vector<std::int64_t> const& shape);
  void write(std::span<std::uint8_t const> bytes);
  /// Ends the file with the aliases: names of variables that are others, and these.
  void finish(std::map<std::string, std::string> const& aliases);

 private:
  template <class Integer>
  void write_integer(std::size_t value);
  void write_text(std::string const& text);

  PendingFile pending_;
  FileDescriptor file_;
  std::int64_t offset_ = 0;
};

}  // namespace heddle
