#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <heddle/core/generation/generation.hpp>
#include <heddle/io/text/text.hpp>
#include <optional>
#include <string>
#include <vector>

#include "command_line/options.hpp"
#include "inference/line_queue.hpp"
#include "inference/trained_model.hpp"

namespace heddle {

/// The options --checkpoint, --weight, --which, --average, --set, --plugin, --trust-plugins. TrainedModel::open throws
/// UsageErrors for their values.
void add_model_options(OptionsDescription& description, TrainedModelOptions& options);
/// TrainedModel::open; standard error names the checkpoints that it skipped.
std::unique_ptr<TrainedModel> open_model(TrainedModelOptions const& options, ModelRequirement const& require);

/// The commands for a model of one stack, as the end of a message: "; `heddle evaluate --text` measures such a model";
/// "" for others.
std::string commands_for(ModelDescription const& model);
/// A message if the model's task learns from text only, so that its output is no translation; else "".
std::string no_translations(TrainedModel const& model);

/// The options --beam, --length-penalty, --max-length, --batch-tokens; `input` and `output` are nouns for the help:
/// "sentence" and "translation". require_valid checks their values.
void add_generation_options(OptionsDescription& description, GenerationOptions& options, char const* input,
                            char const* output);

inline constexpr std::int64_t default_window = 2000;

/// A text that is read line by line.
struct TextOptions {
  std::string input = {};                   ///< "": the standard input
  std::optional<std::int64_t> window = {};  ///< lines; none: default_window, or 1 on a terminal
  InvalidUtf8 invalid_utf8 = InvalidUtf8::replace;
};
/// The options --window and --invalid-utf8. `done` says what is done with the lines: "translated".
void add_text_options(OptionsDescription& description, TextOptions& options, std::string const& done);

/// The source of lines: a text, or a text and its references, read together.
class LineSource {
 public:
  /// Opens the texts. Throws DataError if one cannot be opened.
  explicit LineSource(TextOptions const& options, std::vector<std::string> const& references = {});

  /// Reads the next line; false at the end of the text. Throws DataError as LineReader::next does, and where the text
  /// is empty or one text ends before the other.
  bool next(SourceLine& line);
  /// The number of lines that may be read before the first of them is answered.
  std::size_t window() const { return static_cast<std::size_t>(window_); }

  std::string path() const { return readers_.front().path().string(); }
  /// Warns of lines that were not UTF-8, once for each text that has them.
  void warn_of_invalid() const;

 private:
  [[noreturn]] void throw_unequal(LineReader& other);

  std::vector<LineReader> readers_;
  std::int64_t window_;
};

/// Throws DataError as LineSource does, before anything is computed; texts that cannot be read twice are skipped.
void require_equal_lines(TextOptions const& options, std::vector<std::string> const& references);

/// Warns if lines of a text that was read were not UTF-8: how many, and the first one.
void warn_of_invalid_lines(LineReader const& reader);

/// A command that turns each line of a text into one or more lines, with a model.
struct TextCommandOptions {
  TrainedModelOptions model;
  GenerationOptions generation;
  TextOptions text;
  std::string output = {};  ///< "": the standard output
  Languages languages = {};
};
/// The options --source-language and --target-language.
void add_language_options(OptionsDescription& description, Languages& languages);
/// Adds all but those of languages of their options; the words are explained at add_generation_options and
/// add_text_options.
void add_text_command_options(OptionsDescription& description, TextCommandOptions& options, char const* input,
                              char const* output, std::string const& done);

/// The parts of a command's messages that differ: "line 3: 40 tokens; only the KEPT 24 are DONE".
struct MessageParts {
  std::string command;
  std::string kept;  ///< "first", "last"
  std::string done;  ///< "translated", "continued"
};
using EncodeLine = std::function<EncodedLine(TrainedModel const&, SourceLine const&)>;

struct LineConversion {
  EncodeLine encode;
  std::function<void(TrainedModel const&, std::vector<GeneratedLine>)> finish;  ///< takes the next lines, in order
};
/// Generates for the lines of a text, of which new ones are read while others are being computed. Standard error names
/// each line that the model could not take whole.
void convert_lines(TrainedModel& model, GenerationOptions const& options, LineSource& text,
                   LineConversion const& conversion, MessageParts const& parts);

struct TextConversion {
  EncodeLine encode;
  std::function<std::string(TrainedModel const&, GeneratedLine const&)> format;  ///< one line or more
};
/// Generates from the command's input to its output. Throws UsageError, and what opening the model throws, before the
/// output is opened.
void convert_text(TextCommandOptions const& options, MessageParts const& parts, ModelRequirement const& require,
                  TextConversion const& conversion);

/// The standard output, or a file that is replaced.
class TextOutput {
 public:
  /// `path` "" is the standard output. Throws UsageError if it is one of the texts that are still to be read, under
  /// any name, and Error if it cannot be opened.
  TextOutput(std::string const& path, std::vector<std::string> const& inputs);

  /// Writes and flushes. Throws Error if not all of it could be written.
  void write(std::string const& text);

 private:
  void check() const;

  std::string path_;
  std::ofstream file_;
};

}  // namespace heddle
