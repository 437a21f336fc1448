#pragma once

#include <functional>
#include <heddle/core/generation/generation.hpp>
#include <heddle/model.hpp>
#include <string>
#include <vector>

#include "command_line/options.hpp"
#include "corpus/line_source.hpp"
#include "corpus/text_conversion.hpp"
#include "inference/token_choices.hpp"

namespace heddle {

/// The options --checkpoint, --weight, --which, --adapter, --average, --set, --quantize, --plugin, --trust-plugins.
/// TrainedModel::open throws UsageErrors for their values. `several` says what several runs of adapters are for; "":
/// only one may be given.
void add_model_options(OptionsDescription& description, TrainedModelOptions& options, std::string const& several = "");
/// Adds --plugin and --trust-plugins.
void add_plugin_options(OptionsDescription& description, TrainedModelOptions& options);
/// TrainedModel::open; standard error names the checkpoints that it skipped. Unless `by_line`, where each line chooses
/// adapters by their names, only one run's may be given, with a name or without. Throws UsageError for others.
std::unique_ptr<TrainedModel> open_model(TrainedModelOptions options, ModelRequirement const& require = {},
                                         bool by_line = false);

/// A message if the model was trained on text only, so that its output is not a translation; else "".
std::string no_translations(TrainedModel const& model);

/// The options of the search, from --beam to --diversity, and --batch-tokens; `input` and `output` are nouns for the
/// help: "sentence" and "translation". require_valid checks their values.
void add_generation_options(OptionsDescription& description, GenerationOptions& options, char const* input,
                            char const* output);

/// Settles options that depend on whether others were given: with a temperature, --beam is 1 by default. Throws
/// UsageError for options without effect: --diversity without groups, and --seed where nothing is drawn.
void settle_generation(boost::program_options::variables_map const& values, GenerationOptions& options);

/// The options --temperature, --top-k, --top-p, --min-p and --seed.
void add_sampling_options(OptionsDescription& description, Sampling& sampling);

/// The options --forbid and --allow-unknown.
void add_forbid(OptionsDescription& description, TokenChoices& choices);
/// The option --shortlist, of commands that translate.
void add_shortlist(OptionsDescription& description, TokenChoices& choices);

/// The options --window and --invalid-utf8. `done` says what is done with the lines: "translated".
void add_text_options(OptionsDescription& description, TextOptions& options, std::string const& done);

/// A command that turns each line of a text into one or more lines, with a model.
struct TextCommandOptions {
  TrainedModelOptions model;
  GenerationOptions generation;
  TextOptions text;
  TokenChoices choices = {};
  std::string output = {};  ///< "": the standard output
  Languages languages = {};
  int threads = 0;                          ///< Processes::threads
  std::vector<std::string> arguments = {};  ///< of the command line
};
/// The options --source-language and --target-language.
void add_language_options(OptionsDescription& description, Languages& languages);
/// Adds all but those of languages of their options; the words are explained at add_generation_options and
/// add_text_options.
void add_text_command_options(OptionsDescription& description, TextCommandOptions& options, char const* input,
                              char const* output, std::string const& done);

/// The option --threads, of a command that ranks may share, or not.
void add_threads(OptionsDescription& description, int& threads, bool ranks = true);

struct TextFormat {
  ChunkGenerator::Encode encode;
  std::function<std::string(TrainedModel&, std::span<GeneratedLine const>)> format;  ///< of lines that belong together
};
/// Generates from the command's input to its output, on all ranks. `conversion` has the command's words; its functions
/// are those of `format`. Throws UsageError, and what opening the model throws, before the output is opened.
ExitCode convert_text(TextCommandOptions const& options, TextConversion conversion, ModelRequirement const& require,
                      TextFormat const& format);

}  // namespace heddle
