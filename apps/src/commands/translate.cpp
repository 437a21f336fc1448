#include <fmt/format.h>

#include <boost/json.hpp>
#include <utility>

#include "command_line/alignment_options.hpp"
#include "command_line/text_command.hpp"
#include "commands.hpp"
#include "inference/alignment.hpp"
#include "inference/forced_translation.hpp"
#include "run/directory/json_text.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;

struct TranslateOptions : TextCommandOptions {
  AlignmentOptions alignment;
  bool json = false;
  bool n_best = false;
  bool features = false;
  bool pieces = false;
  CoverageOptions coverage;
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
      ("features", po::bool_switch(&options.features),
       "write the log-probability by each model before the score of --n-best: \"F0= -1.5 F1= -2.25 ||| SCORE\"")  //
      ("json", po::bool_switch(&options.json),
       "write a JSON object for each translation: line, text, score, log_probability and tokens")  //
      ("pieces", po::bool_switch(&options.pieces),
       "write the pieces of translations, with spaces between them, in place of text; `heddle score --pieces` reads "
       "them")  //
      ("prefix", po::value(&options.text.prefix)->value_name("TEXT"),
       "what translations start with: line n of this text belongs to the input's line n")  //
      ("prefix-column", po::bool_switch(&options.text.prefix_column),
       "each line is TEXT<TAB>PREFIX, with what its translation starts with");
  add_shortlist(syntax.options, options.choices);
  add_alignment_options(syntax.options, options.alignment);
  add_coverage_option(syntax.options, options.coverage);
  return syntax;
}

/// Forced decoding that reads the attention for alignments or for the coverage.
ForcedDecoding forced_decoding(TranslateOptions& options) {
  return options.coverage.wanted() && !options.alignment.wanted()
             ? ForcedDecoding(options.alignment.attention, options.model)
             : forced_decoding(options.alignment, options.model, options.json, "--json");
}

/// `source_words`: where words are aligned, those of the source's tokens.
std::string to_text(TranslateOptions const& options, TrainedModel const& model, ForcedTranslation const& output,
                    std::vector<std::int64_t> const& source_words) {
  Tokenizer const& target = model.vocabulary().target;
  Translation const& translation = output.translation;
  std::int64_t const index = output.line->number - 1;
  AlignedPair pair{output.given, output.forced, source_words};
  if (options.alignment.words) {
    pair.target_words = words_of(target, translation);
  }
  if (!options.json) {
    std::string line = options.pieces ? join_pieces(target, translation.tokens) : translation.text;
    if (options.n_best) {
      std::string features;
      for (std::size_t of = 0; options.features && of < output.forced.log_probabilities.size(); ++of) {
        features += fmt::format("F{}= {:.6f} ", of, output.forced.log_probabilities[of]);
      }
      line = fmt::format("{} ||| {} ||| {}{:.6f}", index, line, options.features ? features + "||| " : "",
                         translation.score);
    }
    if (options.alignment.wanted()) {
      line += " ||| " + alignment_text(options.alignment, pair);
    }
    return line + "\n";
  }
  boost::json::array pieces;
  for (std::int32_t const token : translation.tokens) {
    pieces.emplace_back(target.piece(token));
  }
  boost::json::object object{{"line", index},
                             {"text", translation.text},
                             {"score", translation.score},
                             {"log_probability", translation.log_probability},
                             {"tokens", std::move(pieces)}};
  if (options.alignment.wanted()) {
    add_alignment(object, options.alignment, model, pair);
  }
  return json_text(object) + "\n";
}

/// Throws UsageError for options that do not go with pieces.
void check_pieces(TranslateOptions const& options) {
  if (options.pieces && (options.json || options.alignment.words)) {
    throw UsageError(
        "--pieces writes pieces in place of text, which --json has beside it, and words are not aligned: leave out "
        "--json and --align-words");
  }
}

}  // namespace

ExitCode run_translate(Arguments const& arguments) {
  TranslateOptions options;
  options.generation.beam_size = 5;
  options.arguments = arguments;
  auto const values = parse_options(translate_syntax(options), arguments);
  options.n_best = values.count("n-best") > 0;
  settle_generation(values, options.generation);
  check_pieces(options);
  if (options.features &&
      (!options.n_best || options.json || !options.text.prefix.empty() || options.text.prefix_column)) {
    throw UsageError(
        "--features are of an n-best list, for whole translations: give --n-best, and neither --json nor a prefix");
  }
  std::int64_t const n_best = options.generation.n_best;
  prepare_for(options.coverage, options.generation);
  ForcedDecoding const forcing = forced_decoding(options);
  auto const require = [](ModelDescription const& description) {
    require_translation(description, "heddle translate", commands_for(description));
  };
  return convert_text(
      options, {.command = "translate", .kept = "first", .done = "translated"}, require,
      {[](TrainedModel const& model, SourceLine const& line) { return encode_source(model, line.text, line.prefix); },
       [&](TrainedModel& model, std::span<GeneratedLine const> lines) {
         std::vector<ForcedTranslation> outputs = given_translations(model, lines);
         if (options.alignment.wanted() || options.coverage.wanted() || options.features) {
           force(forcing, model, outputs);
         }
         if (options.coverage.wanted()) {
           choose_by_coverage(options.coverage.penalty, n_best, outputs);
         }
         std::string text;
         SourceLine const* line = nullptr;
         std::vector<std::int64_t> source_words;
         for (ForcedTranslation const& output : outputs) {
           if (options.alignment.words && std::exchange(line, output.line) != output.line) {
             source_words = words_of(model.vocabulary().source, output.line->text, output.given.source.size());
           }
           text += to_text(options, model, output, source_words);
         }
         return text;
       }});
}

}  // namespace heddle
