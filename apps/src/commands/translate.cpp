#include <fmt/format.h>

#include <heddle/core/base/error.hpp>

#include "command_line/options.hpp"
#include "commands.hpp"
#include "translation/translation.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;

struct TranslateOptions {
  TrainedModelOptions model;
  GenerationOptions generation{.beam_size = 5};
  WindowOptions text;
  std::string output;
};

CommandSyntax translate_syntax(TranslateOptions& options) {
  CommandSyntax syntax;
  syntax.name = "translate";
  syntax.usage = "--checkpoint DIRECTORY [options] < SOURCE > TRANSLATION";
  syntax.summary = R"(Translates text, one sentence a line, with a trained model: beam search, one line out for each
line in, in the same order; an empty line stays empty. With --n-best N there are up to N lines for each
line in, "INDEX ||| TRANSLATION ||| SCORE" with INDEX counting from 0.)";
  add_model_options(syntax.options, options.model);
  add_generation_options(syntax.options, options.generation, "sentence", "translation");
  syntax.options.add_options()("n-best", po::value(&options.generation.n_best)->value_name("N"),
                               "number of translations of each line, with their scores");
  add_text_options(syntax.options, options.text.input, options.output);
  add_window_options(syntax.options, options.text, "translated");
  return syntax;
}

std::string format_lines(std::vector<std::vector<Translation>> const& translations, std::int64_t first_index,
                         bool n_best) {
  std::string text;
  for (auto const& line : translations) {
    for (Translation const& translation : line) {
      text += n_best ? fmt::format("{} ||| {} ||| {:.6f}\n", first_index, translation.text, translation.score)
                     : translation.text + "\n";
    }
    ++first_index;
  }
  return text;
}

}  // namespace

ExitCode run_translate(Arguments const& arguments) {
  TranslateOptions options;
  auto const values = parse_options(translate_syntax(options), arguments);
  if (options.model.checkpoint.empty()) {
    throw UsageError("translate: --checkpoint is missing: the model to translate with");
  }
  bool const n_best = values.count("n-best") > 0;
  require_valid(options.generation);
  LineWindows text(options.text);
  auto const require = [](ModelDescription const& description) {
    require_translation(description, "heddle translate", "; a decoder-only model continues text: `heddle generate`");
  };
  auto const model = TrainedModel::open(options.model, require);
  TextOutput output(options.output, {text.path()});
  std::int64_t done = 0;
  for (auto lines = text.next(); !lines.empty(); lines = text.next()) {
    output.write(format_lines(translate(*model, lines, options.generation), done, n_best));
    done += static_cast<std::int64_t>(lines.size());
  }
  text.warn_of_invalid();
  return ExitCode::done;
}

}  // namespace heddle
