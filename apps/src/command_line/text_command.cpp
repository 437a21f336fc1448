#include "text_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <iostream>
#include <system_error>

#include "report/warning.hpp"

namespace heddle {

namespace fs = std::filesystem;
namespace po = boost::program_options;

namespace {

/// Takes runs with a name before the path, "law=runs/law", or one without.
void choose_adapters(TrainedModelOptions& options, std::vector<std::string> const& runs) {
  for (std::string const& run : runs) {
    std::size_t const end = run.find_first_of("=/");
    bool const named = end != run.npos && end > 0 && run[end] == '=';
    if (named ? !options.adapters.emplace(run.substr(0, end), run.substr(end + 1)).second : runs.size() > 1) {
      throw UsageError(
          fmt::format("--adapter {}: expected NAME=RUN with another name for each of several runs of adapters", run));
    }
    if (!named) {
      options.adapter = run;
    }
  }
}

}  // namespace

void add_model_options(OptionsDescription& description, TrainedModelOptions& options) {
  auto const choose = [&options](std::vector<std::string> const& places) {
    options.checkpoint = places.front();
    options.ensemble.assign(places.begin() + 1, places.end());
  };
  auto const adapt = [&options](std::vector<std::string> const& runs) { choose_adapters(options, runs); };
  description.add_options()  //
      ("checkpoint", po::value<std::vector<std::string>>()->value_name("DIRECTORY")->composing()->notifier(choose),
       "a run's directory, its checkpoints directory, or one checkpoint's; several with one vocabulary are an "
       "ensemble, "
       "whose models' log-probabilities are averaged")  //
      ("weight", po::value(&options.weights)->value_name("X")->composing(),
       "the weight of a model in an ensemble's average: one for each --checkpoint, in their order; default: equal "
       "ones")  //
      ("which", with_default(options.which, "best|last|auto"),
       "the checkpoint to use: the one with the best validation loss, the last, or (auto) the best if there is one, "
       "else the last")  //
      ("adapter", po::value<std::vector<std::string>>()->value_name("[NAME=]RUN")->composing()->notifier(adapt),
       "use the adapters of this run on --checkpoint, which must be the base that they were trained with; several with "
       "names, where lines choose one (--adapter-column)")  //
      ("average", with_default(options.average, "N"),
       "average the parameters of the N newest checkpoints")  //
      ("set", po::value(&options.overrides)->value_name("SECTION.KEY=VALUE")->composing(),
       "a key's value in place of the checkpoint's, for example kernels.gemm=reference; may be repeated")  //
      ("plugin", po::value(&options.plugins)->value_name("LIBRARY")->composing(),
       "a shared library with kernels and layers: one that the model was trained with, which is loaded only if it is "
       "named here (a file of the same name takes its place), or another one; may be repeated")  //
      ("trust-plugins", po::bool_switch(&options.trust_plugins),
       "load the plug-ins that the checkpoint names, and load all plug-ins without checking their kernels and layers");
}

std::unique_ptr<TrainedModel> open_model(TrainedModelOptions options, ModelRequirement const& require, bool by_line) {
  if (by_line && options.adapters.empty()) {
    throw UsageError("--adapter-column: no --adapter NAME=RUN names adapters");
  }
  if (!by_line && options.adapters.size() > 1) {
    throw UsageError(
        "--adapter: of several runs, each line names the one that it takes, with `heddle translate` or `generate` "
        "--adapter-column; give that, or one run");
  }
  if (!by_line && !options.adapters.empty()) {
    options.adapter = options.adapters.begin()->second;
    options.adapters.clear();
  }
  auto model = TrainedModel::open(options, require);
  std::ranges::for_each(model->skipped(), report_on_stderr);
  return model;
}

std::string commands_for(ModelDescription const& model) {
  if (model.keys.is_encoder_decoder()) {
    return "";
  }
  if (model.no_generation_reason()) {
    return "; `heddle evaluate --text` measures such a model";
  }
  return fmt::format(
      "; `heddle generate` continues text with a decoder-only model, and `heddle evaluate --text` measures it{}",
      model.needs_prefixes() ? "; if it learned from pairs, `heddle generate --end-prompt` translates, and "
                               "`heddle evaluate --hypotheses` measures that"
                             : "");
}

std::string no_translations(TrainedModel const& model) {
  return model.task().pairs(model.needs_prefixes())
             ? ""
             : fmt::format(
                   "{} learns from text, not from translations; `heddle evaluate --text` measures such a model, "
                   "and train.initialize_from trains it further, on pairs",
                   place_of_task(model.config()));
}

void add_generation_options(OptionsDescription& description, GenerationOptions& options, char const* input,
                            char const* output) {
  description.add_options()  //
      ("beam", with_default(options.beam_size, "N"),
       fmt::format("hypotheses kept for each {}; 1 is greedy", input).c_str())  //
      ("length-penalty", with_default(options.length_penalty, "X"),
       "a hypothesis's score is its log-probability divided by its tokens (and its end) to this power")  //
      ("max-length", with_default(options.max_length, "N"),
       fmt::format("maximum tokens of a {}; 0: twice the {}'s and 50 more", output, input).c_str())  //
      ("batch-tokens", with_default(options.batch_tokens, "N"),
       fmt::format("hypotheses times {} tokens that are computed together; more is faster and takes more memory", input)
           .c_str());
}

void add_text_options(OptionsDescription& description, TextOptions& options, std::string const& done) {
  auto const choose = [&options](std::int64_t lines) {
    if (lines < 1) {
      throw UsageError(fmt::format("--window is {}; expected at least 1", lines));
    }
    options.window = lines;
  };
  description.add_options()("window", po::value<std::int64_t>()->value_name("LINES")->notifier(choose),
                            fmt::format("lines that are read before the first of them is {}; default: {}, or 1 "
                                        "on a terminal",
                                        done, default_window)
                                .c_str());
  add_invalid_utf8(description, options.invalid_utf8);
}

void add_language_options(OptionsDescription& description, Languages& languages) {
  description.add_options()  //
      ("source-language", without_default(languages.source, "NAME"),
       "the language of the source, if the model's vocabulary has tokens for languages: eng_Latn, en_XX, __en__")  //
      ("target-language", without_default(languages.target, "NAME"), "the language to translate into");
}

void add_text_command_options(OptionsDescription& description, TextCommandOptions& options, char const* input,
                              char const* output, std::string const& done) {
  add_model_options(description, options.model);
  add_generation_options(description, options.generation, input, output);
  description.add_options()  //
      ("input", po::value(&options.text.input)->value_name("TEXT"),
       "read this text, plain or gzip, instead of the standard input")  //
      ("adapter-column", po::bool_switch(&options.text.adapter_column),
       "each line is NAME<TAB>TEXT, with the name of an --adapter, or no name for the model without adapters")  //
      ("output", po::value(&options.output)->value_name("TEXT"), "write to this file instead of the standard output");
  add_text_options(description, options.text, done);
}

void convert_lines(TrainedModel& model, GenerationOptions const& options, LineSource& text,
                   LineConversion const& conversion, MessageParts const& parts) {
  std::vector<std::string> names{""};
  if (text.has_adapters()) {
    std::ranges::copy(model.adapters(), std::back_inserter(names));
  }
  std::vector<std::unique_ptr<Generation>> generations;
  for (std::string const& name : names) {
    generations.push_back(model.with_adapter(name).generation(options));
  }
  LineQueue queue(std::move(generations), text.window());
  SourceLine line;
  bool more = true;
  while (more || !queue.empty()) {
    while (more && queue.has_room() && (more = text.next(line))) {
      auto const name = std::ranges::find(names, line.adapter);
      if (name == names.end()) {
        throw DataError(fmt::format("line {}: there are no adapters \"{}\"; --adapter names {}", line.number,
                                    line.adapter, fmt::join(model.adapters(), ", ")));
      }
      EncodedLine encoded = conversion.encode(model.with_adapter(line.adapter), line);
      encoded.generation = static_cast<std::size_t>(name - names.begin());
      if (encoded.cut_from > 0) {
        report_on_stderr(fmt::format("line {}: {} tokens; only the {} {} are {} (model.max_length = {})", line.number,
                                     readable_count(encoded.cut_from), parts.kept,
                                     readable_count(encoded.tokens->size()), parts.done,
                                     model.config().model.max_length));
      }
      queue.add(std::move(line), std::move(encoded));
    }
    conversion.finish(model, queue.step());
  }
}

void convert_text(TextCommandOptions const& options, MessageParts const& parts, ModelRequirement const& require,
                  TextConversion const& conversion) {
  if (options.model.checkpoint.empty()) {
    throw UsageError(fmt::format("{0}: --checkpoint is missing: the model to {0} with", parts.command));
  }
  require_valid(options.generation);
  LineSource text(options.text);
  auto const model = open_model(options.model, require, options.text.adapter_column);
  warn(no_translations(*model));
  if (model->config().model.is_encoder_decoder()) {
    model->choose_languages(options.languages);
  }
  TextOutput output(options.output, {text.path()});
  auto const write = [&](TrainedModel const& used, std::vector<GeneratedLine> const& lines) {
    std::string formatted;
    for (GeneratedLine const& line : lines) {
      formatted += conversion.format(used, line);
    }
    if (!formatted.empty()) {
      output.write(formatted);
    }
  };
  convert_lines(*model, options.generation, text, {conversion.encode, write}, parts);
  text.warn_of_invalid();
}

LineSource::LineSource(TextOptions const& options, std::string const& reference) {
  for (std::string const& path : {options.input.empty() ? "/dev/stdin" : options.input, reference}) {
    if (!path.empty()) {
      readers_.emplace_back(path, options.invalid_utf8);
    }
  }
  window_ = options.window.value_or(readers_.front().is_terminal() ? 1 : default_window);
  adapter_column_ = options.adapter_column;
}

bool LineSource::next(SourceLine& line) {
  bool const found = readers_.front().next(line.text);
  line.number = readers_.front().line_number();
  if (readers_.size() > 1) {
    if (readers_.back().next(line.reference) != found) {
      throw_unequal();
    }
    if (line.number == 0) {
      throw DataError(fmt::format("{} is empty: expected at least one line", path()));
    }
  }
  if (found && adapter_column_) {
    std::size_t const tab = line.text.find('\t');
    if (tab == std::string::npos) {
      throw DataError(
          fmt::format("{}: line {} has no tab; expected NAME<TAB>TEXT (--adapter-column)", path(), line.number));
    }
    line.adapter = line.text.substr(0, tab);
    line.text.erase(0, tab + 1);
  }
  return found;
}

void LineSource::throw_unequal() {
  for (LineReader& reader : readers_) {
    for (std::string rest; reader.next(rest);) {
    }
  }
  throw DataError(fmt::format("{} has {} lines, {} has {}: line n of one must belong to line n of the other", path(),
                              readable_count(readers_.front().line_number()), readers_.back().path().string(),
                              readable_count(readers_.back().line_number())));
}

void LineSource::warn_of_invalid() const {
  std::ranges::for_each(readers_, warn_of_invalid_lines);
}

void require_equal_lines(TextOptions const& options, std::string const& reference) {
  for (std::string const& path : {options.input, reference}) {
    std::error_code ignored;
    // A pipe can be read only once. LineSource reports a file that does not exist.
    if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) {
      return;
    }
  }
  LineSource text(options, reference);
  for (SourceLine line; text.next(line);) {
  }
}

void warn_of_invalid_lines(LineReader const& reader) {
  auto const [count, first] = reader.invalid_lines();
  if (count > 0) {
    warn(fmt::format("{}: {} of {} lines are not valid UTF-8, the first is line {}; U+FFFD replaces what is invalid",
                     reader.path().string(), readable_count(count), readable_count(reader.line_number()), first));
  }
}

TextOutput::TextOutput(std::string const& path, std::vector<std::string> const& inputs)
    : path_(path.empty() ? "the standard output" : path) {
  if (path.empty()) {
    return;
  }
  for (std::string const& input : inputs) {
    std::error_code ignored;  // a file that does not exist is equivalent to nothing
    if (fs::is_regular_file(path, ignored) && fs::equivalent(path, input, ignored)) {
      throw UsageError(fmt::format("--output {} is the text that is read ({}); expected another file", path, input));
    }
  }
  file_.open(path, std::ios::binary | std::ios::trunc);
  check();
}

void TextOutput::write(std::string const& text) {
  std::ostream& stream = file_.is_open() ? file_ : std::cout;
  stream << text << std::flush;
  check();
}

void TextOutput::check() const {
  if (!file_ || !std::cout) {
    throw Error(fmt::format("{}: cannot write: {}", path_, std::strerror(errno)));
  }
}

}  // namespace heddle
