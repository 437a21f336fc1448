#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <iostream>

#include "command_line/options.hpp"
#include "commands.hpp"
#include "translation/translation.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;
using Tokens = std::vector<std::int32_t>;

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
  GenerationOptions& generation = options.generation;
  syntax.options.add_options()  //
      ("temperature", with_default(generation.sampling.temperature, "X"),
       "draw tokens from the probabilities to the power 1 / X; 0: take the likeliest")  //
      ("top-k", with_default(generation.sampling.top_k, "N"),
       "draw from the N likeliest tokens; 0: from all")  //
      ("top-p", with_default(generation.sampling.top_p, "X"),
       "draw from the fewest likeliest tokens that have together at least the probability X")  //
      ("seed", with_default(generation.sampling.seed, "N"),
       "of the random draws: the same text for the same seed, prompt and line number, counted from 1")  //
      ("end-prompt", po::bool_switch(&options.end_prompt),
       "put the end token behind each prompt: the next line is generated; a decoder with mask = \"prefix\" that was "
       "trained on pairs translates in this way")  //
      ("with-prompt", po::bool_switch(&options.with_prompt),
       "write each prompt before its continuation, with --end-prompt and a tab");
  return syntax;
}

void require_continuation(ModelDescription const& model) {
  auto reason = model.no_generation_reason();
  if (!reason && model.stacks.size() > 1) {
    reason = fmt::format("{} = {} has an encoder, whose input is translated: use `heddle translate`",
                         model.keys.place("stacks"), to_toml(OptionValue(model.keys.stacks)));
  }
  if (reason) {
    throw ConfigError("heddle generate needs a decoder-only model: " + *reason);
  }
}

/// The prompt's tokens. A prompt that leaves too little room for a continuation loses its start, and standard error
/// names it.
Tokens encode_prompt(TrainedModel const& model, SourceLine const& line, bool end) {
  Tokens tokens = model.vocabulary().target.encode(line.text);
  if (end) {
    tokens.push_back(model.vocabulary().target.special_ids().end);
  }
  std::int64_t const longest = model.config().model.max_length;
  if (std::ssize(tokens) >= longest) {
    std::int64_t const kept = longest / 2;
    std::cerr << fmt::format("heddle: line {}: {} tokens; only the last {} are continued (model.max_length = {})\n",
                             line.number, readable_count(tokens.size()), readable_count(kept), longest);
    tokens.erase(tokens.begin(), tokens.end() - kept);
  }
  return tokens;
}

/// The text that follows the prompt, which starts with a space where a new word starts.
std::string decode_continuation(Tokenizer const& tokenizer, Tokens const& prompt, Tokens const& continuation) {
  Tokens all = prompt;
  all.insert(all.end(), continuation.begin(), continuation.end());
  std::string text = tokenizer.decode(all);
  std::string const before = tokenizer.decode(prompt);
  text = text.starts_with(before) ? text.substr(before.size()) : tokenizer.decode(continuation);
  std::replace(text.begin(), text.end(), '\n', ' ');  // possible with a vocabulary that has byte pieces
  return text;
}

std::string continue_lines(TrainedModel& model, std::vector<SourceLine> const& lines, GenerateOptions const& options) {
  std::vector<Tokens> prompts;
  prompts.reserve(lines.size());
  for (SourceLine const& line : lines) {
    prompts.push_back(encode_prompt(model, line, options.end_prompt));
  }
  GenerationOptions generation = options.generation;
  generation.sampling.first_number = lines.front().number;
  auto const generated = model.generate(prompts, generation);
  std::string text;
  for (std::size_t index = 0; index < lines.size(); ++index) {
    if (options.with_prompt) {
      text += lines[index].text + (options.end_prompt ? "\t" : "");
    }
    text += decode_continuation(model.vocabulary().target, options.end_prompt ? Tokens() : prompts[index],
                                generated[index].front().tokens) +
            "\n";
  }
  return text;
}

}  // namespace

ExitCode run_generate(Arguments const& arguments) {
  GenerateOptions options;
  options.generation.length_penalty = 0;
  parse_options(generate_syntax(options), arguments);
  convert_text(
      options, "generate", require_continuation,
      [&](TrainedModel& model, std::vector<SourceLine> const& lines) { return continue_lines(model, lines, options); });
  return ExitCode::done;
}

}  // namespace heddle
