#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/algorithm/string/split.hpp>
#include <boost/json.hpp>
#include <deque>
#include <exception>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/io/metrics/metric.hpp>
#include <iostream>
#include <optional>
#include <sstream>

#include "command_line/alignment_options.hpp"
#include "command_line/ranks.hpp"
#include "command_line/text_command.hpp"
#include "commands.hpp"
#include "corpus/corpus_output.hpp"
#include "corpus/reference_loss.hpp"
#include "corpus/scores.hpp"
#include "corpus/text_conversion.hpp"
#include "corpus/text_measures.hpp"
#include "inference/forced_translation.hpp"
#include "run/configuration/registration.hpp"
#include "run/directory/json_text.hpp"
#include "run/directory/warning.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;

/// A source or its translations, and the reference translations.
struct TestSet {
  std::string name;  ///< "": the only one
  std::string source;
  std::vector<std::string> references;
};

struct EvaluateOptions {
  TrainedModelOptions model;
  GenerationOptions generation{.beam_size = 5};
  TestSet test;
  std::vector<std::string> tests;  ///< "NAME=SOURCE,REFERENCE"
  std::string hypotheses;
  std::string text;
  std::string pair;
  ScoreOptions scores;
  std::string output;
  bool json = false;
  TextOptions text_options;
  Languages languages;
  TokenChoices choices;
  CoverageOptions coverage;
  int threads = 0;
  Arguments arguments = {};

  /// To read this text.
  TextOptions reading(std::string const& input) const {
    return {.input = input, .window = text_options.window, .invalid_utf8 = text_options.invalid_utf8};
  }
};

CommandSyntax evaluate_syntax(EvaluateOptions& options) {
  CommandSyntax syntax;
  syntax.name = "evaluate";
  syntax.usage =
      "(--checkpoint DIRECTORY (--source TEXT --reference TEXT | --test SET | --text TEXT) | --hypotheses TEXT "
      "--reference TEXT [--source TEXT]) [options]";
  syntax.summary = R"(Compares translations with reference translations: BLEU, chrF and TER, the same numbers as
sacreBLEU's. With a model it translates the source itself, and reports the perplexity of the references:
e to the mean unsmoothed loss per target token, end tokens included. With --text it measures
a model that was trained on text: the perplexity of the text; for an encoder, perplexity and accuracy on its
masked tokens.)";
  auto const text = [](std::string& into) { return po::value(&into)->value_name("TEXT"); };
  auto const list = [](std::vector<std::string>& into, char const* value) {
    return po::value(&into)->value_name(value)->composing();
  };
  ScoreOptions& scores = options.scores;
  syntax.options.add_options()  //
      ("reference", list(options.test.references, "TEXT"),
       "reference translations, plain, gzip or zstd, one a line; several are alternatives for the same lines")  //
      ("source", text(options.test.source),
       "what to translate: line n belongs to the references' line n; with --hypotheses for metrics of plug-ins only")  //
      ("test", list(options.tests, "NAME=SOURCE,REFERENCE"),
       "a test set, with further references after further commas, in place of --source and --reference; may be "
       "repeated")                                                                                             //
      ("hypotheses", text(options.hypotheses), "translations to judge, instead of a checkpoint and a source")  //
      ("text", text(options.text),
       "compute the perplexity of a language model (or the masked accuracy of an encoder) on this text")   //
      ("pair", text(options.pair), "of an encoder: the second texts; line n belongs to line n of --text")  //
      ("metric",
       po::value<std::vector<std::string>>()->value_name("METRIC")->composing()->notifier(
           [&scores](std::vector<std::string> const& names) { scores.metrics = names; }),
       "a score to compute: bleu, bleu_zh, bleu_char, chrf, chrf++, ter or a plug-in's; may be repeated; default: bleu "
       "and chrf")  //
      ("tokenize", with_default(scores.tokenize, "13a|zh|char|intl|none"),
       "words for BLEU, as sacreBLEU's: 13a; zh for Chinese; char, where each character is a word, for Japanese; intl, "
       "with all punctuation of Unicode; none for text that is tokenised already")  //
      ("confidence", po::bool_switch(&scores.confidence),
       "add the interval that holds 95 % of the scores of 1,000 samples of the sentences (bootstrap)")  //
      ("baseline", text(scores.baseline),
       "another system's translations of the same lines: its scores, and the probability that a difference this "
       "large is chance (paired bootstrap)")                                           //
      ("output", text(options.output), "write the model's translations to this file")  //
      ("json", po::bool_switch(&options.json), "print a JSON object, for each test set one a line, in place of text");
  add_language_options(syntax.options, options.languages);
  add_model_options(syntax.options, options.model);
  add_generation_options(syntax.options, options.generation, "sentence", "translation");
  add_forbid(syntax.options, options.choices);
  add_shortlist(syntax.options, options.choices);
  add_sampling_options(syntax.options, options.generation.sampling);
  add_coverage_option(syntax.options, options.coverage);
  add_text_options(syntax.options, options.text_options, "translated");
  add_threads(syntax.options, options.threads);
  return syntax;
}

void check_text_options(EvaluateOptions const& options) {
  if (options.model.checkpoint.empty()) {
    throw UsageError("evaluate: --text needs --checkpoint: the model to measure");
  }
  if (!options.model.ensemble.empty()) {
    throw UsageError("evaluate: --text measures one model; give one --checkpoint");
  }
  if (!options.pair.empty()) {
    require_equal_lines(options.reading(options.text), {options.pair});
  }
  for (auto const& [name, is_given] :
       {std::pair("reference", !options.test.references.empty()), std::pair("source", !options.test.source.empty()),
        std::pair("test", !options.tests.empty()), std::pair("hypotheses", !options.hypotheses.empty()),
        std::pair("baseline", !options.scores.baseline.empty()), std::pair("output", !options.output.empty())}) {
    if (is_given) {
      throw UsageError(
          "evaluate: --{} belongs to translations, and --text to models that were trained on text: give only "
          "one of the two",
          name);
    }
  }
}

/// The test set of an option --test.
TestSet parse_test(std::string const& text) {
  std::size_t const equals = text.find('=');
  TestSet test{text.substr(0, equals), "", {}};
  std::vector<std::string> files;
  boost::split(files, text.substr(equals == std::string::npos ? text.size() : equals + 1),
               [](char c) { return c == ','; });
  if (test.name.empty() || files.size() < 2 || std::ranges::any_of(files, &std::string::empty)) {
    throw UsageError("evaluate: --test {}: expected NAME=SOURCE,REFERENCE", text);
  }
  test.source = files.front();
  test.references.assign(files.begin() + 1, files.end());
  return test;
}

void check_tests(EvaluateOptions const& options) {
  if (options.model.checkpoint.empty()) {
    throw UsageError("evaluate: --test needs --checkpoint: the model to translate with");
  }
  for (auto const& [name, is_given] :
       {std::pair("reference", !options.test.references.empty()), std::pair("source", !options.test.source.empty()),
        std::pair("baseline", !options.scores.baseline.empty()), std::pair("output", !options.output.empty())}) {
    if (is_given) {
      throw UsageError(
          "evaluate: --{} belongs to one source, and --test may name several: give only one "
          "of the two",
          name);
    }
  }
}

void check_options(EvaluateOptions const& options) {
  if (!options.text.empty()) {
    return check_text_options(options);
  }
  if (!options.pair.empty()) {
    throw UsageError("evaluate: --pair goes with --text: line n of both is one sample");
  }
  bool const model = !options.model.checkpoint.empty();
  bool const hypotheses = !options.hypotheses.empty();
  if (!options.tests.empty() && !hypotheses) {
    require_valid(options.generation);
    return check_tests(options);
  }
  if (options.test.references.empty()) {
    throw UsageError(
        "evaluate: --reference is missing: the right translations; or --text for a model that was trained on text");
  }
  if (model == hypotheses || !options.tests.empty()) {
    throw UsageError("evaluate: expected either --checkpoint with --source or --test, or --hypotheses");
  }
  if (model && options.test.source.empty()) {
    throw UsageError("evaluate: --source is missing: the text that --checkpoint is to translate");
  }
  if (hypotheses && !options.output.empty()) {
    throw UsageError("evaluate: --output goes with --checkpoint; --hypotheses are written already");
  }
  require_valid(options.generation);
}

/// Prints the scores of a test set, and the perplexity of its references if a model was given. An empty name is not
/// printed.
void print_scores(std::vector<ScoreResult> const& results, LossSums const& loss, std::string const& test, bool json) {
  if (!json) {
    std::cout << (test.empty() ? "" : fmt::format("test set {}\n", test));
    for (ScoreResult const& result : results) {
      std::cout << describe(result) << '\n';
    }
    if (loss.tokens > 0) {
      print_perplexity(loss, "target ");
    }
    return;
  }
  boost::json::object object;
  if (!test.empty()) {
    object["test"] = test;
  }
  boost::json::array& scores = object["scores"].emplace_array();
  for (ScoreResult const& result : results) {
    scores.push_back(to_json(result));
  }
  if (loss.tokens > 0) {
    add_perplexity(loss, object);
  }
  std::cout << json_text(object) << '\n';
}

/// The metrics of Heddle and of the plug-ins that the command line names.
MetricRegistry metrics_without_model(TrainedModelOptions const& options) {
  Registries registries;
  if (options.plugins.empty()) {
    register_metrics(registries.metrics);
  } else {
    Runtime runtime;
    register_everything(
        {.plugins = read_plugins({.paths = options.plugins, .sha256 = {}}), .trust_plugins = options.trust_plugins},
        registries, runtime.execution());
  }
  return registries.metrics;
}

void evaluate_hypotheses(EvaluateOptions const& options) {
  std::vector<std::string> const& references = options.test.references;
  std::vector<std::string> files = references;
  if (!options.test.source.empty()) {
    files.push_back(options.test.source);  // which metrics of plug-ins may read
  }
  std::vector<std::filesystem::path> texts{options.hypotheses, options.scores.baseline};
  texts.insert(texts.end(), files.begin(), files.end());
  require_different_pipes(texts);
  LineSource text(options.reading(options.hypotheses), files);
  Scores scores(options.scores, references.size(), metrics_without_model(options.model));
  for (SourceLine line; text.next(line);) {
    std::string const source = options.test.source.empty() ? "" : line.references.back();
    scores.add(line.text, std::span(line.references).first(references.size()), source);
  }
  print_scores(scores.results(), {}, "", options.json);
  warn(scores.advice());
  text.warn_of_invalid();
}

/// The scores and sums of a test set's translations, on rank 0.
class Evaluation {
 public:
  Evaluation(EvaluateOptions const& options, TestSet const& test, MetricRegistry const& metrics)
      : scores_(options.scores, test.references.size(), metrics) {}

  void add(Chunk const& chunk, ChunkResult const& result) {
    std::istringstream translations(result.text);
    for (SourceLine const& line : chunk.lines) {
      std::string translation;
      std::getline(translations, translation);
      scores_.add(translation, line.references, line.text);
    }
    std::ranges::transform(sums_, result.sums, sums_.begin(), std::plus());
  }
  void print(std::string const& test, bool json) {
    ReferenceLoss const loss(sums_);
    warn(loss.left_out_message());
    print_scores(scores_.results(), loss.loss(), test, json);
    warn(scores_.advice());
    warn(loss.advice());
  }

 private:
  Scores scores_;
  std::array<double, ReferenceLoss::sums_count> sums_{};
};

/// The translations and the losses of the references.
ChunkResult evaluate_lines(CoverageOptions const& coverage, ForcedDecoding const& forcing, TrainedModel& model,
                           std::vector<GeneratedLine> const& lines) {
  std::vector<ForcedTranslation> translations = given_translations(model, lines);
  if (coverage.wanted()) {
    force(forcing, model, translations);
    choose_by_coverage(coverage.penalty, 1, translations);
  }
  ChunkResult result;
  for (ForcedTranslation const& each : translations) {
    result.text += each.translation.text + "\n";
  }
  result.sums = reference_loss_sums(model, lines);
  return result;
}

/// Translates a test set on all ranks; rank 0 prints the scores of the translations and the references' perplexity.
void evaluate_test(EvaluateOptions const& options, GenerationOptions const& generation, TestSet const& test,
                   TrainedModel& model, ForcedDecoding const& forcing, Processes const& processes) {
  bool const leads = processes.ranks.world.rank() == 0;
  LineSource text =
      leads ? LineSource(options.reading(test.source), test.references) : LineSource({.input = "/dev/null"});
  std::optional<CorpusOutput> output;
  if (leads && !options.output.empty()) {
    std::vector<std::string> inputs = test.references;
    inputs.push_back(test.source);
    output.emplace(options.output, output_identity("evaluate", options.arguments, generation_digest(model, generation)),
                   inputs);
  }
  TextConversion const conversion{
      .command = "evaluate",
      .kept = "first",
      .done = "translated",
      .encode = [](TrainedModel const& encoder, SourceLine const& line) { return encode_source(encoder, line.text); },
      .conclude = [&](TrainedModel& computing,
                      auto const& lines) { return evaluate_lines(options.coverage, forcing, computing, lines); }};
  Evaluation evaluation(options, test, model.metrics());
  std::deque<Chunk> pieces;  // that are computed
  auto const next = [&] {
    auto const read = [&] { return text.next_chunk(); };
    std::optional<Chunk> piece =
        output
            ? output->next(read, [&](Chunk const& there, ChunkResult const& result) { evaluation.add(there, result); })
            : read();
    if (piece) {
      pieces.push_back(*piece);
    }
    return piece;
  };
  std::exception_ptr not_written;  // reported last: the scores are useful without the translations
  auto const finish = [&](ChunkResult const& result) {
    evaluation.add(pieces.front(), result);
    pieces.pop_front();
    try {
      if (output && !not_written) {
        output->write(result);
      }
    } catch (Error const&) {
      not_written = std::current_exception();
    }
  };
  convert_chunks(processes, text, next, chunk_computation(model, generation, conversion), finish);
  if (!leads) {
    return;
  }
  evaluation.print(test.name, options.json);
  text.warn_of_invalid();
  if (not_written) {
    std::rethrow_exception(not_written);
  }
  if (output) {
    output->finish();
  }
}

ExitCode evaluate_model(EvaluateOptions const& options, MpiSession const* session) {
  std::vector<TestSet> tests{options.test};
  if (!options.tests.empty()) {
    tests.clear();
    std::ranges::transform(options.tests, std::back_inserter(tests), parse_test);
  }
  std::vector<std::filesystem::path> texts;
  for (TestSet const& test : tests) {
    texts.push_back(test.source);
    texts.insert(texts.end(), test.references.begin(), test.references.end());
  }
  require_different_pipes(texts);
  if (is_read_once(options.scores.baseline)) {
    throw UsageError("--baseline {} is not a file: it is read more than once", options.scores.baseline);
  }
  for (TestSet const& test : tests) {
    if (session == nullptr || session->world().rank() == 0) {
      require_equal_lines(options.reading(test.source), test.references);
    }
  }
  Communicator const world = session == nullptr ? Communicator::self() : session->world();
  Processes const processes{make_rank_groups(world, options.model.overrides), session != nullptr, options.threads};
  auto const require = [](ModelDescription const& description) {
    require_translation(description, "heddle evaluate --source", commands_for(description));
  };
  TrainedModelOptions of_model = options.model;
  of_model.group = processes.ranks.group;
  ForcedDecoding const forcing = options.coverage.wanted() ? ForcedDecoding({}, of_model) : ForcedDecoding();
  auto const model = open_model(of_model, require);
  if (std::string const reason = no_translations(*model); !reason.empty()) {
    throw ConfigError("heddle evaluate --source measures translations: " + reason);
  }
  model->choose_languages(options.languages);
  GenerationOptions generation = options.generation;
  apply(options.choices, model->vocabulary(), generation);
  for (TestSet const& test : tests) {
    Scores(options.scores, test.references.size(), model->metrics());  // throws for what it cannot compute
  }
  for (TestSet const& test : tests) {
    evaluate_test(options, generation, test, *model, forcing, processes);
  }
  return ExitCode::done;
}

/// Runs a command that only one process can do.
ExitCode alone(MpiSession const* session, std::function<void()> const& work) {
  if (session != nullptr && session->world().size() > 1) {
    throw UsageError("evaluate: --hypotheses and --text are for one process, without mpirun or srun");
  }
  work();
  return ExitCode::done;
}

}  // namespace

ExitCode run_evaluate(Arguments const& arguments) {
  EvaluateOptions options;
  options.arguments = arguments;
  settle_generation(parse_options(evaluate_syntax(options), arguments), options.generation);
  check_options(options);
  prepare_for(options.coverage, options.generation);
  return run_on_ranks([&](MpiSession const* session) {
    if (!options.text.empty()) {
      return alone(session, [&] {
        auto const model = open_model(options.model);
        measure_text(*model, {options.text, options.pair, options.text_options.invalid_utf8, options.json});
      });
    }
    if (!options.hypotheses.empty()) {
      return alone(session, [&] { evaluate_hypotheses(options); });
    }
    return evaluate_model(options, session);
  });
}

}  // namespace heddle
