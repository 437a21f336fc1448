#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/dataset/batches.hpp>
#include <heddle/io/metrics/bleu.hpp>
#include <heddle/io/metrics/chrf.hpp>
#include <heddle/io/text/text.hpp>
#include <iostream>
#include <numeric>
#include <optional>

#include "command_line/options.hpp"
#include "commands.hpp"
#include "translation/text_evaluation.hpp"
#include "translation/text_output.hpp"
#include "translation/translation.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;
using Lines = std::vector<std::string>;

struct EvaluateOptions {
  TrainedModelOptions model;
  GenerationOptions generation{.beam_size = 5};
  std::string source;
  std::string reference;
  std::string hypotheses;
  std::string text;
  std::string tokenize = "13a";
  std::string output;
};

CommandSyntax evaluate_syntax(EvaluateOptions& options) {
  CommandSyntax syntax;
  syntax.name = "evaluate";
  syntax.usage =
      "(--checkpoint DIRECTORY (--source TEXT --reference TEXT | --text TEXT) | --hypotheses TEXT --reference TEXT) "
      "[options]";
  syntax.summary =
      "Compares translations with reference translations: BLEU and chrF, the same numbers as sacreBLEU's. With a "
      "model\n"
      "it translates the source itself, and reports the perplexity of the references: e to the mean unsmoothed loss "
      "for\n"
      "each target token, end tokens included. With --text it measures a model of one stack: the perplexity of a "
      "text,\n"
      "of an encoder that of its masked tokens, and how many of these are predicted rightly.";
  auto const text = [](std::string& into) { return po::value(&into)->value_name("TEXT"); };
  syntax.options.add_options()                                                                                 //
      ("reference", text(options.reference), "the right translations, plain or gzip, one a line")              //
      ("source", text(options.source), "what to translate: line n belongs to the reference's line n")          //
      ("hypotheses", text(options.hypotheses), "translations to judge, instead of a checkpoint and a source")  //
      ("text", text(options.text), "measure a model of one stack on this text")                                //
      ("tokenize", po::value(&options.tokenize)->value_name("13a|none")->default_value(options.tokenize),
       "words for BLEU: sacreBLEU's 13a, or none for text that is tokenised already")  //
      ("output", text(options.output), "write the model's translations to this file");
  add_model_options(syntax.options, options.model);
  add_generation_options(syntax.options, options.generation);
  return syntax;
}

void check_text_options(EvaluateOptions const& options) {
  if (options.model.checkpoint.empty()) {
    throw UsageError("evaluate: --text needs --checkpoint: the model to measure");
  }
  for (auto const& [name, value] : {std::pair<char const*, std::string const&>{"reference", options.reference},
                                    {"source", options.source},
                                    {"hypotheses", options.hypotheses},
                                    {"output", options.output}}) {
    if (!value.empty()) {
      throw UsageError(
          fmt::format("evaluate: --{} belongs to translations, and --text to models of one stack: leave "
                      "out either",
                      name));
    }
  }
}

void check_options(EvaluateOptions const& options) {
  if (!options.text.empty()) {
    return check_text_options(options);
  }
  if (options.reference.empty()) {
    throw UsageError("evaluate: --reference is missing: the right translations; or --text for a model of one stack");
  }
  bool const model = !options.model.checkpoint.empty();
  bool const hypotheses = !options.hypotheses.empty();
  if (model == hypotheses) {
    throw UsageError("evaluate: expected either --checkpoint with --source, or --hypotheses");
  }
  if (model == options.source.empty()) {
    throw UsageError(model ? "evaluate: --source is missing: the text that --checkpoint is to translate"
                           : "evaluate: --source goes with --checkpoint; --hypotheses are translated already");
  }
  if (hypotheses && !options.output.empty()) {
    throw UsageError("evaluate: --output goes with --checkpoint; --hypotheses are written already");
  }
  if (options.tokenize != "13a" && options.tokenize != "none") {
    throw UsageError(fmt::format("evaluate: --tokenize is \"{}\"; expected 13a or none", options.tokenize));
  }
  require_valid(options.generation);
}

void require_equal_lines(std::string const& name, Lines const& lines, std::string const& reference_name,
                         Lines const& references) {
  if (lines.size() != references.size()) {
    throw DataError(fmt::format("{} has {} lines, {} has {}: line n of one must belong to line n of the other", name,
                                readable_count(lines.size()), reference_name, readable_count(references.size())));
  }
  if (lines.empty()) {
    throw DataError(fmt::format("{} is empty: expected at least one line", name));
  }
}

Lines translate_all(TrainedModel& model, Lines const& sources, EvaluateOptions const& options) {
  std::vector<SourceLine> numbered;
  for (std::string const& source : sources) {
    numbered.push_back({source, static_cast<std::int64_t>(numbered.size()) + 1});
  }
  Lines hypotheses;
  for (auto& translations : translate(model, numbered, options.generation, std::cerr)) {
    hypotheses.push_back(std::move(translations.front().text));
  }
  return hypotheses;
}

/// The references' loss over all pairs that fit the model, in packs of pairs of similar length.
LossSums reference_loss(TrainedModel& model, Lines const& sources, Lines const& references) {
  constexpr std::int64_t pack_tokens = 4096;
  Vocabulary const& vocabulary = model.vocabulary();
  std::vector<SentencePair> pairs;
  for (std::size_t index = 0; index < sources.size(); ++index) {
    pairs.push_back({static_cast<std::int32_t>(index), vocabulary.source.encode(sources[index]),
                     vocabulary.target.encode(references[index])});
  }
  MemorySamples const samples(std::move(pairs), vocabulary.special_ids());
  GlobalBatch batch = all_samples(samples, model.config().model.max_length);
  if (std::size_t const left_out = sources.size() - batch.samples.size(); left_out > 0) {
    std::cerr << fmt::format("heddle: perplexity: {} pairs longer than the model takes are left out\n",
                             readable_count(left_out));
  }
  std::ranges::stable_sort(batch.samples, {}, [&](std::int64_t index) { return samples.cost(0, index).longer(); });
  return model.loss(SampledMicroBatches(samples, std::move(batch), {.most_tokens = pack_tokens}));
}

void print_scores(Lines const& hypotheses, Lines const& references, std::string const& tokenize) {
  auto const tokenization = tokenize == "13a" ? BleuTokenization::mteval_13a : BleuTokenization::none;
  std::string const bleu = corpus_bleu(hypotheses, references, tokenization).text();
  // sacreBLEU's own form: its signature stands in place of the name BLEU.
  std::cout << fmt::format("BLEU|nrefs:1|case:mixed|eff:no|tok:{}|smooth:exp|version:heddle-{}{}\n", tokenize,
                           HEDDLE_VERSION, bleu.substr(bleu.find(' ')));
  std::cout << fmt::format("chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:heddle-{} = {:.2f}\n",
                           HEDDLE_VERSION, corpus_chrf(hypotheses, references));
}

void evaluate_model(EvaluateOptions const& options, Lines const& sources, Lines const& references) {
  auto const report = [](std::string const& message) { std::cerr << "heddle: " << message << '\n'; };
  auto const require = [](ModelDescription const& description) {
    require_translation(description, "heddle evaluate --source", "; --text measures a model of one stack");
  };
  auto const model = TrainedModel::open(options.model, require, report);
  std::optional<TextOutput> output;
  if (!options.output.empty()) {
    output.emplace(options.output, Lines{options.source, options.reference});
  }
  Lines const hypotheses = translate_all(*model, sources, options);
  std::exception_ptr lost;  // reported last: the scores are useful without the translations
  try {
    if (output) {
      output->write(fmt::format("{}\n", fmt::join(hypotheses, "\n")));
    }
  } catch (Error const&) {
    lost = std::current_exception();
  }
  print_scores(hypotheses, references, options.tokenize);
  LossSums const loss = reference_loss(*model, sources, references);
  if (loss.tokens > 0) {
    double const mean = loss.negative_log_likelihood / loss.weight;
    std::cout << fmt::format("perplexity = {:.6g} ({:.4f} nats for each of {} target tokens)\n", std::exp(mean), mean,
                             readable_count(loss.tokens));
  }
  if (lost) {
    std::rethrow_exception(lost);
  }
}

}  // namespace

int run_evaluate(Arguments const& arguments) {
  EvaluateOptions options;
  if (!parse_options(evaluate_syntax(options), arguments)) {
    return static_cast<int>(ExitCode::done);
  }
  check_options(options);
  if (!options.text.empty()) {
    evaluate_text(options.model, options.text);
    return static_cast<int>(ExitCode::done);
  }
  Lines const references = read_lines(options.reference);
  std::string const& given = options.hypotheses.empty() ? options.source : options.hypotheses;
  Lines const lines = read_lines(given);
  require_equal_lines(given, lines, options.reference, references);
  if (!options.hypotheses.empty()) {
    print_scores(lines, references, options.tokenize);
    return static_cast<int>(ExitCode::done);
  }
  evaluate_model(options, lines, references);
  return static_cast<int>(ExitCode::done);
}

}  // namespace heddle
