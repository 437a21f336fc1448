#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <iterator>
#include <map>

#include "command_line/alignment_options.hpp"
#include "command_line/text_command.hpp"
#include "commands.hpp"
#include "inference/alignment.hpp"
#include "inference/translation.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;

struct TranslateOptions : TextCommandOptions {
  AlignmentOptions alignment;
  bool json = false;
  bool n_best = false;
  double coverage_penalty = 0;
};

CommandSyntax translate_syntax(TranslateOptions& options) {
  CommandSyntax syntax;
  syntax.name = "translate";
  syntax.usage = "--checkpoint DIRECTORY [options] < SOURCE > TRANSLATION";
  syntax.summary = R"(Translates text, one sentence a line, with a trained model: beam search, one line out for each
line in, in the same order; an empty line stays empty. With --n-best N there are up to N lines for each
line in, "INDEX ||| TRANSLATION ||| SCORE" with INDEX counting from 0. With --align hard " ||| ALIGNMENT" follows.)";
  add_text_command_options(syntax.options, options, "sentence", "translation", "translated");
  add_language_options(syntax.options, options.languages);
  add_sampling_options(syntax.options, options.generation.sampling);
  syntax.options.add_options()  //
      ("n-best", po::value(&options.generation.n_best)->value_name("N"),
       "number of translations of each line, with their scores")  //
      ("json", po::bool_switch(&options.json),
       "write a JSON object for each translation: line, text, score, log_probability and tokens")  //
      ("prefix", po::value(&options.text.prefix)->value_name("TEXT"),
       "what translations start with: line n of this text belongs to the input's line n")  //
      ("prefix-column", po::bool_switch(&options.text.prefix_column),
       "each line is TEXT<TAB>PREFIX, with what its translation starts with");
  add_shortlist(syntax.options, options.choices);
  add_alignment_options(syntax.options, options.alignment);
  syntax.options.add_options()  //
      ("coverage-penalty", with_default(options.coverage_penalty, "X"),
       "choose among the beam's translations with X times the log of the attention that each source token got added to "
       "their scores (Wu et al. 2016): those that leave out parts of the source lose");
  return syntax;
}

/// A translation, and the same for forced decoding.
struct Output {
  SourceLine const* line;
  Translation translation;
  GivenTarget given;
  ForcedTarget forced = {};
};

std::vector<Output> outputs_of(TrainedModel const& model, std::span<GeneratedLine const> lines) {
  std::vector<Output> outputs;
  auto const framed = static_cast<std::ptrdiff_t>(model.frame().source.size());
  for (GeneratedLine const& line : lines) {
    std::vector<std::int32_t> source = line.encoded.tokens.value_or(std::vector<std::int32_t>());
    source.erase(source.begin(), source.begin() + (source.empty() ? 0 : framed));
    for (Translation& translation : translations_of(model, line)) {
      GivenTarget given{source, translation.tokens};
      outputs.push_back({&line.line, std::move(translation), std::move(given)});
    }
  }
  return outputs;
}

/// Computes the attention of all outputs but those of empty lines, together for each adapter.
void align(ForcedDecoding const& forcing, TrainedModel& model, std::vector<Output>& outputs) {
  std::map<std::string, std::vector<Output*>> by_adapter;
  for (Output& output : outputs) {
    if (!output.given.source.empty()) {
      by_adapter[output.line->adapter].push_back(&output);
    }
  }
  for (auto const& [adapter, own] : by_adapter) {
    std::vector<GivenTarget> given;
    std::ranges::transform(own, std::back_inserter(given), [](Output const* output) { return output->given; });
    std::vector<ForcedTarget> forced = forcing.decode(model.with_adapter(adapter), given);
    for (std::size_t index = 0; index < own.size(); ++index) {
      own[index]->forced = std::move(forced[index]);
    }
  }
}

/// Adds the coverage to the scores of each line's translations, and keeps the best `n_best` of them.
void choose_by_coverage(double penalty, std::int64_t n_best, std::vector<Output>& outputs) {
  std::vector<Output> chosen;
  for (auto begin = outputs.begin(); begin != outputs.end();) {
    auto const end =
        std::find_if(begin, outputs.end(), [&](Output const& output) { return output.line != begin->line; });
    std::for_each(begin, end, [&](Output& output) {
      output.translation.score += penalty * coverage(output.forced.attention, output.given.source.size());
    });
    std::stable_sort(begin, end, [](Output const& left, Output const& right) {
      return left.translation.score > right.translation.score;
    });
    std::move(begin, begin + std::min(end - begin, n_best), std::back_inserter(chosen));
    begin = end;
  }
  outputs = std::move(chosen);
}

/// Forced decoding that reads the attention for alignments or for the coverage.
ForcedDecoding forced_decoding(TranslateOptions& options) {
  if (!(options.coverage_penalty >= 0)) {
    throw UsageError("--coverage-penalty must be at least 0");
  }
  if (options.coverage_penalty > 0 && options.generation.beam_size == 1) {
    throw UsageError("--coverage-penalty chooses among the translations of a beam: give --beam more than 1");
  }
  return options.coverage_penalty > 0 && !options.alignment.wanted()
             ? ForcedDecoding(options.alignment.attention, options.model)
             : forced_decoding(options.alignment, options.model, options.json, "--json");
}

std::string to_text(TranslateOptions const& options, TrainedModel const& model, Output const& output) {
  auto const& [text, score, log_probability, tokens] = output.translation;
  std::int64_t const index = output.line->number - 1;
  if (!options.json) {
    std::string line = options.n_best ? fmt::format("{} ||| {} ||| {:.6f}", index, text, score) : text;
    if (options.alignment.wanted()) {
      line += " ||| " + alignment_text(options.alignment, model, output.given, output.forced);
    }
    return line + "\n";
  }
  boost::json::array pieces;
  for (std::int32_t const token : tokens) {
    pieces.emplace_back(model.vocabulary().target.piece(token));
  }
  boost::json::object object{{"line", index},
                             {"text", text},
                             {"score", score},
                             {"log_probability", log_probability},
                             {"tokens", std::move(pieces)}};
  if (options.alignment.wanted()) {
    add_alignment(object, options.alignment, model, output.given, output.forced);
  }
  return boost::json::serialize(object) + "\n";
}

}  // namespace

ExitCode run_translate(Arguments const& arguments) {
  TranslateOptions options;
  options.generation.beam_size = 5;
  options.arguments = arguments;
  auto const values = parse_options(translate_syntax(options), arguments);
  options.n_best = values.count("n-best") > 0;
  if (options.generation.sampling.temperature > 0 && values["beam"].defaulted()) {
    options.generation.beam_size = 1;
  }
  ForcedDecoding const forcing = forced_decoding(options);
  std::int64_t const n_best = options.generation.n_best;
  if (options.coverage_penalty > 0) {
    options.generation.n_best = options.generation.beam_size;
  }
  auto const require = [](ModelDescription const& description) {
    require_translation(description, "heddle translate", commands_for(description));
  };
  convert_text(
      options, {.command = "translate", .kept = "first", .done = "translated"}, require,
      {[](TrainedModel const& model, SourceLine const& line) { return encode_source(model, line.text, line.prefix); },
       [&](TrainedModel& model, std::span<GeneratedLine const> lines) {
         std::vector<Output> outputs = outputs_of(model, lines);
         if (options.alignment.wanted() || options.coverage_penalty > 0) {
           align(forcing, model, outputs);
         }
         if (options.coverage_penalty > 0) {
           choose_by_coverage(options.coverage_penalty, n_best, outputs);
         }
         std::string text;
         for (Output const& output : outputs) {
           text += to_text(options, model, output);
         }
         return text;
       }});
  return ExitCode::done;
}

}  // namespace heddle
