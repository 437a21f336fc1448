
#include <heddle/core/base/error.hpp>

#include "command_line/text_command.hpp"
#include "commands.hpp"
#include "inference/translation.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;

struct GenerateOptions : TextCommandOptions {
  bool end_prompt = false;
  bool with_prompt = false;
};

CommandSyntax generate_syntax(GenerateOptions& options) {
  CommandSyntax syntax;
  syntax.name = "generate";
  syntax.usage = "--checkpoint DIRECTORY [options] < PROMPTS > CONTINUATIONS";
  syntax.summary = R"(Continues text, one prompt a line, with a decoder-only model: one line out for each line in, in
the same order. An empty line is continued, too. Takes the likeliest token at each step; with
--temperature draws one, with --beam searches for a likely continuation.)";
  add_text_command_options(syntax.options, options, "prompt", "continuation", "continued");
  add_sampling_options(syntax.options, options.generation.sampling);
  syntax.options.add_options()  //
      ("end-prompt", po::bool_switch(&options.end_prompt),
       "put the end token after each prompt: the next line is generated; a decoder with mask = \"prefix\" that was "
       "trained on pairs translates in this way")  //
      ("with-prompt", po::bool_switch(&options.with_prompt),
       "write each prompt before its continuation, with --end-prompt and a tab");
  return syntax;
}

}  // namespace

ExitCode run_generate(Arguments const& arguments) {
  GenerateOptions options;
  options.generation.length_penalty = 0;
  options.arguments = arguments;
  settle_generation(parse_options(generate_syntax(options), arguments), options.generation);
  bool const end = options.end_prompt;
  return convert_text(
      options, {.command = "generate", .kept = "last", .done = "continued"}, require_continuation,
      {[&](TrainedModel const& model, SourceLine const& line) { return encode_prompt(model, line.text, end); },
       [&](TrainedModel const& model, std::span<GeneratedLine const> lines) {
         std::string text;
         for (GeneratedLine const& line : lines) {
           std::string const prompt = options.with_prompt ? line.line.text + (end ? "\t" : "") : "";
           text += prompt + continuations_of(model, line, end).front().text + "\n";
         }
         return text;
       }});
}

}  // namespace heddle
