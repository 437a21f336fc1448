#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/dataset/batches.hpp>
#include <heddle/io/metrics/bleu.hpp>
#include <heddle/io/metrics/chrf.hpp>
#include <iostream>
#include <optional>

#include "command_line/invalid_utf8.hpp"
#include "command_line/options.hpp"
#include "commands.hpp"
#include "translation/line_pairs.hpp"
#include "translation/text_evaluation.hpp"
#include "translation/text_output.hpp"
#include "translation/translation.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;

struct EvaluateOptions {
  TrainedModelOptions model;
  GenerationOptions generation{.beam_size = 5};
  std::string source;
  std::string reference;
  std::string hypotheses;
  std::string text;
  std::string tokenize = "13a";
  std::string output;
  std::optional<std::int64_t> window;
  InvalidUtf8 invalid_utf8 = InvalidUtf8::replace;
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
  add_window(syntax.options, options.window,
             fmt::format("lines read before they are translated, those of similar length together; not given: {}",
                         default_window));
  add_invalid_utf8(syntax.options, options.invalid_utf8);
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

class Scores {
 public:
  explicit Scores(std::string const& tokenize)
      : tokenize_(tokenize), bleu_(tokenize == "13a" ? BleuTokenization::mteval_13a : BleuTokenization::none) {}

  void add(std::string const& hypothesis, std::string const& reference) {
    bleu_.add(hypothesis, reference);
    chrf_.add(hypothesis, reference);
  }

  void print() const {
    std::string const bleu = bleu_.score().text();
    // sacreBLEU's own form: its signature stands in place of the name BLEU.
    std::cout << fmt::format("BLEU|nrefs:1|case:mixed|eff:no|tok:{}|smooth:exp|version:heddle-{}{}\n", tokenize_,
                             HEDDLE_VERSION, bleu.substr(bleu.find(' ')));
    std::cout << fmt::format("chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:heddle-{} = {:.2f}\n",
                             HEDDLE_VERSION, chrf_.score());
  }

 private:
  std::string tokenize_;
  BleuCounter bleu_;
  ChrfCounter chrf_;
};

/// The references' loss given their sources, over all pairs that fit the model, in packs of pairs of similar length.
class ReferenceLoss {
 public:
  explicit ReferenceLoss(TrainedModel& model) : model_(model) {}

  void add(LinePairWindow const& window) {
    Vocabulary const& vocabulary = model_.vocabulary();
    std::vector<SentencePair> pairs;
    for (std::size_t index = 0; index < window.lines.size(); ++index) {
      pairs.push_back({static_cast<std::int32_t>(index), vocabulary.source.encode(window.lines[index].text),
                       vocabulary.target.encode(window.references[index])});
    }
    MemorySamples const samples(std::move(pairs), vocabulary.special_ids());
    GlobalBatch batch = all_samples(samples, model_.config().model.max_length, SampleOrder::by_length);
    left_out_ += window.lines.size() - batch.samples.size();
    if (batch.samples.empty()) {
      return;
    }
    constexpr std::int64_t pack_tokens = 4096;
    loss_ += model_.loss(SampledMicroBatches(samples, std::move(batch), {.max_tokens = pack_tokens}));
  }

  void print() const {
    if (left_out_ > 0) {
      std::cerr << fmt::format("heddle: perplexity: {} pairs longer than the model takes are left out\n",
                               readable_count(left_out_));
    }
    if (loss_.tokens > 0) {
      double const mean = loss_.negative_log_likelihood / loss_.weight;
      std::cout << fmt::format("perplexity = {:.6g} ({:.4f} nats for each of {} target tokens)\n", std::exp(mean), mean,
                               readable_count(loss_.tokens));
    }
  }

 private:
  TrainedModel& model_;
  LossSums loss_;
  std::size_t left_out_ = 0;
};

/// The file of --output. That it cannot be written is reported last: the scores are useful without the translations.
class KeptTranslations {
 public:
  /// Throws as TextOutput does.
  explicit KeptTranslations(EvaluateOptions const& options) {
    if (!options.output.empty()) {
      output_.emplace(options.output, std::vector{options.source, options.reference});
    }
  }

  void write(std::string const& text) {
    if (!output_ || lost_) {
      return;
    }
    try {
      output_->write(text);
    } catch (Error const&) {
      lost_ = std::current_exception();
    }
  }

  void require_written() const {
    if (lost_) {
      std::rethrow_exception(lost_);
    }
  }

 private:
  std::optional<TextOutput> output_;
  std::exception_ptr lost_;
};

void evaluate_hypotheses(EvaluateOptions const& options) {
  LinePairs pairs(options.hypotheses, options.reference, options.invalid_utf8);
  Scores scores(options.tokenize);
  for (auto window = pairs.next(default_window); !window.empty(); window = pairs.next(default_window)) {
    for (std::size_t index = 0; index < window.lines.size(); ++index) {
      scores.add(window.lines[index].text, window.references[index]);
    }
  }
  scores.print();
  pairs.warn_of_invalid();
}

void evaluate_model(EvaluateOptions const& options) {
  require_equal_lines(options.source, options.reference, options.invalid_utf8);
  LinePairs pairs(options.source, options.reference, options.invalid_utf8);
  auto const report = [](std::string const& message) { std::cerr << "heddle: " << message << '\n'; };
  auto const require = [](ModelDescription const& description) {
    require_translation(description, "heddle evaluate --source", "; --text measures a model of one stack");
  };
  auto const model = TrainedModel::open(options.model, require, report);
  KeptTranslations kept(options);
  Scores scores(options.tokenize);
  ReferenceLoss loss(*model);
  std::int64_t const count = options.window.value_or(default_window);
  for (auto window = pairs.next(count); !window.empty(); window = pairs.next(count)) {
    std::string text;
    auto const translations = translate(*model, window.lines, options.generation, std::cerr);
    for (std::size_t index = 0; index < translations.size(); ++index) {
      scores.add(translations[index].front().text, window.references[index]);
      text += translations[index].front().text + "\n";
    }
    kept.write(text);
    loss.add(window);
  }
  scores.print();
  loss.print();
  pairs.warn_of_invalid();
  kept.require_written();
}

}  // namespace

int run_evaluate(Arguments const& arguments) {
  EvaluateOptions options;
  if (!parse_options(evaluate_syntax(options), arguments)) {
    return static_cast<int>(ExitCode::done);
  }
  check_options(options);
  if (!options.text.empty()) {
    evaluate_text(options.model, options.text, options.invalid_utf8);
  } else if (!options.hypotheses.empty()) {
    evaluate_hypotheses(options);
  } else {
    evaluate_model(options);
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace heddle
