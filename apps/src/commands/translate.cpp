#include <fmt/format.h>

#include <heddle/core/base/error.hpp>

#include "command_line/text_command.hpp"
#include "commands.hpp"
#include "inference/translation.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;

CommandSyntax translate_syntax(TextCommandOptions& options) {
  CommandSyntax syntax;
  syntax.name = "translate";
  syntax.usage = "--checkpoint DIRECTORY [options] < SOURCE > TRANSLATION";
  syntax.summary = R"(Translates text, one sentence a line, with a trained model: beam search, one line out for each
line in, in the same order; an empty line stays empty. With --n-best N there are up to N lines for each
line in, "INDEX ||| TRANSLATION ||| SCORE" with INDEX counting from 0.)";
  add_text_command_options(syntax.options, options, "sentence", "translation", "translated");
  add_language_options(syntax.options, options.languages);
  syntax.options.add_options()("n-best", po::value(&options.generation.n_best)->value_name("N"),
                               "number of translations of each line, with their scores");
  return syntax;
}

std::string format_line(TrainedModel const& model, GeneratedLine const& line, bool n_best) {
  std::string text;
  for (Translation const& translation : translations_of(model, line)) {
    text += n_best ? fmt::format("{} ||| {} ||| {:.6f}\n", line.line.number - 1, translation.text, translation.score)
                   : translation.text + "\n";
  }
  return text;
}

}  // namespace

ExitCode run_translate(Arguments const& arguments) {
  TextCommandOptions options{.model = {}, .generation = {.beam_size = 5}, .text = {}, .arguments = arguments};
  bool const n_best = parse_options(translate_syntax(options), arguments).count("n-best") > 0;
  auto const require = [](ModelDescription const& description) {
    require_translation(description, "heddle translate", commands_for(description));
  };
  convert_text(
      options, {.command = "translate", .kept = "first", .done = "translated"}, require,
      {[](TrainedModel const& model, SourceLine const& line) { return encode_source(model, line.text); },
       [&](TrainedModel const& model, GeneratedLine const& line) { return format_line(model, line, n_best); }});
  return ExitCode::done;
}

}  // namespace heddle
